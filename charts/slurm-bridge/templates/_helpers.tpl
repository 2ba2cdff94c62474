{{/*
Names, labels and other texts of the chart. The argument is the root context (`include "slurm-bridge.name" .`), unless the
comment names another one. All names of objects are defined here.
*/}}

{{/* Name of the chart, for labels. */}}
{{- define "slurm-bridge.name" -}}
{{- include "slurm-charts.name" . -}}
{{- end }}

{{/* Prefix of the names of all objects, and the name of the Deployment, the Lease and the policies. */}}
{{- define "slurm-bridge.fullname" -}}
{{- include "slurm-charts.fullname" . -}}
{{- end }}

{{/* The names of its pods, as a regular expression. Kubernetes cuts what precedes the five random characters after 58. */}}
{{- define "slurm-bridge.podNames" -}}
{{- $name := include "slurm-bridge.fullname" . }}
{{- $name | trunc 58 | replace "." "[.]" }}{{ gt (len $name) 46 | ternary "[-a-z0-9]*" "-[a-z0-9]+-[a-z0-9]+" }}
{{- end }}

{{/* Namespace of all objects. */}}
{{- define "slurm-bridge.namespace" -}}
{{- include "slurm-charts.namespace" . -}}
{{- end }}

{{/* Name of the ServiceAccount. */}}
{{- define "slurm-bridge.serviceAccountName" -}}
{{- default (ternary (include "slurm-bridge.fullname" .) "default" .Values.controllers.serviceAccount.create) .Values.controllers.serviceAccount.name }}
{{- end }}

{{/* Name of the ConfigMap with the tenants. */}}
{{- define "slurm-bridge.tenants" -}}
{{- default (printf "%s-tenants" (include "slurm-bridge.fullname" . | trunc 55 | trimSuffix "-")) .Values.tenantsConfigMap }}
{{- end }}

{{/* Name of the cluster's Controller. */}}
{{- define "slurm-bridge.cluster" -}}
{{- default "slurm" .Values.cluster }}
{{- end }}

{{/* Namespace of the Slurm cluster: of slurmrestd, and of the worker pods. */}}
{{- define "slurm-bridge.clusterNamespace" -}}
{{- .Values.clusterNamespace | default (include "slurm-bridge.namespace" .) }}
{{- end }}

{{/* Name of the ClusterRole with what the bridge reads. Not the full name, that of a ClusterRole of former releases. */}}
{{- define "slurm-bridge.reader" -}}
{{- printf "%s-reader" (include "slurm-bridge.fullname" .) }}
{{- end }}

{{/* Name of the ClusterRole with what the bridge writes in the namespace of a tenant. RoleBindings alone bind it. */}}
{{- define "slurm-bridge.tenantRole" -}}
{{- printf "%s-tenant" (include "slurm-bridge.fullname" .) }}
{{- end }}

{{/* The namespaces in which the chart binds that ClusterRole, as a JSON list. */}}
{{- define "slurm-bridge.tenantNamespaces" -}}
{{- $named := .Values.tenantNamespaces }}
{{- if and .Values.tenantsConfigMap (kindIs "invalid" $named) }}
  {{- $named = .Values.admission.managedNamespaces }}
{{- end }}
{{- concat (keys (.Values.tenants | default dict)) ($named | default list) | uniq | sortAlpha | toJson }}
{{- end }}

{{/* The bridge's ServiceAccount, as the subjects of a binding. */}}
{{- define "slurm-bridge.subjects" -}}
subjects:
  - kind: ServiceAccount
    name: {{ include "slurm-bridge.serviceAccountName" . }}
    namespace: {{ include "slurm-bridge.namespace" . }}
{{- end }}

{{/* The bridge's name as a user of Kubernetes. */}}
{{- define "slurm-bridge.user" -}}
system:serviceaccount:{{ include "slurm-bridge.namespace" . }}:{{ include "slurm-bridge.serviceAccountName" . }}
{{- end }}

{{/* The names of all bridges of the Kubernetes cluster as its users, as a JSON list. */}}
{{- define "slurm-bridge.bridges" -}}
{{- $users := list (include "slurm-bridge.user" .) }}
{{- range .Values.admission.otherBridges }}
  {{- $users = append $users (printf "system:serviceaccount:%s" (replace "/" ":" .)) }}
{{- end }}
{{- toJson $users }}
{{- end }}

{{/* Expression: whether a user may change a policy, as whoever installs the chart may. Call with the name of the policy. */}}
{{- define "slurm-bridge.mayChangePolicy" -}}
authorizer.group("admissionregistration.k8s.io").resource("validatingadmissionpolicies").name("{{ . }}").check("patch").allowed()
{{- end }}

