{{- /*
Pyxis of the images: the line of plugstack.conf that loads it, and the values that contradict it. For the images themselves see
`slurm.images.daemon`.
*/}}

{{- /* "true" if a line of plugstack.conf loads Pyxis. Slurm reads no line beyond `#`. Call with plugstack.conf (may be empty). */}}
{{- define "slurm.pyxis.loadedBy" -}}
{{- if regexMatch `(?m)^[ \t]*(include|optional|required)[ \t]+[^ \t\n#]*pyxis` (. | default "") }}true{{ end -}}
{{- end }}

{{- /*
plugstack.conf with Pyxis, after the site's own plugins. A line of the site's that loads Pyxis already is the only one, because
Slurm accepts each option once. Call with a list: root context, the site's plugstack.conf (may be empty).
*/}}
{{- define "slurm.pyxis.plugstackConf" -}}
{{- $root := index . 0 -}}
{{- $own := index . 1 | default "" -}}
{{- $include := $root.Values.pyxis.include -}}
{{- if $own }}{{ trimSuffix "\n" $own }}
{{ end -}}
{{- $included := regexMatch (printf `(?m)^[ \t]*include[ \t]+%s([ \t#]|$)` (regexQuoteMeta $include)) $own -}}
{{- if not (or $included (include "slurm.pyxis.loadedBy" $own)) -}}
include {{ $include }}
{{ end -}}
{{- end }}

{{- /* A line for each value with which no job could use Pyxis. Call with the root context. */}}
{{- define "slurm.faults.pyxis" -}}
{{- if .Values.pyxis.enabled -}}
  {{- if .Values.controller.external -}}
    {{- include "slurm-charts.check.line" (list "pyxis.enabled" "workers get plugstack.conf from slurmctld, which is external"
      "Set pyxis.enabled to false, and the images of workers and login nodes to ones with Pyxis.") -}}
  {{- end -}}
  {{- if not .Values.jail.enabled -}}
    {{- include "slurm.faults.plugStackConfig" . -}}
  {{- end -}}
  {{- $with := false -}}
  {{- $without := list -}}
  {{- range $key, $set := include "slurm.nodesets" . | fromYaml -}}
    {{- $slurmd := $set.slurmd | default dict -}}
    {{- $context := $slurmd.securityContext | default dict -}}
    {{- $added := ($context.capabilities | default dict).add | default list -}}
    {{- if and (eq (toString $context.privileged) "false") (not (has "SYS_ADMIN" $added)) (not (has "ALL" $added)) -}}
      {{- include "slurm-charts.check.line" (list (printf "nodesets.%s.slurmd.securityContext.privileged" $key)
        "enroot can't create containers in an unprivileged slurmd" "Set it to true, or add the capability SYS_ADMIN.") -}}
    {{- end -}}
    {{- $path := printf "nodesets.%s.slurmd.image" $key -}}
    {{- $image := (include "slurm.images.daemon" (list $ $slurmd.image $path) | fromYaml).image -}}
    {{- $repository := (kindIs "map" $image | ternary $image (dict "repository" $image)).repository | default "" -}}
    {{- if or (hasPrefix (printf "%s/" (include "slurm-charts.ownImages" $)) $repository)
      (regexMatch "^ghcr[.]io/slinkyproject/slurmd([:@]|$)" $repository) -}}
      {{- $without = append $without $path -}}
    {{- else -}}
      {{- $with = true -}}
    {{- end -}}
  {{- end -}}
  {{- if and $without (not $with) -}}
    {{- include "slurm-charts.check.line" (list (first $without) "no NodeSet has an image with Pyxis"
      (printf "Set %s.repository to null, or to an image with Pyxis." (first $without))) -}}
  {{- end -}}
{{- end -}}
{{- end }}
