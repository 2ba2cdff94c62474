{{- /*
Container images in jobs: Slurm's oci.conf, which calls slurm-oci-run of the slurmd image, and the volume of the unpacked images.
*/}}

{{- /* The folder of slurmd's container with the unpacked images. */}}
{{- define "slurm.containers.folder" -}}
/var/cache/slurm-containers
{{- end }}

{{- /* slurm-oci-run and the options of the site, as words that contain no quotes and no spaces. Call with the root context. */}}
{{- define "slurm.containers.command" -}}
{{- $containers := .Values.containers -}}
{{- $options := list
  (printf "--cache=%s" (include "slurm.containers.folder" .))
  (printf "--max-gib=%s" ($containers.cache.maxGiBPerUser | toJson))
  (printf "--max-days=%s" ($containers.cache.maxAgeDays | toJson))
  (printf "--tag-seconds=%s" ($containers.tagSeconds | toJson))
  (printf "--import-seconds=%s" ($containers.importSeconds | toJson))
  (printf "--default-registry=%s" $containers.defaultRegistry)
-}}
{{- range $containers.insecureRegistries -}}
  {{- $options = append $options (printf "--insecure-registry=%s" .) -}}
{{- end -}}
{{- range $containers.mounts -}}
  {{- $options = append $options (printf "--mount=%s" .) -}}
{{- end -}}
/usr/local/bin/slurm-oci-run {{ join " " $options }}
{{- end }}

{{- /*
plugstack.conf: the options of Pyxis, after the site's own plugins. They are omitted if a line loads Pyxis, which has the same
options. Call with a list: root context, plugstack.conf without them (may be empty).
*/}}
{{- define "slurm.containers.plugstackConf" -}}
{{- $root := index . 0 -}}
{{- $own := index . 1 | default "" -}}
{{- if $own }}{{ trimSuffix "\n" $own }}
{{ end -}}
{{- if not (or $root.Values.pyxis.enabled (include "slurm.pyxis.loadedBy" $own)) -}}
optional /usr/local/lib/slurm-containers/slurm_containers.so {{ include "slurm.containers.command" $root }}
{{ end -}}
{{- end }}

{{- /*
oci.conf. RunTimeRun is the only command. slurmstepd would run RunTimeQuery, RunTimeKill and RunTimeDelete as root, with the name of
the image as a part of shell text. The values that become a part of this shell text have no quotes and no spaces; see the schema.
Call with the root context.
*/}}
{{- define "slurm.containers.ociConf" -}}
# The values of `containers` of the chart slurm.
IgnoreFileConfigJson=true
ContainerPath=/run/slurm-oci
CreateEnvFile=null
EnvExclude="^(SLURM_CONF|SLURM_CONF_SERVER)="
RunTimeRun="exec /usr/bin/env -i {{ include "slurm.containers.command" . }} --step=%s --environment='%e' --image='%b' -- %@"
{{ end }}

{{- /* A nodeset with the volume of the unpacked images. Call with a list: root context, the nodeset. */}}
{{- define "slurm.withContainers" -}}
{{- $root := index . 0 -}}
{{- $cache := $root.Values.containers.cache -}}
{{- $set := index . 1 -}}
{{- $slurmd := $set.slurmd | default dict -}}
{{- $podSpec := $set.podSpec | default dict -}}
{{- $volume := dict "name" "container-images" -}}
{{- if $cache.existingClaim -}}
  {{- $_ := set $volume "persistentVolumeClaim" (dict "claimName" $cache.existingClaim) -}}
{{- else if $cache.hostPath -}}
  {{- $_ := set $volume "hostPath" (dict "path" $cache.hostPath "type" "DirectoryOrCreate") -}}
{{- else -}}
  {{- $_ := set $volume "emptyDir" dict -}}
{{- end -}}
{{- $mount := dict "name" "container-images" "mountPath" (include "slurm.containers.folder" $root) -}}
{{- $_ := set $podSpec "volumes" (append ($podSpec.volumes | default list) $volume) -}}
{{- $_ := set $slurmd "volumeMounts" (append ($slurmd.volumeMounts | default list) $mount) -}}
{{- toYaml (mergeOverwrite $set (dict "slurmd" $slurmd "podSpec" $podSpec)) -}}
{{- end }}

{{- /* A line for each value of `containers` that contradicts another one. Call with the root context. */}}
{{- define "slurm.faults.containers" -}}
{{- $containers := .Values.containers -}}
{{- if $containers.enabled -}}
  {{- if hasKey (.Values.configFiles | default dict) "oci.conf" -}}
    {{- include "slurm-charts.check.line" (list "configFiles" "oci.conf is written by the chart with containers.enabled"
      "Remove configFiles.oci.conf, or set containers.enabled to false.") -}}
  {{- end -}}
  {{- if .Values.controller.external -}}
    {{- include "slurm-charts.check.line" (list "containers.enabled" "workers get oci.conf from slurmctld, which is external"
      "Set containers.enabled to false.") -}}
  {{- end -}}
  {{- if and $containers.cache.existingClaim $containers.cache.hostPath -}}
    {{- include "slurm-charts.check.line" (list "containers.cache" "existingClaim and hostPath exclude each other" "Set one of them to null.") -}}
  {{- end -}}
  {{- range $place, $mount := $containers.mounts | default list -}}
    {{- if regexMatch "(^|/|:)[.][.](/|:|$)" $mount -}}
      {{- include "slurm-charts.check.line" (list (printf "containers.mounts[%d]" $place) (printf "`%s` contains `..`" $mount) "Set absolute paths.") -}}
    {{- else if regexMatch "^/srv(/|:|$)" $mount -}}
      {{- include "slurm-charts.check.line" (list (printf "containers.mounts[%d]" $place) (printf "`%s` is in /srv, which the container runtime uses itself" $mount)
        "Mount this folder elsewhere in the workers.") -}}
    {{- end -}}
  {{- end -}}
  {{- range $key, $set := include "slurm.nodesets" . | fromYaml -}}
    {{- $path := printf "nodesets.%s.slurmd.image" $key -}}
    {{- $found := include "slurm.images.daemon" (list $ ($set.slurmd | default dict).image $path) | fromYaml -}}
    {{- if and (kindIs "map" $found.image) (hasPrefix "ghcr.io/slinkyproject/" ($found.image.repository | default "")) -}}
      {{- include "slurm-charts.check.line" (list $path "SchedMD's images have no slurm-oci-run, which containers.enabled needs"
        (ternary "Set it to an image with slurm-oci-run and Pyxis, or containers.enabled to false."
          (printf "Set %s to this project's image, or to one with slurm-oci-run." $path) ($.Values.pyxis.enabled | default false))) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}