{{/* URL of slurmrestd. */}}
{{- define "slurm-bridge.url" -}}
{{- default (printf "http://%s-restapi.%s:6820" (include "slurm-bridge.cluster" .) (include "slurm-bridge.clusterNamespace" .)) .Values.sharedConfig.slurmRestApi | trimSuffix "/" }}
{{- end }}

{{/* "true" if the bridge has a Token; empty if it has jwt.key. */}}
{{- define "slurm-bridge.hasToken" -}}
{{- $chosen := .Values.token.enabled }}
{{- if kindIs "invalid" $chosen }}
{{- $user := eq .Values.controllers.slurmUser "slurm" }}
{{- $chosen = and $user (not .Values.sharedConfig.slurmRestApi) (.Capabilities.APIVersions.Has "slinky.slurm.net/v1beta1/Token") }}
{{- end }}
{{- if $chosen -}}true{{- end }}
{{- end }}

{{/* Name of the Secret with the token. */}}
{{- define "slurm-bridge.tokenSecret" -}}
{{- printf "%s-slurm-token" (include "slurm-bridge.fullname" . | trunc 51 | trimSuffix "-") }}
{{- end }}

{{/* Its key. */}}
{{- define "slurm-bridge.tokenKey" -}}
SLURM_JWT
{{- end }}

{{/* "true" if the bridge reads its token by the Kubernetes API, because a pod mounts no Secret of another namespace. */}}
{{- define "slurm-bridge.readsToken" -}}
{{- if and (include "slurm-bridge.hasToken" .) (ne (include "slurm-bridge.namespace" .) (include "slurm-bridge.clusterNamespace" .)) -}}true{{- end }}
{{- end }}

{{/* Name of the Secret with jwt.key. */}}
{{- define "slurm-bridge.jwtSecret" -}}
{{- .Values.jwtKeyRef.name | default (printf "%s-auth-jwt" (include "slurm-bridge.cluster" .)) }}
{{- end }}

{{/* Chart and version, as a label. Never in selectors or pod templates: a new version alone restarts nothing. */}}
{{- define "slurm-bridge.chart" -}}
{{- include "slurm-charts.chart" . -}}
{{- end }}

