{{- /* A line for each fault of the values that no rule of values-rules.json describes. Call with the root context. */}}
{{- define "slurm-exporter.faults" -}}
{{- $image := .Values.exporter.image -}}
{{- $repository := kindIs "string" $image | ternary $image (get (kindIs "map" $image | ternary $image dict) "repository") | default "" -}}
{{- if regexMatch "(^|/)slurm-exporter([:@].*)?$" $repository -}}
  {{- include "slurm-charts.check.line" (list
    (kindIs "string" $image | ternary "exporter.image" "exporter.image.repository")
    (printf "`%s` has the name of SchedMD's exporter, which this chart can't run" $repository)
    (printf "Remove exporter.image, or set it to your copy of %s/sidecars, under another name." (include "slurm-charts.ownImages" .))
  ) -}}
{{- end -}}
{{- if eq (include "slurm-exporter.seconds" .Values.exporter.cacheFrequency) "0" -}}
  {{- include "slurm-charts.check.line" (list "exporter.cacheFrequency" "Slurm would be asked without a pause" "Set at least `1s`.") -}}
{{- end -}}
{{- if and .Values.exporter.serviceMonitor.enabled .Values.exporter.podMonitor.enabled -}}
  {{- include "slurm-charts.check.line" (list "exporter.podMonitor.enabled" "with exporter.serviceMonitor.enabled, each metric exists twice" "Set one of the two to false.") -}}
{{- end -}}
{{- $api := .Values.exporter.autoscaling.externalMetrics -}}
{{- if $api.enabled -}}
  {{- if not .Values.exporter.autoscaling.nodeSets -}}
    {{- include "slurm-charts.check.line" (list "exporter.autoscaling.externalMetrics.enabled" "no NodeSet is in exporter.autoscaling.nodeSets" "Add the NodeSets to scale.") -}}
  {{- end -}}
  {{- if ne (empty $api.secretName) (empty $api.caBundle) -}}
    {{- include "slurm-charts.check.line" (list "exporter.autoscaling.externalMetrics" "only one of secretName and caBundle is set" "Set both or none of them.") -}}
  {{- end -}}
  {{- if and $api.clientNames (not $api.clientCA) -}}
    {{- include "slurm-charts.check.line" (list "exporter.autoscaling.externalMetrics.clientNames" "clientCA is empty" "Set the authority of these certificates, or remove the names.") -}}
  {{- end -}}
  {{- $service := dig "spec" "service" dict (lookup "apiregistration.k8s.io/v1" "APIService" "" "v1beta1.external.metrics.k8s.io" | default dict) -}}
  {{- if and $service (or (ne $service.name (include "slurm-exporter.apiName" .)) (ne $service.namespace (include "slurm-exporter.namespace" .))) -}}
    {{- include "slurm-charts.check.line" (list
      "exporter.autoscaling.externalMetrics.enabled"
      (printf "the Service %s/%s serves external.metrics.k8s.io, and a Kubernetes cluster has one server of it" $service.namespace $service.name)
      "Set it to false, and scale with that server (docs/autoscaling.md)."
    ) -}}
  {{- end -}}
{{- end -}}
{{- $known := list -}}
{{- range (.Files.Get "alerts.yaml" | fromYaml).groups -}}
  {{- range .rules -}}
    {{- if .alert }}{{ $known = append $known .alert }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- range $name := .Values.prometheusRule.disabled -}}
  {{- if not (has $name $known) -}}
    {{- include "slurm-charts.check.line" (list "prometheusRule.disabled" (printf "`%s` is not an alert of this chart" $name) (printf "Use one of: %s." (join ", " $known))) -}}
  {{- end -}}
{{- end -}}
{{- range $name, $_ := .Values.prometheusRule.for -}}
  {{- if not (has $name $known) -}}
    {{- include "slurm-charts.check.line" (list (printf "prometheusRule.for.%s" $name) "this is not an alert of this chart" (printf "Use one of: %s." (join ", " $known))) -}}
  {{- end -}}
{{- end -}}
{{- end }}
