{{- /*
Names that all charts form in the same way. The argument is the root context.
*/}}

{{- /* Name of the chart, for labels. */}}
{{- define "slurm-charts.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end }}

{{- /* Prefix of the names of all objects. */}}
{{- define "slurm-charts.fullname" -}}
{{- $name := include "slurm-charts.name" . -}}
{{- if .Values.fullnameOverride -}}
  {{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
  {{- .Release.Name | trunc 63 | trimSuffix "-" -}}
{{- else -}}
  {{- printf "%s-%s" .Release.Name $name | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end }}

{{- /* Namespace of all objects. */}}
{{- define "slurm-charts.namespace" -}}
{{- default .Release.Namespace .Values.namespaceOverride -}}
{{- end }}

{{- /* Chart and version, as a label. Never in selectors or pod templates: a new version alone restarts nothing. */}}
{{- define "slurm-charts.chart" -}}
{{- printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" -}}
{{- end }}
