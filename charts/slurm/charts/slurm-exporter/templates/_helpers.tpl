{{/*
Names, labels and other texts of the chart. The argument is the root context (`include "slurm-exporter.name" .`), unless the
comment names another one. All names of objects are defined here.
*/}}

{{/* Name of the chart, for labels. */}}
{{- define "slurm-exporter.name" -}}
{{- include "slurm-charts.name" . -}}
{{- end }}

{{/* Prefix of the names of all objects, and the name of the Deployment. */}}
{{- define "slurm-exporter.fullname" -}}
{{- include "slurm-charts.fullname" . -}}
{{- end }}

{{/* Namespace of all objects. */}}
{{- define "slurm-exporter.namespace" -}}
{{- include "slurm-charts.namespace" . -}}
{{- end }}

{{/* Name of the ServiceAccount. */}}
{{- define "slurm-exporter.serviceAccountName" -}}
{{- default (ternary (include "slurm-exporter.fullname" .) "default" .Values.exporter.serviceAccount.create) .Values.exporter.serviceAccount.name }}
{{- end }}

{{/*
Name of the cluster's Controller. The chart slurm, of which this may be a subchart, derives the name from the release in the
same way, and reports other names.
*/}}
{{- define "slurm-exporter.cluster" -}}
{{- if .Values.cluster }}
  {{- .Values.cluster }}
{{- else if .Chart.IsRoot }}
  {{- "slurm" }}
{{- else if contains "slurm" .Release.Name }}
  {{- .Release.Name | trunc 63 | trimSuffix "-" }}
{{- else }}
  {{- printf "%s-slurm" .Release.Name | trunc 63 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{/* URL of slurmrestd. */}}
{{- define "slurm-exporter.url" -}}
{{- default (printf "http://%s-restapi.%s:6820" (include "slurm-exporter.cluster" .) (include "slurm-exporter.namespace" .)) .Values.exporter.url | trimSuffix "/" }}
{{- end }}

{{/* Port of slurmrestd, as `exporter.url` has it. */}}
{{- define "slurm-exporter.restapiPort" -}}
{{- $url := include "slurm-exporter.url" . }}
{{- $port := regexFind ":[0-9]+$" $url | trimPrefix ":" }}
{{- $port | default (hasPrefix "https:" $url | ternary "443" "80") }}
{{- end }}

{{/* Name of the Secret with the token. */}}
{{- define "slurm-exporter.secretName" -}}
{{- default (printf "%s-token" (include "slurm-exporter.fullname" . | trunc 57 | trimSuffix "-")) .Values.exporter.secretName }}
{{- end }}

{{/* Chart and version, as a label. Never in selectors or pod templates: a new version alone restarts nothing. */}}
{{- define "slurm-exporter.chart" -}}
{{- include "slurm-charts.chart" . -}}
{{- end }}

{{/* Labels that select the exporter's pods. */}}
{{- define "slurm-exporter.selectorLabels" -}}
app.kubernetes.io/name: {{ include "slurm-exporter.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: exporter
{{- end }}

{{/* Labels of all objects. */}}
{{- define "slurm-exporter.labels" -}}
helm.sh/chart: {{ include "slurm-exporter.chart" . }}
{{ include "slurm-exporter.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: slurm-exporter
{{- end }}

{{/*
The content of an object's metadata. Call with a list: root context, name of the object, and optionally a map of `labels` and
`annotations`.
*/}}
{{- define "slurm-exporter.metadata" -}}
{{- $root := index . 0 }}
{{- $extra := dict }}
{{- if gt (len .) 2 }}{{ $extra = index . 2 | default dict }}{{ end -}}
name: {{ index . 1 }}
namespace: {{ include "slurm-exporter.namespace" $root }}
labels:
  {{- mergeOverwrite (dict) ($extra.labels | default dict) (include "slurm-exporter.labels" $root | fromYaml) | toYaml | nindent 2 }}
{{- with $extra.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{/* The exporter's image as one string. A digest overrides a tag. */}}
{{- define "slurm-exporter.image" -}}
{{- $image := .Values.exporter.image | default dict }}
{{- $reference := $image }}
{{- if kindIs "map" $image }}
  {{- $repository := required "exporter.image.repository: the value is empty. Set it, or remove exporter.image." $image.repository }}
  {{- $reference = printf "%s:%s" $repository ($image.tag | default .Chart.Version) }}
  {{- if $image.digest }}{{ $reference = printf "%s@%s" $repository $image.digest }}{{ end }}
{{- end }}
{{- include "slurm-charts.atRegistry" (list . $reference) }}
{{- end }}

{{/* "true" if the chart creates a ServiceMonitor. A PodMonitor replaces the one of the default. Call with the root context. */}}
{{- define "slurm-exporter.serviceMonitor" -}}
{{- $enabled := .Values.exporter.serviceMonitor.enabled }}
{{- if not (and (kindIs "invalid" $enabled) .Values.exporter.podMonitor.enabled) }}
  {{- include "slurm-charts.monitored" (list . $enabled) }}
{{- end }}
{{- end }}

{{/* A duration such as `1m30s` in seconds. Call with the duration. */}}
{{- define "slurm-exporter.seconds" -}}
{{- $seconds := 0 }}
{{- range regexFindAll "[0-9]+[hms]" . -1 }}
  {{- $seconds = add $seconds (mul (int (regexFind "^[0-9]+" .)) (get (dict "h" 3600 "m" 60 "s" 1) (regexFind "[hms]$" .))) }}
{{- end }}
{{- $seconds }}
{{- end }}

{{/*
The endpoints of a ServiceMonitor or a PodMonitor, as a list. Each series gets the name of the cluster as label `slurm_cluster`. Call
with a list: root context, the endpoints of the values.
*/}}
{{- define "slurm-exporter.endpoints" -}}
{{- $root := index . 0 }}
{{- $scheme := $root.Values.exporter.tls.secretName | empty | ternary "http" "https" }}
{{- $label := dict "targetLabel" "slurm_cluster" "replacement" (include "slurm-exporter.cluster" $root) }}
{{- $endpoints := list }}
{{- range (index . 1) | default (list dict) }}
  {{- $relabelings := prepend (.relabelings | default list) $label }}
  {{- $endpoints = append $endpoints (mergeOverwrite (dict "port" "metrics" "path" "/metrics" "scheme" $scheme) . (dict "relabelings" $relabelings)) }}
{{- end }}
{{- toYaml $endpoints }}
{{- end }}

{{/* Name of the Service and the Secret of external.metrics.k8s.io. */}}
{{- define "slurm-exporter.apiName" -}}
{{- printf "%s-api" (include "slurm-exporter.fullname" . | trunc 59 | trimSuffix "-") }}
{{- end }}

{{/*
Who may read external.metrics.k8s.io, as YAML: the authority of the API servers' client certificate, and its names. Both are of
Kubernetes' own ConfigMap unless values set the authority. Empty where Helm can't read the cluster.
*/}}
{{- define "slurm-exporter.apiClients" -}}
{{- $api := .Values.exporter.autoscaling.externalMetrics }}
{{- if $api.clientCA }}
{{- dict "authority" $api.clientCA "names" ($api.clientNames | default list) | toYaml }}
{{- else }}
{{- $data := (lookup "v1" "ConfigMap" "kube-system" "extension-apiserver-authentication" | default dict).data | default dict }}
{{- $names := get $data "requestheader-allowed-names" | default "[]" | fromJsonArray }}
{{- dict "authority" (get $data "requestheader-client-ca-file") "names" $names | toYaml }}
{{- end }}
{{- end }}

{{/* The NodeSets whose replicas are computed, as JSON; empty for none. */}}
{{- define "slurm-exporter.nodeSets" -}}
{{- $found := list }}
{{- range $name, $nodeset := .Values.exporter.autoscaling.nodeSets }}
  {{- $found = append $found (merge (dict "name" $name) $nodeset) }}
{{- end }}
{{- with $found }}{{ toJson . }}{{ end }}
{{- end }}
