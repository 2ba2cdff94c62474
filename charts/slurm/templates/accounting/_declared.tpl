{{- /*
What slurmdbd is to have, as JSON; nothing if the values declare nothing. JSON keeps large numbers, which YAML would write
with an exponent. Call with the root context.
*/}}
{{- define "slurm.declaredAccounts" -}}
{{- $declared := .Values.accounting.declared | default dict -}}
{{- $users := dict -}}
{{- range $name, $user := .Values.users -}}
  {{- if $user.accounts -}}
    {{- $_ := set $users $name (omit $user "uid" "group" "groups" "fullName" "shell" "home" "sshKeys") -}}
  {{- end -}}
{{- end -}}
{{- $kinds := dict "accounts" $declared.accounts "qos" $declared.qos "reservations" $declared.reservations "users" $users -}}
{{- $result := dict -}}
{{- range $kind, $entries := $kinds -}}
  {{- $kept := dict -}}
  {{- range $name, $entry := $entries -}}
    {{- $fields := dict -}}
    {{- range $key, $value := $entry -}}
      {{- if not (kindIs "invalid" $value) -}}
        {{- $_ := set $fields $key $value -}}
      {{- end -}}
    {{- end -}}
    {{- $_ := set $kept $name $fields -}}
  {{- end -}}
  {{- if $kept -}}
    {{- $_ := set $result $kind $kept -}}
  {{- end -}}
{{- end -}}
{{- range $key := list "prune" "dryRun" -}}
  {{- if get $declared $key -}}
    {{- $_ := set $result $key true -}}
  {{- end -}}
{{- end -}}
{{- if and .Values.accounting.enabled $result -}}
  {{- toJson $result -}}
{{- end -}}
{{- end }}
