{{- /*
The effective loginsets and nodesets: each enabled item merged over its defaults, as a YAML map by key.
Maps are merged, lists are replaced, null removes a default. The argument is the root context, which keeps the result: all
templates have the same one.
*/}}

{{- define "slurm.loginsets" -}}
{{- if not (hasKey . "loginsets") -}}
  {{- $_ := set . "loginsets" (include "slurm.loginsets.merged" .) -}}
{{- end -}}
{{- .loginsets -}}
{{- end }}

{{- define "slurm.loginsets.merged" -}}
{{- $sets := dict -}}
{{- range $key, $item := .Values.loginsets -}}
  {{- $set := mergeOverwrite (deepCopy $.Values.loginsetDefaults) (deepCopy $item) -}}
  {{- if $set.enabled -}}
    {{- if and $.Values.jail.enabled $.Values.jail.login -}}
      {{- $set = include "slurm.loginWithJail" (list $ $set) | fromYaml -}}
    {{- end -}}
    {{- $_ := set $sets $key $set -}}
  {{- end -}}
{{- end -}}
{{- toYaml $sets -}}
{{- end }}

{{- define "slurm.nodesets" -}}
{{- if not (hasKey . "nodesets") -}}
  {{- $_ := set . "nodesets" (include "slurm.nodesets.merged" .) -}}
{{- end -}}
{{- .nodesets -}}
{{- end }}

{{- define "slurm.nodesets.merged" -}}
{{- $sets := dict -}}
{{- $targets := list -}}
{{- with .Values.vendor.google -}}
  {{- range concat (.a3mega | default list) (.a3ultra | default list) }}{{ $targets = append $targets .targetNodeSet }}{{ end -}}
{{- end -}}
{{- range $key, $item := .Values.nodesets -}}
  {{- $set := mergeOverwrite (deepCopy $.Values.nodesetDefaults) (deepCopy $item) -}}
  {{- if $set.enabled -}}
    {{- if has $key $targets -}}
      {{- $set = include "slurm.withGoogleInstances" (list $ $key $set) | fromYaml -}}
    {{- end -}}
    {{- if $.Values.vendor.nvidia.dcgm.enabled -}}
      {{- $set = include "slurm.withJobMapping" (list $ $set) | fromYaml -}}
    {{- end -}}
    {{- if $.Values.containers.enabled -}}
      {{- $set = include "slurm.withContainers" (list $ $set) | fromYaml -}}
    {{- end -}}
    {{- if $.Values.jail.enabled -}}
      {{- $set = include "slurm.withJail" (list $ $set) | fromYaml -}}
    {{- end -}}
    {{- if $.Values.slurmBridge.guard.enabled -}}
      {{- $set = include "slurm.withGuard" $set | fromYaml -}}
    {{- end -}}
    {{- $_ := set $sets $key $set -}}
  {{- end -}}
{{- end -}}
{{- toYaml $sets -}}
{{- end }}

{{- /*
A nodeset with the folder in which dcgm-exporter finds the jobs of its GPUs, if it requests GPUs.
Call with a list: root context, the nodeset.
*/}}
{{- define "slurm.withJobMapping" -}}
{{- $dcgm := (index . 0).Values.vendor.nvidia.dcgm -}}
{{- $set := index . 1 -}}
{{- if include "slurm.asksForGpus" $set -}}
  {{- $slurmd := $set.slurmd | default dict -}}
  {{- $podSpec := $set.podSpec | default dict -}}
  {{- $volume := dict "name" "dcgm-job-mapping" "hostPath" (dict "path" $dcgm.jobMappingDir "type" "DirectoryOrCreate") -}}
  {{- $mount := dict "name" "dcgm-job-mapping" "mountPath" $dcgm.jobMappingDir -}}
  {{- $_ := set $podSpec "volumes" (append ($podSpec.volumes | default list) $volume) -}}
  {{- $_ := set $slurmd "volumeMounts" (append ($slurmd.volumeMounts | default list) $mount) -}}
  {{- $set = mergeOverwrite $set (dict "slurmd" $slurmd "podSpec" $podSpec) -}}
{{- end -}}
{{- toYaml $set -}}
{{- end }}

{{- /*
A nodeset whose Epilog (files/epilog-slurm-bridge.sh) sees the annotations of its pod, and by whose annotation the
Slurm Bridge knows that the Epilog waits. Call with the nodeset.
*/}}
{{- define "slurm.withGuard" -}}
{{- $metadata := .metadata | default dict -}}
{{- $slurmd := .slurmd | default dict -}}
{{- $annotations := merge (dict "scheduler.slinky.slurm.net/guard-epilog" "1") ($metadata.annotations | default dict) -}}
{{- $mount := dict "name" "podinfo" "mountPath" "/etc/podinfo" "readOnly" true -}}
{{- $_ := set $slurmd "volumeMounts" (append ($slurmd.volumeMounts | default list) $mount) -}}
{{- $_ := set $metadata "annotations" $annotations -}}
{{- toYaml (mergeOverwrite . (dict "slurmd" $slurmd "metadata" $metadata)) -}}
{{- end }}

{{- /* "true" if slurmd or the pod as a whole requests NVIDIA GPUs. Call with the nodeset. */}}
{{- define "slurm.asksForGpus" -}}
{{- $found := dig "enabled" false (.gpu | default dict) -}}
{{- range $resources := list (.slurmd | default dict).resources (.podSpec | default dict).resources -}}
  {{- range $kind := list "limits" "requests" -}}
    {{- if hasKey (get ($resources | default dict) $kind | default dict) "nvidia.com/gpu" }}{{ $found = true }}{{ end -}}
  {{- end -}}
{{- end -}}
{{- if $found }}true{{ end -}}
{{- end }}

{{- /* "true" if a pod of the release reads sssd.conf. */}}
{{- define "slurm.sssdUsed" -}}
{{- $used := not (empty (include "slurm.loginsets" . | fromYaml)) -}}
{{- range include "slurm.nodesets" . | fromYaml -}}
  {{- if dig "enabled" false (.ssh | default dict) }}{{ $used = true }}{{ end -}}
{{- end -}}
{{- if $used }}true{{ end -}}
{{- end }}
