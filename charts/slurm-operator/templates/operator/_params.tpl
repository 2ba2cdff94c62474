{{/*
Arguments of the operator, as a list. Call it with the root context.
*/}}
{{- define "slurm-operator.args" -}}
- operator
- --health-addr=:{{ .Values.operator.healthPort }}
{{- $metricsPort := include "slurm-operator.metricsPort" . }}
- --metrics-addr={{ eq $metricsPort "0" | ternary "0" (printf ":%s" $metricsPort) }}
{{- if .Values.operator.metricsSecure }}
- --metrics-secure
{{- end }}
- --leader-elect={{ .Values.operator.leaderElection }}
- --leader-elect-namespace={{ include "slurm-operator.namespace" . }}
- --leader-elect-name={{ include "slurm-operator.fullname" . }}
{{- with include "slurm-operator.namespaces" . }}
- --namespaces={{ . }}
{{- end }}
- --workloads=/etc/slurm-operator/workloads
- --log-level={{ include "slurm-operator.logLevel" . }}
{{- range list "accounting" "controller" "loginset" "nodeset" "restapi" "slurmclient" "token" }}
- --{{ . }}-workers={{ get $.Values.operator (printf "%sWorkers" .) }}
{{- end }}
{{- with .Values.propagatedNodeConditions }}
- --propagated-node-conditions={{ join "," . }}
{{- end }}
{{- with .Values.operator.allowedServiceAccounts }}
- --allowed-service-accounts={{ join "," . }}
{{- end }}
{{- if .Values.cordonDrainedNodes }}
- --cordon-drained-nodes
{{- end }}
{{- if .Values.labelKubeNodes }}
- --label-kube-nodes
{{- end }}
{{- end }}
