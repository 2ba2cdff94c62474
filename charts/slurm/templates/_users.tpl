{{- /* Users and groups of the operating system, which the operator renders into files that all pods mount. */}}

{{- /* The fields of a user that describe it to the operating system; all others describe it to slurmdbd. */}}
{{- define "slurm.users.fields" -}}
{{- toJson (list "uid" "group" "groups" "fullName" "shell" "home" "sshKeys") -}}
{{- end }}

{{- /* The declaration as JSON, in which numbers have no exponent; empty if the values declare none. Call with the root context. */}}
{{- define "slurm.users.declaration" -}}
{{- $fields := include "slurm.users.fields" . | fromJsonArray -}}
{{- $users := dict -}}
{{- range $name, $user := .Values.users -}}
  {{- $kept := dict -}}
  {{- range $key, $value := $user -}}
    {{- if and (has $key $fields) (not (kindIs "invalid" $value)) -}}
      {{- $_ := set $kept $key $value -}}
    {{- end -}}
  {{- end -}}
  {{- if hasKey $kept "uid" -}}
    {{- $_ := set $users $name $kept -}}
  {{- end -}}
{{- end -}}
{{- if or $users .Values.groups -}}
  {{- toJson (dict "users" $users "groups" (.Values.groups | default dict)) -}}
{{- end -}}
{{- end }}

{{- /* The name of the Secret with the declaration of the values. Call with the root context. */}}
{{- define "slurm.users.secretName" -}}
{{- printf "%s-declared-users" (include "slurm.fullname" .) -}}
{{- end }}

{{- /*
The Secret and key from which the operator takes the users, as YAML; empty without one. Call with the root context.
*/}}
{{- define "slurm.users.ref" -}}
{{- if include "slurm.ldap" . -}}
name: {{ include "slurm.ldap.secretName" . }}
key: users.yaml
{{- else -}}
{{- include "slurm.users.ownRef" . -}}
{{- end -}}
{{- end }}

{{- /* The Secret and key that declare users, as YAML; empty without one. Call with the root context. */}}
{{- define "slurm.users.ownRef" -}}
{{- $own := .Values.usersSecretRef | default dict -}}
{{- if $own.name -}}
name: {{ $own.name }}
key: {{ $own.key | default "users.yaml" }}
{{- else if include "slurm.users.declaration" . -}}
name: {{ include "slurm.users.secretName" . }}
key: users.yaml
{{- end -}}
{{- end }}

{{- /*
A line for each user or group that can't exist, or not beside another one. The operator checks the same, and more: it also checks
Secrets of the site. Call with the root context.
*/}}
{{- define "slurm.users.faults" -}}
{{- $fields := include "slurm.users.fields" . | fromJsonArray -}}
{{- $groups := .Values.groups | default dict -}}
{{- $uids := dict -}}
{{- $gids := dict -}}
{{- range $name, $group := $groups -}}
  {{- include "slurm.users.faults.id" (list (printf "groups.%s" $name) "gid" $name $group.gid $gids) -}}
{{- end -}}
{{- range $name, $user := .Values.users -}}
  {{- $place := printf "users.%s" $name -}}
  {{- $user = $user | default dict -}}
  {{- if not $user.accounts -}}
    {{- range $key := list "adminLevel" "defaultAccount" "defaultQos" "fairshare" "limits" "qos" -}}
      {{- if and (hasKey $user $key) (not (kindIs "invalid" (get $user $key))) -}}
        {{- include "slurm-charts.check.line" (list (printf "%s.%s" $place $key) "slurmdbd has only users with an account" (printf "Set %s.accounts." $place)) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- if kindIs "invalid" $user.uid -}}
    {{- if not $user.accounts -}}
      {{- include "slurm-charts.check.line" (list $place "the user has neither a uid nor accounts"
        "Set uid for a user of the operating system, accounts for a user of slurmdbd, or both.") -}}
    {{- end -}}
    {{- range $key := keys $user | sortAlpha -}}
      {{- if and (has $key $fields) (not (kindIs "invalid" (get $user $key))) -}}
        {{- include "slurm-charts.check.line" (list (printf "%s.%s" $place $key) "a user of the operating system has a number" (printf "Set %s.uid." $place)) -}}
      {{- end -}}
    {{- end -}}
  {{- else -}}
    {{- include "slurm.users.faults.id" (list $place "uid" $name $user.uid $uids) -}}
    {{- if $user.group -}}
      {{- if not (hasKey $groups $user.group) -}}
        {{- include "slurm-charts.check.line" (list (printf "%s.group" $place) (printf "no group `%s` is declared" $user.group) "Add it to groups, with its gid.") -}}
      {{- end -}}
    {{- else if hasKey $groups $name -}}
      {{- include "slurm-charts.check.line" (list (printf "%s.group" $place) (printf "a group `%s` is declared, and the user's own group would have the same name" $name)
        (printf "Set `%s`, or rename the group." $name)) -}}
    {{- else if hasKey $gids (printf "%.0f" (float64 $user.uid)) -}}
      {{- include "slurm-charts.check.line" (list (printf "%s.group" $place)
        (printf "%s.gid is %.0f, which the user's own group would have" (get $gids (printf "%.0f" (float64 $user.uid))) (float64 $user.uid)) "Set the primary group.") -}}
    {{- end -}}
    {{- range $group := $user.groups -}}
      {{- if not (hasKey $groups $group) -}}
        {{- include "slurm-charts.check.line" (list (printf "%s.groups" $place) (printf "no group `%s` is declared" $group) "Add it to groups, with its gid.") -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if .Values.usersSecretRef -}}
  {{- if and .Values.usersSecretRef.name (include "slurm.users.declaration" .) -}}
    {{- include "slurm-charts.check.line" (list "usersSecretRef" "users with a uid, or groups, are values too"
      "Declare all of them in the Secret, or all of them in the values.") -}}
  {{- end -}}
{{- end -}}
{{- if and (include "slurm.users.ref" .) (include "slurm.users.without" .) -}}
  {{- include "slurm-charts.check.line" (list (include "slurm.users.place" .)
    (printf "SchedMD's images don't read declared users (%s)" (include "slurm.users.without" .))
    (ternary "Set these images to ones with libnss-extrausers, and Pyxis in those of workers and login nodes, or provide the users with SSSD."
      (printf "Set images.repository to %s, or provide the users with SSSD." (include "slurm.images.known" . | fromYaml).own)
      (.Values.pyxis.enabled | default false))) -}}
{{- end -}}
{{- end }}

