{{- /*
General helpers. The comment of each describes its arguments. Helpers with more than one argument take a list.
Names of objects are in _names.tpl, the effective loginsets and nodesets in _sets.tpl, Slurm's configuration lines in _conf.tpl,
the images of Slurm's daemons in _images.tpl.

A helper returns text. To return a map, it returns YAML for `fromYaml`.
*/}}

{{- /* Name of the chart. Call with the root context. */}}
{{- define "slurm.name" -}}
{{- include "slurm-charts.name" . -}}
{{- end }}

{{- /* Name and version of the chart, as a label value. Call with the root context. */}}
{{- define "slurm.chart" -}}
{{- include "slurm-charts.chart" . -}}
{{- end }}

{{- /*
Labels of every object. Call with the root context.
Never use them on a pod or in a selector: they change with the chart's version.
*/}}
{{- define "slurm.labels" -}}
helm.sh/chart: {{ include "slurm.chart" . }}
app.kubernetes.io/part-of: slurm
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end }}

{{- /*
Labels that the operator puts on the pods of a component. Call with a list: Slurm daemon, name of the custom resource.
*/}}
{{- define "slurm.selectorLabels" -}}
app.kubernetes.io/name: {{ index . 0 }}
app.kubernetes.io/instance: {{ index . 1 }}
{{- end }}

{{- /*
Labels that the operator puts on the pods of all LoginSets (`login`) or NodeSets (`slurmd`) of a Controller. Call with a list:
Slurm daemon, name of the Controller.
*/}}
{{- define "slurm.memberLabels" -}}
app.kubernetes.io/name: {{ index . 0 }}
slinky.slurm.net/cluster: {{ index . 1 }}
{{- end }}

{{- /*
Labels that show to which program of the cluster an object belongs. They are those of the pods of the program, so that the
operator, which copies the labels of a custom resource to its pods, changes no pod. Call with a list: program, name of the
custom resource.
*/}}
{{- define "slurm.identityLabels" -}}
{{- $components := dict "slurmctld" "controller" "slurmdbd" "accounting" "slurmrestd" "restapi" "slurmd" "worker" "mariadb" "database" -}}
{{- include "slurm.selectorLabels" . }}
app.kubernetes.io/component: {{ get $components (first .) | default (first .) }}
{{- end }}

{{- /*
The content of an object's metadata. Call with a list: root context, name of the object, the program that it belongs to, and
optionally a map of labels and annotations, and the name of the custom resource (default: the Controller's).
*/}}
{{- define "slurm.metadata" -}}
{{- $root := index . 0 -}}
{{- $extra := dict -}}
{{- $instance := include "slurm.fullname" $root -}}
{{- if gt (len .) 3 }}{{ $extra = index . 3 | default dict }}{{ end -}}
{{- if gt (len .) 4 }}{{ $instance = index . 4 }}{{ end -}}
{{- $identity := include "slurm.identityLabels" (list (index . 2) $instance) | fromYaml -}}
name: {{ index . 1 }}
namespace: {{ include "slurm.namespace" $root }}
labels:
  {{- mergeOverwrite (dict) ($extra.labels | default dict) $identity (include "slurm.labels" $root | fromYaml) | toYaml | nindent 2 }}
{{- with $extra.annotations }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /*
The keys of a map that aren't empty, as YAML. null and an empty map, list or string are empty, 0 and false are not.
Call with a list: the map (may be null), the keys (default: all of the map). The result is empty if all keys are.
*/}}
{{- define "slurm.fields" -}}
{{- $map := index . 0 | default dict -}}
{{- $fields := dict -}}
{{- range $key := (rest . | default (keys $map)) -}}
  {{- $value := get $map $key -}}
  {{- if or $value (kindIs "bool" $value) (has (kindOf $value) (list "int" "int64" "float64")) -}}
    {{- $_ := set $fields $key $value -}}
  {{- end -}}
{{- end -}}
{{- if $fields }}{{ toYaml $fields }}{{ end -}}
{{- end }}

