{{- /* The checks that run as Slurm jobs. */}}

{{- /* The enabled checks by name, as YAML. Call with the root context. */}}
{{- define "slurm.checks" -}}
{{- $found := dict -}}
{{- range $name, $check := .Values.checks.definitions -}}
  {{- if and $check $check.enabled -}}
    {{- $_ := set $found $name (mergeOverwrite (dict "username" $.Values.checks.username) (include "slurm.fields" (list $check) | fromYaml)) -}}
  {{- end -}}
{{- end -}}
{{- if $found }}{{ toYaml $found }}{{ end -}}
{{- end }}

{{- /* Names: of the objects of all checks, of the results, and of the Token of a user. */}}
{{- define "slurm.checks.name" -}}
{{- printf "%s-checks" (include "slurm.fullname" .) -}}
{{- end }}

{{- define "slurm.checks.results" -}}
{{- printf "%s-check-results" (include "slurm.fullname" .) -}}
{{- end }}

{{- /* Call with a list: root context, user. */}}
{{- define "slurm.checks.token" -}}
{{- printf "%s-%s" (include "slurm.checks.name" (index . 0)) (index . 1 | sha256sum | trunc 10) -}}
{{- end }}

{{- /* The script of a check: its own, or the chart's. Call with a list: root context, name, check. */}}
{{- define "slurm.checks.script" -}}
{{- $own := (index . 2).script -}}
{{- if $own }}{{ $own }}{{ else }}{{ (index . 0).Files.Get (printf "files/checks/%s.sh" (index . 1)) }}{{ end -}}
{{- end }}

{{- /* What sidecars.policy.checks.declared reads, as JSON. Call with a list: root context, name, check. */}}
{{- define "slurm.checks.declared" -}}
{{- $check := index . 2 -}}
{{- $keys := list "strategy" "partition" "features" "gpus" "env" "limits" "timeoutSeconds" "windowSeconds" "maxNodes" "maxDrains" "drain" "undrain" "comment" "schedule" "suspend" -}}
{{- $fields := include "slurm.fields" (concat (list $check) $keys) | fromYaml -}}
{{- range $key := list "timeoutSeconds" "windowSeconds" "maxNodes" "maxDrains" -}}
  {{- if hasKey $fields $key }}{{ $_ := set $fields $key (int (get $fields $key)) }}{{ end -}}
{{- end -}}
{{- mergeOverwrite $fields (dict "name" (index . 1) "script" (include "slurm.checks.script" .)) | toPrettyJson -}}
{{- end }}

{{- define "slurm.checks.image" -}}
{{- $image := .Values.checks.image -}}
{{- if kindIs "map" $image -}}
  {{- $image = mergeOverwrite (deepCopy $image) (dict "tag" ($image.tag | default .Chart.Version)) -}}
{{- end -}}
{{- include "slurm.image" (list . $image "checks.image") -}}
{{- end }}

{{- /* A line for each value with which a check can't run. Call with the root context. */}}
{{- define "slurm.faults.checks" -}}
{{- range $name, $check := include "slurm.checks" . | fromYaml -}}
  {{- $place := printf "checks.definitions.%s" $name -}}
  {{- if not (include "slurm.checks.script" (list $ $name $check)) -}}
    {{- include "slurm-charts.check.line" (list (printf "%s.script" $place) "the check has no script, and the chart has none of this name" "Set it.") -}}
  {{- end -}}
  {{- if not $check.schedule -}}
    {{- include "slurm-charts.check.line" (list (printf "%s.schedule" $place) "the check has no schedule" "Set it, for example to `0 3 * * *`.") -}}
  {{- end -}}
  {{- if gt (int ($check.timeoutSeconds | default 60)) (int ($check.windowSeconds | default 600)) -}}
    {{- include "slurm-charts.check.line" (list (printf "%s.windowSeconds" $place) "it is less than timeoutSeconds, so no test could end in time" "Set a greater one.") -}}
  {{- end -}}
  {{- if and (eq ($check.strategy | default "nodes") "pairs") (lt (int ($check.maxNodes | default 4)) 2) -}}
    {{- include "slurm-charts.check.line" (list (printf "%s.maxNodes" $place) "a pair has 2 nodes" "Set 2 or more.") -}}
  {{- end -}}
  {{- /* Kubernetes adds 11 characters for the names of Jobs. */ -}}
  {{- $cronJob := printf "%s-check-%s" (include "slurm.fullname" $) $name -}}
  {{- if gt (len $cronJob) 52 -}}
    {{- include "slurm-charts.check.line" (list $place (printf "the name of its CronJob, `%s`, has %d characters, and may have 52" $cronJob (len $cronJob)) "Set a shorter name, or a shorter fullnameOverride.") -}}
  {{- end -}}
  {{- if hasKey ($check.env | default dict) "PATH" -}}
    {{- include "slurm-charts.check.line" (list (printf "%s.env.PATH" $place) "the jobs of checks have a PATH" "Remove it, and set PATH in the script.") -}}
  {{- end -}}
  {{- if not $.Values.restapi.enabled -}}
    {{- include "slurm-charts.check.line" (list (printf "%s.enabled" $place) "this release has no slurmrestd, through which checks run" "Set restapi.enabled to true.") -}}
  {{- end -}}
{{- end -}}
{{- end }}
