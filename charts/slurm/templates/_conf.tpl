{{- /*
Slurm's configuration language: maps of values to `Key=Value` items, and the lines of slurm.conf that the chart adds.
*/}}

{{- /*
A value of a configuration map: booleans as Slurm spells them, lists joined by commas, numbers without exponent.
Call with a list: the value, where it stands in the values.
*/}}
{{- define "slurm.confValue" -}}
{{- $value := index . 0 -}}
{{- $path := index . 1 -}}
{{- $text := "" -}}
{{- if kindIs "bool" $value -}}
  {{- $text = ternary "YES" "NO" $value -}}
{{- else if kindIs "slice" $value -}}
  {{- $items := list -}}
  {{- range $value -}}
    {{- $items = append $items (include "slurm.confValue" (list . $path)) -}}
  {{- end -}}
  {{- $text = join "," $items -}}
{{- else if kindIs "string" $value -}}
  {{- $text = $value -}}
{{- else if not (kindIs "invalid" $value) -}}
  {{- $text = toJson $value -}}
{{- end -}}
{{- if contains "\n" $text -}}
  {{- fail (printf "%s: a value of slurm.conf is one line: remove the line break" $path) -}}
{{- end -}}
{{- $text -}}
{{- end }}

{{- /*
A configuration map as `Key=Value` items in the order of the keys; an item with null, "" or [] is omitted.
Call with a list: the map (may be null), the separator, the path of the map in the values.
*/}}
{{- define "slurm.confItems" -}}
{{- $separator := index . 1 -}}
{{- $path := index . 2 -}}
{{- $items := list -}}
{{- range $key, $value := index . 0 -}}
  {{- $text := include "slurm.confValue" (list $value (printf "%s.%s" $path $key)) -}}
  {{- if $text -}}
    {{- if and (eq $separator " ") (not (regexMatch `^("[^"]*"|'[^']*'|\S*)$` $text)) -}}
      {{- fail (printf "%s.%s: `%s` contains a space, which separates the items of the line: put it in quotes" $path $key $text) -}}
    {{- end -}}
    {{- $items = append $items (printf "%s=%s" $key $text) -}}
  {{- end -}}
{{- end -}}
{{- join $separator $items -}}
{{- end }}

{{- /*
The text of a raw string, else of its map. Call with a list: raw (may be null), map, separator, the path of the map.
*/}}
{{- define "slurm.conf" -}}
{{- $raw := index . 0 -}}
{{- if $raw -}}
  {{- $raw -}}
{{- else -}}
  {{- include "slurm.confItems" (rest .) -}}
{{- end -}}
{{- end }}

{{- /* The PartitionName lines of `partitions`. Call with the root context. */}}
{{- define "slurm.partitionLines" -}}
{{- $lines := list -}}
{{- range $name, $partition := .Values.partitions -}}
  {{- if ($partition | default dict).enabled -}}
    {{- $options := include "slurm.conf" (list $partition.config $partition.configMap " " (printf "partitions.%s.configMap" $name)) -}}
    {{- $lines = append $lines (printf "PartitionName=%s Nodes=%s %s" $name ($partition.nodesets | uniq | sortAlpha | join ",") $options | trim) -}}
  {{- end -}}
{{- end -}}
{{- join "\n" $lines -}}
{{- end }}

{{- /* "true" if the values define a partition. Call with the root context. */}}
{{- define "slurm.hasPartition" -}}
{{- $found := or (include "slurm.partitionLines" .) (contains "PartitionName=" (.Values.controller.extraConf | default "")) -}}
{{- range include "slurm.nodesets" . | fromYaml -}}
  {{- if (.partition | default dict).enabled }}{{ $found = true }}{{ end -}}
{{- end -}}
{{- if $found }}true{{ end -}}
{{- end }}

{{- /* The lines that the chart adds to slurm.conf. Call with the root context. */}}
{{- define "slurm.slurmConf" -}}
{{- $controller := .Values.controller -}}
{{- $lines := list
  (include "slurm.conf" (list $controller.extraConf $controller.extraConfMap "\n" "controller.extraConfMap") | trimSuffix "\n")
  (include "slurm.partitionLines" .)
-}}
{{- $lines | compact | join "\n" -}}
{{- end }}

{{- /*
The data of a ConfigMap of scripts, each name with the prefix of its kind of scripts.
Call with a list: the map of scripts, the prefix.
*/}}
{{- define "slurm.scripts" -}}
{{- $prefix := index . 1 -}}
{{- $data := dict -}}
{{- range $name, $script := index . 0 -}}
  {{- $_ := set $data (printf "%s%s" $prefix $name) $script -}}
{{- end -}}
{{- toYaml $data -}}
{{- end }}

{{- /*
The references to ConfigMaps of scripts, as YAML, empty without scripts. Call with a list: root context, name of the list in
the custom resource and in the values, the map of scripts, the name of the release's ConfigMap of them, and optionally the
names of the ConfigMaps with dcgm-exporter's script and with the one for the Slurm Bridge.
*/}}
{{- define "slurm.scriptRefs" -}}
{{- $root := index . 0 -}}
{{- $field := index . 1 -}}
{{- $refs := list -}}
{{- if index . 2 -}}
  {{- $refs = append $refs (dict "name" (include "slurm.configMap.name" (list $root (index . 3)))) -}}
{{- end -}}
{{- $refs = concat $refs (get $root.Values $field | default list) -}}
{{- if and (gt (len .) 4) $root.Values.vendor.nvidia.dcgm.enabled -}}
  {{- $refs = append $refs (dict "name" (include "slurm.configMap.name" (list $root (index . 4)))) -}}
{{- end -}}
{{- if and (gt (len .) 5) $root.Values.slurmBridge.guard.enabled -}}
  {{- $refs = append $refs (dict "name" (include "slurm.configMap.name" (list $root (index . 5)))) -}}
{{- end -}}
{{- with $refs | uniq -}}
  {{- dict $field . | toYaml -}}
{{- end -}}
{{- end }}
