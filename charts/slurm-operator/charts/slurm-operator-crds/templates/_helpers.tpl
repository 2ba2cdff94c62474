{{/*
Labels and annotations of a definition, as the rest of its `metadata`. Call it with the root context.
*/}}
{{- define "slurm-operator-crds.metadata" -}}
{{- $annotations := dict }}
{{- if .Values.keep }}
{{- $_ := set $annotations "helm.sh/resource-policy" "keep" }}
{{- end }}
{{- $annotations = mergeOverwrite $annotations (.Values.annotations | default dict) }}
{{- with $annotations -}}
annotations:
  {{- toYaml . | nindent 2 }}
{{ end -}}
labels:
  helm.sh/chart: {{ include "slurm-charts.chart" . }}
  app.kubernetes.io/name: {{ .Chart.Name }}
  app.kubernetes.io/instance: {{ .Release.Name }}
  app.kubernetes.io/component: crds
  app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
  app.kubernetes.io/managed-by: {{ .Release.Service }}
  app.kubernetes.io/part-of: slurm-operator
{{- end }}
