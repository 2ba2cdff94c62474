{{- /* A line for each fault of the values that no rule of values-rules.json describes. Call with the root context. */}}
{{- define "slurm-operator.faults" -}}
{{- $image := .Values.operator.image -}}
{{- $repository := kindIs "string" $image | ternary $image (get (kindIs "map" $image | ternary $image dict) "repository") | default "" -}}
{{- if regexMatch "(^|/)slurm-operator([:@].*)?$" $repository -}}
{{- include "slurm-operator.check.line" (list
  (kindIs "string" $image | ternary "operator.image" "operator.image.repository")
  (printf "`%s` has the name of SchedMD's operator, which this chart can't run" $repository)
  "Remove operator.image, or set it to your copy of ghcr.io/slurm-charts/sidecars, under another name."
) -}}
{{- end -}}
{{- end }}
