{{- /* A line for each fault of the values that no rule of values-rules.json describes. Call with the root context. */}}
{{- define "slurm-operator.faults" -}}
{{- $image := .Values.operator.image -}}
{{- $repository := kindIs "string" $image | ternary $image (get (kindIs "map" $image | ternary $image dict) "repository") | default "" -}}
{{- if regexMatch "(^|/)slurm-operator([:@].*)?$" $repository -}}
  {{- include "slurm-charts.check.line" (list
    (kindIs "string" $image | ternary "operator.image" "operator.image.repository")
    (printf "`%s` has the name of SchedMD's operator, which this chart can't run" $repository)
    (printf "Remove operator.image, or set it to your copy of %s/sidecars, under another name." (include "slurm-charts.ownImages" .))
  ) -}}
{{- end -}}
{{- $name := include "slurm-operator.fullname" . -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
  {{- include "slurm-charts.check.line" (list "fullnameOverride" (printf "the name `%s` is no name of a Service" $name)
    "Set a name of a-z, 0-9 and, within, `-`, which begins with a letter.") -}}
{{- end -}}
{{- $operator := .Values.operator -}}
{{- if and (gt (int $operator.replicas) 1) (not $operator.leaderElection) -}}
  {{- include "slurm-charts.check.line" (list "operator.leaderElection"
    (printf "%d replicas need a leader, because each would act on the same pods" (int $operator.replicas))
    "Set it to true, or operator.replicas to 1.") -}}
{{- end -}}
{{- if eq (toString $operator.healthPort) (toString $operator.metricsPort) -}}
  {{- include "slurm-charts.check.line" (list "operator.healthPort" (printf "`%v` is also operator.metricsPort" $operator.healthPort) "Set another port.") -}}
{{- end -}}
{{- end }}
