{{/*
Names, labels and other texts of the chart. The argument is the root context (`include "slurm-operator.name" .`), except for
`slurm-operator.image`. All names of objects are defined here.
*/}}

{{/* Name of the chart, for labels. */}}
{{- define "slurm-operator.name" -}}
{{- include "slurm-charts.name" . -}}
{{- end }}

{{/* Prefix of the names of all objects, and the name of the operator's Deployment. */}}
{{- define "slurm-operator.fullname" -}}
{{- include "slurm-charts.fullname" . -}}
{{- end }}

{{/* Namespace of all objects. */}}
{{- define "slurm-operator.namespace" -}}
{{- include "slurm-charts.namespace" . -}}
{{- end }}

{{/* Name of the ServiceAccount. */}}
{{- define "slurm-operator.serviceAccountName" -}}
{{- default (ternary (include "slurm-operator.fullname" .) "default" .Values.operator.serviceAccount.create) .Values.operator.serviceAccount.name }}
{{- end }}

{{/* Name of the ConfigMap with the structure of the pods. */}}
{{- define "slurm-operator.workloadsName" -}}
{{- include "slurm-operator.fullname" . | trunc 53 | trimSuffix "-" }}-workloads
{{- end }}

{{/* Chart and version, as a label. Never in selectors or pod templates: a new version alone restarts nothing. */}}
{{- define "slurm-operator.chart" -}}
{{- include "slurm-charts.chart" . -}}
{{- end }}

{{/* Labels that select the operator's pods. */}}
{{- define "slurm-operator.selectorLabels" -}}
app.kubernetes.io/name: {{ include "slurm-operator.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end }}

{{/* Labels of all objects. */}}
{{- define "slurm-operator.labels" -}}
helm.sh/chart: {{ include "slurm-operator.chart" . }}
{{ include "slurm-operator.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: slurm-operator
{{- end }}

{{/*
A container image as one string. Call it with `(dict "image" IMAGE "tag" DEFAULT)`; IMAGE is a string, or a map of
`repository` with `digest` or `tag`. DEFAULT replaces an empty tag.
*/}}
{{- define "slurm-operator.image" -}}
{{- $image := .image | default dict }}
{{- if kindIs "string" $image }}
  {{- $image }}
{{- else }}
  {{- $repository := required "operator.image.repository: the value is empty. Set it, or remove operator.image." $image.repository }}
  {{- if $image.digest }}
    {{- printf "%s@%s" $repository $image.digest }}
  {{- else }}
    {{- printf "%s:%s" $repository (required "operator.image.tag: the value is empty. Set it." ($image.tag | default .tag | toString)) }}
  {{- end }}
{{- end }}
{{- end }}

{{/* The operator's image, and that of the sidecars in the pods that it creates. */}}
{{- define "slurm-operator.operatorImage" -}}
{{- $image := include "slurm-operator.image" (dict "image" .Values.operator.image "tag" .Chart.Version) }}
{{- include "slurm-charts.atRegistry" (list . $image) }}
{{- end }}

{{/* Watched namespaces, separated by commas. Empty: all, with operator.allNamespaces only. */}}
{{- define "slurm-operator.namespaces" -}}
{{- if not .Values.operator.allNamespaces }}
  {{- $given := .Values.operator.namespaces | default list }}
  {{- $list := kindIs "string" $given | ternary (splitList "," (toString $given)) $given }}
  {{- $names := list }}
  {{- range $list }}
    {{- $names = without (append $names (trim .)) "" }}
  {{- end }}
  {{- join "," (uniq $names) | default "slurm" }}
{{- end }}
{{- end }}

{{/*
Namespaces with a Controller that the operator does not watch, separated by commas. Empty if Helm can't look it up, as
with `helm template`.
*/}}
{{- define "slurm-operator.unwatchedNamespaces" -}}
{{- $watched := splitList "," (include "slurm-operator.namespaces" .) }}
{{- if and (not .Values.operator.allNamespaces) (.Capabilities.APIVersions.Has "slinky.slurm.net/v1beta1/Controller") }}
  {{- $found := list }}
  {{- range (lookup "slinky.slurm.net/v1beta1" "Controller" "" "").items }}
    {{- if not (has .metadata.namespace $watched) }}
      {{- $found = append $found .metadata.namespace }}
    {{- end }}
  {{- end }}
  {{- join ", " ($found | uniq | sortAlpha) }}
{{- end }}
{{- end }}

{{/* Port of the metrics. 0: none. Fails if it isn't a port. */}}
{{- define "slurm-operator.metricsPort" -}}
{{- $port := toString .Values.operator.metricsPort }}
{{- if not (regexMatch "^(0|[1-9][0-9]{0,4})$" $port) }}
  {{- fail (printf "operator.metricsPort: `%s` is not a port. Set a number from 0 to 65535." $port) }}
{{- end }}
{{- if gt (int $port) 65535 }}
  {{- fail (printf "operator.metricsPort: `%s` is not a port. Set a number from 0 to 65535." $port) }}
{{- end }}
{{- if and .Values.operator.metricsSecure (eq $port "0") }}
  {{- fail "operator.metricsSecure: `true` needs a port. Set operator.metricsPort to a number from 1 to 65535." }}
{{- end }}
{{- $port }}
{{- end }}

{{/* The operator's log level. Names and numbers of SchedMD's logger are accepted too. */}}
{{- define "slurm-operator.logLevel" -}}
{{- $level := .Values.operator.logLevel | default "info" | toString | lower }}
{{- $known := dict "debug" "debug" "info" "info" "warning" "warning" "warn" "warning" "error" "error" "panic" "error" }}
{{- get $known $level | default "debug" }}
{{- end }}
