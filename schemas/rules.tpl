{{- /*
Generated from the rules in schemas/crds by `make generate`. Edit those instead.

What the API server would refuse about a custom resource of the chart, because several of its fields don't fit.
*/}}

{{- /*
Fails with the rules that a resource breaks. Call with a list: its kind, its text, the place of its values.
*/}}
{{- define "slurm.rules" -}}
{{- include "slurm-charts.check.fail" (include (printf "slurm.rules.%s" (first .)) (list (index . 1 | fromYaml) (last .))) -}}
{{- end }}

{{- /* A duration, such as `1h30m`, in seconds. */}}
{{- define "slurm.rules.seconds" -}}
{{- $units := dict "h" 3600 "m" 60 "s" 1 "ms" 0.001 -}}
{{- $seconds := 0.0 -}}
{{- range regexFindAll `[0-9.]+[a-z]+` (toString .) -1 -}}
{{- $seconds = addf $seconds (mulf (regexFind `[0-9.]+` .) (get $units (regexFind `[a-z]+` .) | default 0)) -}}
{{- end -}}
{{- $seconds -}}
{{- end }}
