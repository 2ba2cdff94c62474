{{/*
The operator's permissions in namespaces with Slurm clusters, as rules of a Role or a ClusterRole. The operator writes objects
with server-side apply, which is a patch, and needs `create` for new objects.
*/}}
{{- define "slurm-operator.rules" -}}
- apiGroups: [slinky.slurm.net]
  resources: [controllers, accountings, restapis, loginsets, nodesets, tokens]
  verbs: [get, list, watch, update, patch]
- apiGroups: [slinky.slurm.net]
  resources: [controllers/status, accountings/status, restapis/status, loginsets/status, nodesets/status, tokens/status]
  verbs: [get, update, patch]
# For owner references that block the owner's deletion.
- apiGroups: [slinky.slurm.net]
  resources:
    - controllers/finalizers
    - accountings/finalizers
    - restapis/finalizers
    - loginsets/finalizers
    - nodesets/finalizers
    - tokens/finalizers
  verbs: [update]
- apiGroups: [""]
  resources: [configmaps, persistentvolumeclaims, pods, secrets, services]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [""]
  resources: [pods/status]
  verbs: [get, update, patch]
# What a daemon logged that ended on a configuration.
- apiGroups: [""]
  resources: [pods/log]
  verbs: [get]
- apiGroups: [apps]
  resources: [controllerrevisions, deployments, statefulsets]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [policy]
  resources: [poddisruptionbudgets]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [discovery.k8s.io]
  resources: [endpointslices]
  verbs: [get, list, watch, create, update, patch, delete]
- apiGroups: [monitoring.coreos.com]
  resources: [servicemonitors]
  verbs: [get, list, watch, create, update, patch, delete]
# `list`: what Cluster Autoscaler and Karpenter report about worker pods that wait for a Kubernetes node.
- apiGroups: [events.k8s.io]
  resources: [events]
  verbs: [create, list, patch]
{{- end }}
