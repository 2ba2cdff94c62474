{{- /*
The images of Slurm's daemons. What the values of an image omit comes from `images` of the values: by default the images of this
project, with the chart's appVersion as tag. A tag or a repository of SchedMD's alone selects SchedMD's image. With pyxis.enabled,
slurmd and login are the images with Pyxis, which this project doesn't have.
*/}}

{{- /* Where the images of this project and those of SchedMD are, and the tag of SchedMD's for the chart's version of Slurm. */}}
{{- define "slurm.images.known" -}}
own: {{ include "slurm-charts.ownImages" . }}
schedmd: ghcr.io/slinkyproject
schedmdTag: 26.05-ubuntu26.04
{{- end }}

{{- /* "true" if a tag ends like those of SchedMD's images: VERSION-DISTRIBUTION. Call with the tag (may be null). */}}
{{- define "slurm.images.isSchedmdTag" -}}
{{- if regexMatch "-(ubuntu|rockylinux)[0-9]" (. | default "" | toString) }}true{{ end -}}
{{- end }}

{{- /*
The image of a daemon, as YAML: under `image` a map or a string for `slurm.image`, or under `problem` and `remedy` why the values
don't tell which one it is. Call with a list: root context, the image in the values (null, a string, or a map), its path in the
values. The last key but one of the path is the image's name.
*/}}
{{- define "slurm.images.daemon" -}}
{{- $root := index . 0 -}}
{{- $image := index . 1 -}}
{{- $path := index . 2 -}}
{{- $known := include "slurm.images.known" $root | fromYaml -}}
{{- $set := $root.Values.images -}}
{{- $name := splitList "." $path | initial | last -}}
{{- $pyxis := and $root.Values.pyxis.enabled (has $name (list "slurmd" "login")) -}}
{{- if $pyxis }}{{ $name = printf "%s-pyxis" $name }}{{ end -}}
{{- if kindIs "invalid" $image }}{{ $image = dict }}{{ end -}}
{{- $result := dict "image" $image -}}
{{- if kindIs "map" $image -}}
  {{- $repository := $image.repository -}}
  {{- $tag := $image.tag -}}
  {{- if kindIs "invalid" $repository -}}
    {{- $repository = printf "%s/%s" $set.repository $name -}}
    {{- if eq $set.repository $known.own -}}
      {{- $schedmdTag := include "slurm.images.isSchedmdTag" ($tag | default $set.tag) -}}
      {{- if and $pyxis (or $tag $set.tag $image.digest) (not $schedmdTag) -}}
        {{- $result = dict
          "problem" "this project has no image with Pyxis, and the tag or digest isn't one of SchedMD's"
          "remedy" (printf "Set %s.tag, for example to \"%s\", or the image to one of yours." $path $known.schedmdTag) -}}
      {{- else if or $pyxis $schedmdTag -}}
        {{- $repository = printf "%s/%s" $known.schedmd $name -}}
      {{- else if and $image.digest (not $tag) (not $set.tag) -}}
        {{- $result = dict
          "problem" "a digest alone doesn't tell which image it is of"
          "remedy" (printf "Set %s.repository to %s/%s or to %s/%s." $path $known.own $name $known.schedmd $name) -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
  {{- if and (kindIs "invalid" $tag) (not $image.digest) -}}
    {{- $schedmdSet := include "slurm.images.isSchedmdTag" $set.tag -}}
    {{- $common := ($root.Values.global | default dict).imageRepository -}}
    {{- $below := and $common (hasPrefix (printf "%s/" (trimSuffix "/" $common)) $repository) -}}
    {{- if hasPrefix (printf "%s/" $known.schedmd) $repository -}}
      {{- $tag = ternary $set.tag $known.schedmdTag (eq $schedmdSet "true") -}}
    {{- else if hasPrefix (printf "%s/" $known.own) $repository -}}
      {{- $tag = ternary $root.Chart.AppVersion ($set.tag | default $root.Chart.AppVersion) (eq $schedmdSet "true") -}}
    {{- else if or $set.tag (not $repository) (hasPrefix (printf "%s/" $set.repository) $repository) $below -}}
      {{- $tag = $set.tag | default $root.Chart.AppVersion -}}
    {{- else -}}
      {{- $result = dict
        "problem" (printf "`%s` has no tag, and may be a copy of an image of this project or of SchedMD's" $repository)
        "remedy" (printf "Set %s.tag, for example to \"%s\" or to \"%s\"." $path $root.Chart.AppVersion $known.schedmdTag) -}}
    {{- end -}}
  {{- end -}}
  {{- if not $result.problem -}}
    {{- $result = dict "image" (dict "repository" $repository "tag" $tag "digest" $image.digest) -}}
  {{- end -}}
{{- end -}}
{{- toYaml $result -}}
{{- end }}

{{- /* The images of the daemons in the values, by their paths: of all that the release runs. Call with the root context. */}}
{{- define "slurm.images.used" -}}
{{- $values := .Values -}}
{{- $images := dict -}}
{{- if not $values.controller.external -}}
  {{- $_ := set $images "controller.slurmctld.image" ($values.controller.slurmctld | default dict).image -}}
{{- end -}}
{{- if $values.restapi.enabled -}}
  {{- $_ := set $images "restapi.slurmrestd.image" ($values.restapi.slurmrestd | default dict).image -}}
{{- end -}}
{{- if and $values.accounting.enabled (not $values.accounting.external) -}}
  {{- $_ := set $images "accounting.slurmdbd.image" ($values.accounting.slurmdbd | default dict).image -}}
{{- end -}}
{{- range $key, $set := include "slurm.loginsets" . | fromYaml -}}
  {{- $_ := set $images (printf "loginsets.%s.login.image" $key) ($set.login | default dict).image -}}
{{- end -}}
{{- range $key, $set := include "slurm.nodesets" . | fromYaml -}}
  {{- $_ := set $images (printf "nodesets.%s.slurmd.image" $key) ($set.slurmd | default dict).image -}}
{{- end -}}
{{- toYaml $images -}}
{{- end }}

{{- /* The images of the daemons that the release runs, as pods have them, as a YAML list. Call with the root context. */}}
{{- define "slurm.images.all" -}}
{{- $root := . -}}
{{- $images := list -}}
{{- range $path, $image := include "slurm.images.used" . | fromYaml -}}
  {{- $found := include "slurm.images.daemon" (list $root $image $path) | fromYaml -}}
  {{- $images = append $images (include "slurm.image" (list $root $found.image $path)) -}}
{{- end -}}
{{- toYaml $images -}}
{{- end }}

{{- /* A line for each image that the values don't tell, and for sssd.conf if no sssd reads it. Call with the root context. */}}
{{- define "slurm.images.faults" -}}
{{- $root := . -}}
{{- $known := include "slurm.images.known" . | fromYaml -}}
{{- $nodesets := include "slurm.nodesets" . | fromYaml -}}
{{- $without := list -}}
{{- range $path, $image := include "slurm.images.used" . | fromYaml -}}
  {{- $found := include "slurm.images.daemon" (list $root $image $path) | fromYaml -}}
  {{- if $found.problem -}}
    {{- include "slurm-charts.check.line" (list $path $found.problem $found.remedy) -}}
  {{- else -}}
    {{- $reference := kindIs "map" $found.image | ternary $found.image (dict "repository" $found.image) -}}
    {{- $keys := splitList "." $path -}}
    {{- $sshd := or (eq (first $keys) "loginsets")
      (and (eq (first $keys) "nodesets") (dig "enabled" false ((get $nodesets (index $keys 1) | default dict).ssh | default dict))) -}}
    {{- if and $sshd (hasPrefix (printf "%s/" $known.own) ($reference.repository | default "")) -}}
      {{- $without = append $without $path -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $sssd := $root.Values.sssd -}}
{{- $providers := list -}}
{{- range regexFindAll `(?m)^[ \t]*id_provider[ \t]*=[ \t]*[a-z]+` ($sssd.conf | default "") -1 -}}
  {{- $providers = append $providers (splitList "=" . | last | trim) -}}
{{- end -}}
{{- if and $without (or $sssd.secretRef.name (without $providers "proxy" "files")) -}}
  {{- include "slurm-charts.check.line" (list (ternary "sssd.secretRef" "sssd.conf" (not (empty $sssd.secretRef.name)))
    (printf "the images of this project have no sssd, so its users would not exist (%s)" (join ", " $without))
    (printf "Set images.repository to %s, or set these images to images with sssd, or ask the directory with `ldap` instead." $known.schedmd)) -}}
{{- end -}}
{{- end }}