{{- /*
An image reference. Call with a list: root context, the value (a string, or a map of repository, tag and digest), and its path
in the values. A digest overrides a tag.
*/}}
{{- define "slurm.image" -}}
{{- $image := index . 1 -}}
{{- $path := index . 2 -}}
{{- $reference := $image -}}
{{- if kindIs "map" $image -}}
  {{- $repository := $image.repository | required (printf "image repository is required: set %s.repository" $path) -}}
  {{- if $image.digest -}}
    {{- $reference = printf "%s@%s" $repository $image.digest -}}
  {{- else -}}
    {{- $reference = printf "%s:%v" $repository ($image.tag | required (printf "image tag is required: set %s.tag or %s.digest" $path $path)) -}}
  {{- end -}}
{{- end -}}
{{- include "slurm-charts.atRegistry" (list (index . 0) ($reference | required (printf "image repository is required: set %s" $path))) -}}
{{- end }}

{{- /*
A container override of a custom resource: the whole map of the values, its image as one string, the chart's pull policy.
Call with a list: root context, the map (may be null), its path in the values, whether it is a daemon's. Without an image, a
daemon has the one of `images` in the values (_images.tpl), and another container the operator's own.
*/}}
{{- define "slurm.container" -}}
{{- $root := index . 0 -}}
{{- $container := index . 1 | default dict -}}
{{- $path := index . 2 -}}
{{- $daemon := index . 3 -}}
{{- $result := include "slurm.fields" (list (omit $container "image")) | fromYaml -}}
{{- $image := $container.image -}}
{{- if $daemon -}}
  {{- $image = get (include "slurm.images.daemon" (list $root $image (printf "%s.image" $path)) | fromYaml) "image" -}}
{{- end -}}
{{- if not (kindIs "invalid" $image) -}}
  {{- $_ := set $result "image" (include "slurm.image" (list $root $image (printf "%s.image" $path))) -}}
{{- end -}}
{{- if not $result.imagePullPolicy -}}
  {{- $_ := set $result "imagePullPolicy" $root.Values.imagePullPolicy -}}
{{- end -}}
{{- toYaml $result -}}
{{- end }}

{{- /*
The pod template of a custom resource: the component's metadata and podSpec, the release's pull secrets and priority class.
Call with a list: root context, metadata, podSpec (both may be null).
*/}}
{{- define "slurm.podTemplate" -}}
{{- $root := index . 0 -}}
{{- $metadata := index . 1 | default dict -}}
{{- $podSpec := index . 2 | default dict -}}
{{- $spec := include "slurm.fields" (list $podSpec) | fromYaml -}}
{{- with include "slurm-charts.imagePullSecrets" $root | fromYamlArray -}}
{{- $_ := set $spec "imagePullSecrets" (concat ($podSpec.imagePullSecrets | default list) . | uniq) -}}
{{- end -}}
{{- if and $root.Values.priorityClass.enabled (not $spec.priorityClassName) -}}
{{- $_ := set $spec "priorityClassName" $root.Values.priorityClass.name -}}
{{- end -}}
{{- with include "slurm.fields" (list $metadata "labels" "annotations") -}}
metadata:
  {{- . | nindent 2 }}
{{ end -}}
spec:
  {{- toYaml $spec | nindent 2 }}
{{- end }}

{{- /*
A service override of a custom resource, empty if the values have none. Call with the `service` map (may be null).
*/}}
{{- define "slurm.service" -}}
{{- $service := . | default dict -}}
{{- $result := include "slurm.fields" (list $service "port" "nodePort") | fromYaml -}}
{{- range $key := list "metadata" "spec" -}}
  {{- with include "slurm.fields" (list (get $service $key)) -}}
    {{- $_ := set $result $key (fromYaml .) -}}
  {{- end -}}
{{- end -}}
{{- if $result }}{{ toYaml $result }}{{ end -}}
{{- end }}

{{- /*
The address of a daemon outside Kubernetes. Call with a list: the `externalConfig` map, Slurm's port, the path of the map.
*/}}
{{- define "slurm.externalConfig" -}}
{{- $config := index . 0 | default dict -}}
host: {{ $config.host | required (printf "%s.host is required: name the host on which the external daemon runs" (index . 2)) }}
port: {{ $config.port | default (index . 1) }}
{{- end }}