{{/* Labels that select the bridge's pods. */}}
{{- define "slurm-bridge.selectorLabels" -}}
app.kubernetes.io/name: {{ include "slurm-bridge.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: bridge
{{- end }}

{{/* Labels of all objects. */}}
{{- define "slurm-bridge.labels" -}}
helm.sh/chart: {{ include "slurm-bridge.chart" . }}
{{ include "slurm-bridge.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
app.kubernetes.io/part-of: slurm-bridge
{{- end }}

{{/* The content of an object's metadata. Call with a list: root context, name of the object, and optionally annotations. */}}
{{- define "slurm-bridge.metadata" -}}
{{- $root := index . 0 -}}
{{ include "slurm-bridge.clusterMetadata" . }}
namespace: {{ include "slurm-bridge.namespace" $root }}
{{- if gt (len .) 2 }}
{{- with index . 2 }}
annotations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{/* The same of an object without a namespace. */}}
{{- define "slurm-bridge.clusterMetadata" -}}
name: {{ index . 1 }}
labels:
  {{- include "slurm-bridge.labels" (index . 0) | nindent 2 }}
{{- end }}

{{/* The bridge's image as one string. A digest overrides a tag. */}}
{{- define "slurm-bridge.image" -}}
{{- $image := .Values.controllers.image | default dict }}
{{- $reference := $image }}
{{- if kindIs "map" $image }}
  {{- $repository := required "controllers.image.repository: the value is empty. Set it, or remove controllers.image." $image.repository }}
  {{- $reference = printf "%s:%s" $repository ($image.tag | default .Chart.Version) }}
  {{- if $image.digest }}{{ $reference = printf "%s@%s" $repository $image.digest }}{{ end }}
{{- end }}
{{- include "slurm-charts.atRegistry" (list . $reference) }}
{{- end }}

{{/* The selector of the managed namespaces, as YAML. Never those in which a policy could stop Kubernetes or the bridge. */}}
{{- define "slurm-bridge.namespaceSelector" -}}
{{- $selector := .Values.admission.managedNamespaceSelector | default dict }}
{{- $matchLabels := $selector.matchLabels | default dict }}
{{- $expressions := $selector.matchExpressions | default list }}
{{- if not (or $matchLabels $expressions) }}
{{- with .Values.admission.managedNamespaces }}
{{- $expressions = list (dict "key" "kubernetes.io/metadata.name" "operator" "In" "values" .) }}
{{- else }}
{{- $matchLabels = dict "slurm-bridge" "managed" }}
{{- end }}
{{- end }}
{{- $never := list "kube-system" (include "slurm-bridge.namespace" .) (include "slurm-bridge.clusterNamespace" .) | uniq }}
{{- $expressions = append $expressions (dict "key" "kubernetes.io/metadata.name" "operator" "NotIn" "values" $never) }}
{{- with $matchLabels }}
matchLabels:
  {{- toYaml . | nindent 2 }}
{{- end }}
matchExpressions:
  {{- toYaml $expressions | nindent 2 }}
{{- end }}

{{/* How the gate is added to new pods: `policy`, `webhook`, or empty for neither. */}}
{{- define "slurm-bridge.gateBy" -}}
{{- $mode := .Values.admission.mode }}
{{- if and .Values.admission.enabled (ne (toString .Values.admission.addGate) "false") }}
  {{- if ne $mode "auto" -}}
    {{ $mode }}
  {{- else if or (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy") (.Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy") -}}
    policy
  {{- else -}}
    webhook
  {{- end }}
{{- end }}
{{- end }}

{{/* Version of the API in which the policy that adds the gate is created; empty for no such policy. */}}
{{- define "slurm-bridge.mutatingVersion" -}}
{{- if eq (include "slurm-bridge.gateBy" .) "policy" }}
  {{- if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1/MutatingAdmissionPolicy" -}}
    v1
  {{- else if .Capabilities.APIVersions.Has "admissionregistration.k8s.io/v1beta1/MutatingAdmissionPolicy" -}}
    v1beta1
  {{- else -}}
    {{ semverCompare ">=1.36-0" .Capabilities.KubeVersion.Version | ternary "v1" "v1beta1" }}
  {{- end }}
{{- end }}
{{- end }}

{{/* "true" if pods can have devices of a DRA driver; empty otherwise. */}}
{{- define "slurm-bridge.claims" -}}
{{- range .Values.devices -}}
  {{- if .driver -}}true{{- end -}}
{{- end -}}
{{- if .Values.unmanagedDeviceClasses -}}true{{- end -}}
{{- end }}

{{/* Which new pods get the gate, as match conditions: of the policy, and of the webhook. */}}
{{- define "slurm-bridge.gateConditions" -}}
- name: not-as-the-bridge-wants-it
  expression: >-
    !object.spec.?schedulingGates.orValue([]).exists(it, it.name == "scheduler.slinky.slurm.net/queued") ||
    object.spec.?schedulerName.orValue("") == "slurm-bridge-scheduler" ||
    object.spec.?tolerations.orValue([]).exists(it, it.?key.orValue("") == "slinky.slurm.net/managed-node")
# A pod with a node can't have a gate. The other policy refuses it, unless a kubelet shows a static pod.
- name: without-a-node
  expression: '!has(object.spec.nodeName)'
{{- end }}

{{/* Name of all objects of the webhook. */}}
{{- define "slurm-bridge.webhook" -}}
{{- printf "%s-webhook" (include "slurm-bridge.fullname" . | trunc 55 | trimSuffix "-") }}
{{- end }}

{{/* Labels that select the webhook's pods. They lack part-of, which opens slurmrestd to a pod. */}}
{{- define "slurm-bridge.webhookSelectorLabels" -}}
app.kubernetes.io/name: {{ include "slurm-bridge.name" . }}
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: webhook
{{- end }}

{{/* The content of metadata of an object of the webhook. Call with a list: root context, whether it has a namespace. */}}
{{- define "slurm-bridge.webhookMetadata" -}}
{{- $root := index . 0 -}}
name: {{ include "slurm-bridge.webhook" $root }}
{{- if index . 1 }}
namespace: {{ include "slurm-bridge.namespace" $root }}
{{- end }}
labels:
  {{- merge (include "slurm-bridge.webhookSelectorLabels" $root | fromYaml) (include "slurm-bridge.labels" $root | fromYaml) | toYaml | nindent 2 }}
{{- end }}

{{/* Binds a ValidatingAdmissionPolicy, and denies. Call with a list: root context, name of both. */}}
{{- define "slurm-bridge.policyBinding" -}}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  {{- include "slurm-bridge.clusterMetadata" . | nindent 2 }}
spec:
  policyName: {{ index . 1 }}
  validationActions: [Deny]
{{- end }}

{{/* The keys of labels that select the managed namespaces, as a JSON list. The name of a namespace can't change. */}}
{{- define "slurm-bridge.namespaceKeys" -}}
{{- $selector := include "slurm-bridge.namespaceSelector" . | fromYaml }}
{{- $keys := keys ($selector.matchLabels | default dict) }}
{{- range $selector.matchExpressions }}{{ $keys = append $keys .key }}{{ end }}
{{- without ($keys | uniq | sortAlpha) "kubernetes.io/metadata.name" | toJson }}
{{- end }}
