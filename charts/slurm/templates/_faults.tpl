{{- /*
What no rule of values-rules.json can describe, because several values are concerned. The argument is the root context.
*/}}

{{- /* A line for each fault of the values. */}}
{{- define "slurm.faults" -}}
{{- $controller := .Values.controller -}}
{{- $nodesets := include "slurm.nodesets" . | fromYaml -}}
{{- range $name := list "slurm.conf" "slurmdbd.conf" -}}
  {{- if hasKey ($.Values.configFiles | default dict) $name -}}
    {{- include "slurm-charts.check.line" (list "configFiles" (printf "%s is written by the operator" $name)
      (printf "Add lines to it with %s.extraConf." (eq $name "slurm.conf" | ternary "controller" "accounting"))) -}}
  {{- end -}}
{{- end -}}
{{- include "slurm.faults.topologies" . -}}
{{- include "slurm.faults.fullname" . -}}
{{- include "slurm.images.faults" . -}}
{{- range $key, $set := include "slurm.loginsets" . | fromYaml -}}
  {{- include "slurm.faults.name" (list (printf "loginsets.%s" $key) $key (include "slurm.loginset.name" (list $ $key))) -}}
{{- end -}}
{{- range $key, $set := $nodesets -}}
  {{- include "slurm.faults.name" (list (printf "nodesets.%s" $key) $key (include "slurm.nodeset.name" (list $ $key))) -}}
{{- end -}}
{{- range $key, $token := .Values.tokens -}}
  {{- if dig "enabled" true $token -}}
    {{- include "slurm.faults.name" (list (printf "tokens.%s" $key) $key (include "slurm.token.name" (list $ $key))) -}}
  {{- end -}}
{{- end -}}
{{- include "slurm.faults.exporter" . -}}
{{- include "slurm.users.faults" . -}}
{{- $declared := .Values.accounting.declared | default dict -}}
{{- $accountUsers := dict -}}
{{- range $name, $user := .Values.users -}}
  {{- if $user.accounts }}{{ $_ := set $accountUsers $name $user }}{{ end -}}
{{- end -}}
{{- range $place, $entries := dict "users" $accountUsers "accounting.declared.accounts" $declared.accounts "accounting.declared.qos" $declared.qos "accounting.declared.reservations" $declared.reservations -}}
  {{- if and $entries (not $.Values.accounting.enabled) -}}
    {{- include "slurm-charts.check.line" (list $place "without accounting, no slurmdbd can have them" "Set accounting.enabled.") -}}
  {{- end -}}
{{- end -}}
{{- include "slurm.faults.archive" . -}}
{{- include "slurm.faults.backup" . -}}
{{- include "slurm.faults.checks" . -}}
{{- include "slurm.faults.ldap" . -}}
{{- include "slurm.faults.containers" . -}}
{{- include "slurm.faults.jail" . -}}
{{- include "slurm.faults.pyxis" . -}}
{{- if and .Values.slurmBridge.guard.enabled $controller.external -}}
  {{- include "slurm-charts.check.line" (list "slurmBridge.guard.enabled" "workers get their Epilog from slurmctld, which is external"
    "Set slurmBridge.guard.enabled to false, and use external nodes for the Slurm Bridge.") -}}
{{- end -}}
{{- $persistence := $controller.persistence | default dict -}}
{{- if and (not $controller.external) ($controller.ha | default dict).enabled (not (and $persistence.enabled $persistence.existingClaim)) -}}
  {{- include "slurm-charts.check.line" (list "controller.ha.enabled" "standbys need a volume that all slurmctld share"
    "Set controller.persistence.existingClaim to a claim with access mode ReadWriteMany.") -}}
{{- end -}}
{{- range $vendor := list "a3mega" "a3ultra" -}}
  {{- range $place, $instances := get ($.Values.vendor.google | default dict) $vendor | default list -}}
    {{- if not (hasKey ($.Values.nodesets | default dict) $instances.targetNodeSet) -}}
      {{- include "slurm-charts.check.line" (list (printf "vendor.google.%s[%d].targetNodeSet" $vendor $place)
        (printf "`%s` is not a NodeSet" $instances.targetNodeSet)
        (printf "Set a key of nodesets%s." (empty $.Values.nodesets | ternary "" (printf ": %s" (keys $.Values.nodesets | sortAlpha | join ", "))))) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if not $controller.external -}}
  {{- include "slurm.faults.partitions" (list . $nodesets) -}}
  {{- if include "slurm.google.config" . -}}
    {{- range $name, $set := $nodesets -}}
      {{- if include "slurm.google.gpuLines" ($set.gpu | default dict) -}}
        {{- include "slurm-charts.check.line" (list (printf "nodesets.%s.gpu" $name) "the gres.conf of vendor.google would replace the lines of this NodeSet"
          "Set configFiles.gres.conf to `AutoDetect=nvidia` and the lines of this NodeSet.") -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{- /* A line for each topology that is no tree or block, or both, for a second default, and for a file that they replace. */}}
{{- define "slurm.faults.topologies" -}}
{{- $defaults := list -}}
{{- range $name, $topology := .Values.topologies | default dict -}}
  {{- if eq (empty $topology.tree) (empty $topology.block) -}}
    {{- include "slurm-charts.check.line" (list (printf "topologies.%s" $name) (empty $topology.tree | ternary "tree and block are missing" "has tree and block") "Set one of the two.") -}}
  {{- end -}}
  {{- if $topology.clusterDefault }}{{ $defaults = append $defaults $name }}{{ end -}}
{{- end -}}
{{- if gt (len $defaults) 1 -}}
  {{- include "slurm-charts.check.line" (list "topologies" (printf "%s have clusterDefault" (join " and " $defaults)) "Set it for one of them.") -}}
{{- end -}}
{{- range $name := list "topology.yaml" "topology.conf" -}}
  {{- if and $.Values.topologies (hasKey ($.Values.configFiles | default dict) $name) -}}
    {{- include "slurm-charts.check.line" (list "topologies" (printf "configFiles has %s, too" $name) (printf "Remove configFiles.%s, or topologies." $name)) -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{- /* A line if slurm.conf names another plugstack.conf than the chart's. Call with the root context. */}}
{{- define "slurm.faults.plugStackConfig" -}}
{{- with regexFind `(?im)^[ \t]*PlugStackConfig[ \t]*=[ \t]*[^\s#]+` (include "slurm.slurmConf" .) -}}
  {{- include "slurm-charts.check.line" (list (ternary "controller.extraConfMap" "controller.extraConf" (empty $.Values.controller.extraConf))
    (printf "with `%s`, workers don't read the plugin's line" (trim .)) "Remove it, and set configFiles.\"plugstack.conf\".") -}}
{{- end -}}
{{- end }}

{{- /*
A line for a name of the Controller with which its Services or pods can't exist: Services have the name, followed by
"-controller-internal" and more. Pods of a StatefulSet have its name, followed by a hash, as a label of at most 63 characters.
*/}}
{{- define "slurm.faults.fullname" -}}
{{- $name := include "slurm.fullname" . -}}
{{- $daemons := not (and .Values.controller.external (or .Values.accounting.external (not .Values.accounting.enabled))) -}}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) -}}
  {{- include "slurm-charts.check.line" (list "fullnameOverride" (printf "the name `%s` of the Controller becomes part of the names of Services" $name)
    "Set a name of a-z, 0-9 and, within, `-`, which begins with a letter.") -}}
{{- else if gt (len $name) ($daemons | ternary 41 55) -}}
  {{- include "slurm-charts.check.line" (list "fullnameOverride"
    (printf "the name `%s` of the Controller has %d characters, and may have %d" $name (len $name) ($daemons | ternary 41 55))
    "Set a shorter name.") -}}
{{- end -}}
{{- end }}

