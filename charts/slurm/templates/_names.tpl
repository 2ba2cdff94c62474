{{- /*
The names of all objects of the release and of the keys in them. The argument is the root context, unless the comment names
another one.
*/}}

{{- /* Stem of all names, and the name of the Controller, the RestApi and the Accounting. */}}
{{- define "slurm.fullname" -}}
{{- include "slurm-charts.fullname" . -}}
{{- end }}

{{- define "slurm.namespace" -}}
{{- include "slurm-charts.namespace" . -}}
{{- end }}

{{- /* The name of an object of a key in the values. Call with a list: root context, the part between stem and key, the key. */}}
{{- define "slurm.keyed.name" -}}
{{- printf "%s-%s-%s" (include "slurm.fullname" (index . 0)) (index . 1) (index . 2) -}}
{{- end }}

{{- /* Call with a list: root context, key in `loginsets`. */}}
{{- define "slurm.loginset.name" -}}
{{- include "slurm.keyed.name" (list (index . 0) "login" (index . 1)) -}}
{{- end }}

{{- /* Call with a list: root context, key in `nodesets`. */}}
{{- define "slurm.nodeset.name" -}}
{{- include "slurm.keyed.name" (list (index . 0) "worker" (index . 1)) -}}
{{- end }}

{{- /* Call with a list: root context, key in `tokens`. */}}
{{- define "slurm.token.name" -}}
{{- include "slurm.keyed.name" (list (index . 0) "token" (index . 1)) -}}
{{- end }}

{{- /* A ConfigMap of the release. Call with a list: root context, its content, for example "prolog-scripts". */}}
{{- define "slurm.configMap.name" -}}
{{- printf "%s-%s" (include "slurm.fullname" (index . 0)) (index . 1) -}}
{{- end }}

{{- /* The embedded database: its StatefulSet, Service and password Secret. */}}
{{- define "slurm.mariadb.name" -}}
{{- printf "%s-mariadb" (include "slurm.fullname" .) -}}
{{- end }}

{{- /* Not empty if the release has the test of `helm test`, whose token the operator issues. */}}
{{- define "slurm.helmTest.enabled" -}}
{{- if and .Values.helmTest.enabled (not .Values.withoutOperator) }}true{{ end -}}
{{- end }}

{{- /* The pod and the Token of `helm test`. */}}
{{- define "slurm.helmTest.name" -}}
{{- printf "%s-helm-test" (include "slurm.fullname" .) -}}
{{- end }}

{{- /* Name and key of the Secret or ConfigMap that contains a key, as YAML. */}}

{{- define "slurm.slurmKeyRef" -}}
name: {{ .Values.slurmKey.secretRef.name | default (printf "%s-auth-slurm" (include "slurm.fullname" .)) }}
key: {{ .Values.slurmKey.secretRef.key | default "slurm.key" }}
{{- end }}

{{- define "slurm.jwtKeyRef" -}}
name: {{ .Values.jwtKey.secretRef.name | default (printf "%s-auth-jwt" (include "slurm.fullname" .)) }}
key: {{ .Values.jwtKey.secretRef.key | default "jwt.key" }}
{{- end }}

{{- define "slurm.jwksKeyRef" -}}
name: {{ .Values.jwksKeys.configMapRef.name | default (printf "%s-auth-jwks" (include "slurm.fullname" .)) }}
key: {{ .Values.jwksKeys.configMapRef.key | default "jwks.json" }}
{{- end }}

{{- define "slurm.sssdConfRef" -}}
name: {{ .Values.sssd.secretRef.name | default (printf "%s-sssd-conf" (include "slurm.fullname" .)) }}
key: {{ .Values.sssd.secretRef.key | default "sssd.conf" }}
{{- end }}

{{- /* The references to all keys, for a Controller or Accounting. */}}
{{- define "slurm.keyRefs" -}}
slurmKeyRef:
  {{- include "slurm.slurmKeyRef" . | nindent 2 }}
jwtKeyRef:
  {{- include "slurm.jwtKeyRef" . | nindent 2 }}
{{- if .Values.jwksKeys.enabled }}
jwksKeyRef:
  {{- include "slurm.jwksKeyRef" . | nindent 2 }}
{{- end }}
{{- end }}