{{- /* The value that provides the users. Call with the root context. */}}
{{- define "slurm.users.place" -}}
{{- if include "slurm.ldap" . -}}
  ldap
{{- else -}}
  {{- ternary "usersSecretRef" "users" (not (empty (.Values.usersSecretRef | default dict).name)) -}}
{{- end -}}
{{- end }}

{{- /* The places of SchedMD's images, which have no libnss-extrausers, separated by commas. Call with the root context. */}}
{{- define "slurm.users.without" -}}
{{- $root := . -}}
{{- $known := include "slurm.images.known" . | fromYaml -}}
{{- $without := list -}}
{{- range $path, $image := include "slurm.images.used" . | fromYaml -}}
  {{- $found := (include "slurm.images.daemon" (list $root $image $path) | fromYaml).image -}}
  {{- $repository := kindIs "map" $found | ternary ($found | default dict) (dict "repository" $found) -}}
  {{- if hasPrefix (printf "%s/" $known.schedmd) ($repository.repository | default "") -}}
    {{- $without = append $without $path -}}
  {{- end -}}
{{- end -}}
{{- join ", " $without -}}
{{- end }}

{{- /*
A line for a name or a number that the system has, or that is given twice. Call with a list: place, `uid` or `gid`, name, number,
and the places of the known numbers, to which it adds this one.
*/}}
{{- define "slurm.users.faults.id" -}}
{{- $place := index . 0 -}}
{{- $kind := index . 1 -}}
{{- $name := index . 2 -}}
{{- $number := index . 3 -}}
{{- $known := index . 4 -}}
{{- $system := list "root" "daemon" "bin" "sys" "sync" "games" "man" "lp" "mail" "news" "uucp" "proxy" "www-data" "backup" "list"
  "irc" "_apt" "nobody" "nogroup" "slurm" "sshd" "sssd" "munge" "mysql" "messagebus" "adm" "tty" "disk" "sudo" "shadow" "staff" "users" "operator" -}}
{{- if has $name $system -}}
  {{- include "slurm-charts.check.line" (list $place "the images have a user or group of this name" "Choose another name.") -}}
{{- else if not (regexMatch "^[a-z_][a-z0-9_.-]{0,31}$" $name) -}}
  {{- include "slurm-charts.check.line" (list $place "the operating system can't have this name"
    "Use up to 32 of a-z, 0-9 and `_.-`, and begin with a letter or `_`.") -}}
{{- end -}}
{{- $key := printf "%.0f" (float64 $number) -}}
{{- if has $key (list "65532" "65534" "65535") -}}
  {{- include "slurm-charts.check.line" (list (printf "%s.%s" $place $kind) (printf "%s is a number of the system" $key) "Choose another number.") -}}
{{- end -}}
{{- if hasKey $known $key -}}
  {{- include "slurm-charts.check.line" (list (printf "%s.%s" $place $kind) (printf "%s.%s is %s too" (get $known $key) $kind $key)
    "Give each a number of its own.") -}}
{{- else -}}
  {{- $_ := set $known $key $place -}}
{{- end -}}
{{- end }}