{{- /*
A line for a name that is no part of a host name. Pods have the name, followed by "-0" and more, as a label of at most 63
characters. Call with a list: the place of the key in the values, the key, the name.
*/}}
{{- define "slurm.faults.name" -}}
{{- if not (regexMatch "^[a-z0-9]([-a-z0-9]*[a-z0-9])?$" (index . 1)) -}}
  {{- include "slurm-charts.check.line" (list (index . 0) "a key becomes part of host names" "Use a-z, 0-9 and, within, `-`.") -}}
{{- else if gt (len (index . 2)) 61 -}}
  {{- include "slurm-charts.check.line" (list (index . 0) (printf "the name `%s` has more than 61 characters" (index . 2))
    "Shorten the key, or set fullnameOverride.") -}}
{{- end -}}
{{- end }}

{{- /*
A line for each partition of nodesets that don't exist, and for each that is defined in several places. DEFAULT is no partition:
Slurm accepts any number of such lines. Call with a list: root context, the effective nodesets.
*/}}
{{- define "slurm.faults.partitions" -}}
{{- $values := (index . 0).Values -}}
{{- $nodesets := index . 1 -}}
{{- $places := dict -}}
{{- range $name, $partition := $values.partitions -}}
  {{- if and (kindIs "map" $partition) (not $partition.nodesets) -}}
    {{- include "slurm-charts.check.line" (list (printf "partitions.%s.nodesets" $name) "the list is empty" "Name keys of nodesets, or ALL.") -}}
  {{- end -}}
  {{- if ($partition | default dict).enabled -}}
    {{- $_ := set $places $name (list (printf "partitions.%s" $name)) -}}
    {{- range $nodeset := $partition.nodesets -}}
      {{- if not (or (eq $nodeset "ALL") (hasKey $nodesets $nodeset)) -}}
        {{- include "slurm-charts.check.line" (list (printf "partitions.%s.nodesets" $name) (printf "`%s` is not an enabled NodeSet" $nodeset)
          "Name keys of nodesets, or ALL.") -}}
      {{- end -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- range $name, $set := $nodesets -}}
  {{- if ($set.partition | default dict).enabled -}}
    {{- $_ := set $places $name (append (get $places $name | default list) (printf "nodesets.%s.partition" $name)) -}}
  {{- end -}}
{{- end -}}
{{- range regexFindAll `(?im)^[ \t]*PartitionName=[^\s#]+` ($values.controller.extraConf | default "") -1 -}}
  {{- $name := trim . | splitList "=" | last -}}
  {{- $_ := set $places $name (append (get $places $name | default list) "controller.extraConf") -}}
{{- end -}}
{{- range $name, $found := $places -}}
  {{- if and (gt (len $found) 1) (ne (upper $name) "DEFAULT") -}}
    {{- include "slurm-charts.check.line" (list (first $found) (printf "the partition `%s` is also defined in %s" $name (rest $found | uniq | join " and "))
      "Slurm accepts one partition of each name: remove one of them.") -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{- /* A line for each map that has no effect, because raw configuration replaces it. */}}
{{- define "slurm.replacedMaps" -}}
{{- $pairs := list
  (list "controller.extraConf" .Values.controller.extraConf "controller.extraConfMap" .Values.controller.extraConfMap)
-}}
{{- if .Values.accounting.enabled -}}
{{- $pairs = append $pairs (list "accounting.extraConf" .Values.accounting.extraConf "accounting.extraConfMap" .Values.accounting.extraConfMap) -}}
{{- end -}}
{{- range $name, $set := include "slurm.nodesets" . | fromYaml -}}
{{- $path := printf "nodesets.%s" $name -}}
{{- $pairs = append $pairs (list (printf "%s.extraConf" $path) $set.extraConf (printf "%s.extraConfMap" $path) $set.extraConfMap) -}}
{{- with $set.partition -}}
{{- if .enabled -}}
{{- $pairs = append $pairs (list (printf "%s.partition.config" $path) .config (printf "%s.partition.configMap" $path) .configMap) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- range $name, $partition := .Values.partitions -}}
{{- if ($partition | default dict).enabled -}}
{{- $path := printf "partitions.%s" $name -}}
{{- $pairs = append $pairs (list (printf "%s.config" $path) $partition.config (printf "%s.configMap" $path) $partition.configMap) -}}
{{- end -}}
{{- end -}}
{{- range $pairs -}}
{{- if and (index . 1) (index . 3) }}
  {{ index . 0 }} replaces {{ index . 2 }} ({{ keys (index . 3) | sortAlpha | join ", " }})
{{- end -}}
{{- end -}}
{{- end }}

{{- /* A line for each name that the subchart slurm-exporter, which doesn't see these values, can't derive. */}}
{{- define "slurm.faults.exporter" -}}
{{- if (.Values.exporter | default dict).enabled -}}
  {{- $exporter := get .Values "slurm-exporter" | default dict -}}
  {{- $own := contains "slurm" .Release.Name | ternary .Release.Name (printf "%s-slurm" .Release.Name) | trunc 63 | trimSuffix "-" -}}
  {{- $cluster := include "slurm.fullname" . -}}
  {{- if ne ($exporter.cluster | default $own) $cluster -}}
    {{- include "slurm-charts.check.line" (list "slurm-exporter.cluster" (printf "the Controller has the name `%s`" $cluster) (printf "Set `%s`." $cluster)) -}}
  {{- end -}}
  {{- $namespace := include "slurm.namespace" . -}}
  {{- if ne ($exporter.namespaceOverride | default .Release.Namespace) $namespace -}}
    {{- include "slurm-charts.check.line" (list "slurm-exporter.namespaceOverride" (printf "the cluster is in the namespace `%s`" $namespace) (printf "Set `%s`." $namespace)) -}}
  {{- end -}}
  {{- $key := include "slurm.jwtKeyRef" . | fromYaml -}}
  {{- $given := dig "exporter" "token" "jwtKeyRef" dict $exporter -}}
  {{- if and (not (dig "exporter" "secretName" "" $exporter)) (or (ne ($given.name | default (printf "%s-auth-jwt" $cluster)) $key.name) (ne ($given.key | default "jwt.key") $key.key)) -}}
    {{- include "slurm-charts.check.line" (list "slurm-exporter.exporter.token.jwtKeyRef" (printf "jwt.key is in the Secret `%s`, key `%s`" $key.name $key.key) "Set both." ) -}}
  {{- end -}}
  {{- if not .Values.restapi.enabled -}}
    {{- if not (dig "exporter" "url" "" $exporter) -}}
      {{- include "slurm-charts.check.line" (list "exporter.enabled" "this release has no slurmrestd" "Set restapi.enabled to true, or slurm-exporter.exporter.url to the URL of your own.") -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}