{{- /*
A Secret whose key the operator generates: `helm template` and GitOps tools can't know which keys exist, so the Secret has no
data. Data that an earlier release has put into the Secret stay in it: Helm would remove them. Call with a list: root context,
name and key of the Secret, its component, a map of annotations, whether the data can never be changed.
*/}}
{{- define "slurm.generatedSecret" -}}
{{- $root := index . 0 -}}
{{- $name := index . 1 -}}
{{- $key := index . 2 -}}
{{- $annotations := mergeOverwrite (dict) (index . 4 | default dict) (dict "slinky.slurm.net/generate" $key) -}}
{{- $namespace := include "slurm.namespace" $root -}}
apiVersion: v1
kind: Secret
metadata:
  {{- include "slurm.metadata" (list $root $name (index . 3) (dict "annotations" $annotations)) | nindent 2 }}
type: Opaque
{{- $found := lookup "v1" "Secret" $namespace $name | default dict }}
{{- if and $found.data (not (hasKey $found.data $key)) -}}
{{- fail (printf "Secret %s/%s has no key `%s` and can't be changed: name another Secret or key in secretRef" $namespace $name $key) -}}
{{- end }}
{{- if and $found.data (not (hasKey (dig "metadata" "annotations" dict $found) "slinky.slurm.net/generated")) }}
{{- if index . 5 }}
immutable: true
{{- end }}
data:
  {{ $key }}: {{ get $found.data $key }}
{{- end }}
{{- end }}

{{- /* Refuse to delete a key: Helm would, with a Secret of this release that isn't rendered. Call with
(list ROOT VALUE SECRET), where VALUE is the key in the values. */}}
{{- define "slurm.keyStays" -}}
{{- $root := index . 0 -}}
{{- $namespace := include "slurm.namespace" $root -}}
{{- $found := lookup "v1" "Secret" $namespace (index . 2) | default dict -}}
{{- $annotations := dig "metadata" "annotations" dict $found -}}
{{- $release := list (get $annotations "meta.helm.sh/release-namespace") (get $annotations "meta.helm.sh/release-name") -}}
{{- if and (deepEqual $release (list $root.Release.Namespace $root.Release.Name)) (ne (get $annotations "helm.sh/resource-policy") "keep") -}}
  {{- fail (printf "%s: this release has created Secret %s/%s, and would delete it now, with a key that the running cluster needs. To have Helm keep it, run `kubectl --namespace %s annotate secret %s helm.sh/resource-policy=keep` first" (index . 1) $namespace (index . 2) $namespace (index . 2)) -}}
{{- end -}}
{{- end }}

{{- /* "true" if the release has the embedded database. Call with the root context. */}}
{{- define "slurm.mariadb" -}}
{{- with .Values.accounting -}}
  {{- if and .enabled (not .external) (.mariadb | default dict).enabled }}true{{ end -}}
{{- end -}}
{{- end }}

{{- /* The connection to slurmdbd's database: that of the values or the embedded one. Call with the root context. */}}
{{- define "slurm.storageConfig" -}}
{{- $storage := .Values.accounting.storageConfig -}}
{{- if include "slurm.mariadb" . -}}
  {{- $name := include "slurm.mariadb.name" . -}}
  {{- $own := dict "host" $name "port" 3306 "passwordKeyRef" (dict "name" $name "key" "password") -}}
  {{- $storage = mergeOverwrite (omit $storage "tls" | deepCopy) $own -}}
{{- end -}}
{{- toYaml $storage -}}
{{- end }}

{{- /* "true" if the release creates the key. Call with a list: root context, `slurmKey` or `jwtKey` of the values. */}}
{{- define "slurm.keyCreated" -}}
{{- $values := (index . 0).Values -}}
{{- if and (index . 1).create (not $values.controller.external) (not (and $values.accounting.enabled $values.accounting.external)) -}}
  true
{{- end -}}
{{- end }}
