{{- /* Users and groups of an LDAP directory. */}}

{{- /* "true" if the values name a directory. */}}
{{- define "slurm.ldap" -}}
{{- if .Values.ldap.uri }}true{{ end -}}
{{- end }}

{{- define "slurm.ldap.name" -}}
{{- printf "%s-ldap" (include "slurm.fullname" .) -}}
{{- end }}

{{- /* The Secret with all users: of the directory and of the values. */}}
{{- define "slurm.ldap.secretName" -}}
{{- printf "%s-ldap-users" (include "slurm.fullname" .) -}}
{{- end }}

{{- define "slurm.ldap.image" -}}
{{- $image := .Values.ldap.image -}}
{{- if kindIs "map" $image -}}
  {{- $image = mergeOverwrite (deepCopy $image) (dict "tag" ($image.tag | default .Chart.Version)) -}}
{{- end -}}
{{- include "slurm.image" (list . $image "ldap.image") -}}
{{- end }}

{{- /* What sidecars.ldap.settings reads, as JSON. */}}
{{- define "slurm.ldap.settings" -}}
{{- $keys := list "uri" "startTls" "base" "userBase" "groupBase" "userFilter" "groupFilter" "bindDn" "home" "shell" -}}
{{- $settings := dict "intervalSeconds" (int .Values.ldap.intervalSeconds) -}}
{{- range $key := $keys -}}
  {{- $value := get $.Values.ldap $key -}}
  {{- if $value }}{{ $_ := set $settings $key $value }}{{ end -}}
{{- end -}}
{{- $attributes := dict -}}
{{- range $key, $value := .Values.ldap.attributes -}}
  {{- if $value }}{{ $_ := set $attributes $key $value }}{{ end -}}
{{- end -}}
{{- if $attributes }}{{ $_ := set $settings "attributes" $attributes }}{{ end -}}
{{- $settings | toPrettyJson -}}
{{- end }}

{{- /* A line for each value with which the directory can't be asked, or not safely. Call with the root context. */}}
{{- define "slurm.faults.ldap" -}}
{{- $ldap := .Values.ldap -}}
{{- $password := ($ldap.passwordSecretRef | default dict).name -}}
{{- if $ldap.uri -}}
  {{- if not $ldap.base -}}
    {{- include "slurm-charts.check.line" (list "ldap.base" "the directory has no base below which users are" "Set it, for example to `dc=example,dc=com`.") -}}
  {{- end -}}
  {{- if and (regexMatch "(^| )ldap://" $ldap.uri) (not $ldap.startTls) (not $ldap.insecure) -}}
    {{- include "slurm-charts.check.line" (list "ldap.uri" "the connection to `ldap://` is not encrypted, so that others could add users and keys"
      "Use `ldaps://`, or set ldap.startTls. For a trial alone, set ldap.insecure.") -}}
  {{- end -}}
  {{- if and $ldap.startTls (regexMatch "(^| )ldaps://" $ldap.uri) -}}
    {{- include "slurm-charts.check.line" (list "ldap.startTls" "connections to `ldaps://` are encrypted from the start" "Set it to false, or use `ldap://`.") -}}
  {{- end -}}
  {{- if and $ldap.bindDn (not $password) -}}
    {{- include "slurm-charts.check.line" (list "ldap.passwordSecretRef" "ldap.bindDn has no password" "Set the name of a Secret with the key `password`.") -}}
  {{- end -}}
  {{- if and $password (not $ldap.bindDn) -}}
    {{- include "slurm-charts.check.line" (list "ldap.bindDn" "ldap.passwordSecretRef is of no entry" "Set the entry whose password it is.") -}}
  {{- end -}}
{{- else if or $ldap.base $ldap.bindDn $password -}}
  {{- include "slurm-charts.check.line" (list "ldap.uri" "other values of `ldap` are set, and no server" "Set it, for example to `ldaps://ldap.example.com`.") -}}
{{- end -}}
{{- end }}
