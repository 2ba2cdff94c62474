{{- /* A line for each fault of the values that no rule of values-rules.json describes. Call with the root context. */}}
{{- define "slurm-bridge.faults" -}}
{{- $image := .Values.controllers.image -}}
{{- $repository := kindIs "string" $image | ternary $image (get (kindIs "map" $image | ternary $image dict) "repository") | default "" -}}
{{- if regexMatch "(^|/)slurm-bridge-(controllers|scheduler|admission)([:@].*)?$" $repository -}}
  {{- include "slurm-charts.check.line" (list
    (kindIs "string" $image | ternary "controllers.image" "controllers.image.repository")
    (printf "`%s` has the name of SchedMD's image, which this chart can't run" $repository)
    (printf "Remove controllers.image, or set it to your copy of %s/sidecars, under another name." (include "slurm-charts.ownImages" .))
  ) -}}
{{- end -}}
{{- $account := .Values.controllers.serviceAccount -}}
{{- if and (not $account.create) (has ($account.name | default "default") (list "default")) -}}
  {{- include "slurm-charts.check.line" (list
    "controllers.serviceAccount.name"
    "every pod of the namespace without another ServiceAccount would have the rights of the bridge"
    "Set the name of a ServiceAccount of its own, or controllers.serviceAccount.create to true."
  ) -}}
{{- end -}}
{{- $namespace := include "slurm-bridge.namespace" . -}}
{{- range $name, $tenant := .Values.tenants -}}
  {{- if eq $name $namespace -}}
    {{- include "slurm-charts.check.line" (list (printf "tenants.%s" $name) "this is the namespace of the bridge, whose Secrets a tenant must not reach" "Use another namespace.") -}}
  {{- else if eq $name (include "slurm-bridge.clusterNamespace" $) -}}
    {{- include "slurm-charts.check.line" (list (printf "tenants.%s" $name) "this is the namespace of the Slurm cluster, whose pods can't wait for it" "Use another namespace.") -}}
  {{- else if eq $name "kube-system" -}}
    {{- include "slurm-charts.check.line" (list "tenants.kube-system" "the cluster's own pods must not wait for Slurm" "Use another namespace.") -}}
  {{- end -}}
  {{- if eq $tenant.user "root" -}}
    {{- include "slurm-charts.check.line" (list (printf "tenants.%s.user" $name) "root may do everything in Slurm" "Set a user without rights of its own.") -}}
  {{- end -}}
{{- end -}}
{{- if and .Values.tenants .Values.tenantsConfigMap -}}
  {{- include "slurm-charts.check.line" (list "tenants" "with tenantsConfigMap, the chart creates no ConfigMap" "Set one of the two.") -}}
{{- end -}}
{{- if and .Values.tenantsConfigMap (kindIs "invalid" .Values.tenantNamespaces) (not .Values.admission.managedNamespaces) -}}
  {{- include "slurm-charts.check.line" (list
    "tenantNamespaces"
    "with tenantsConfigMap, the chart doesn't know in which namespaces the bridge may change pods"
    "Set the namespaces of the ConfigMap, or [] if you create their RoleBindings (docs/bridge-security.md)."
  ) -}}
{{- end -}}
{{- range $index, $name := .Values.tenantNamespaces -}}
  {{- if has $name (list "kube-system" $namespace (include "slurm-bridge.clusterNamespace" $)) -}}
    {{- include "slurm-charts.check.line" (list (printf "tenantNamespaces[%d]" $index) (printf "the bridge must not change the pods of `%s`" $name) "Remove it.") -}}
  {{- end -}}
{{- end -}}
{{- $seen := dict -}}
{{- range $index, $rule := .Values.devices -}}
  {{- $place := printf "devices[%d]" $index -}}
  {{- $name := index (splitList ":" $rule.gres) 0 -}}
  {{- if eq (not $rule.driver) (not $rule.extendedResource) -}}
    {{- include "slurm-charts.check.line" (list $place "a rule is for the devices of a driver, or for an extended resource" "Set either driver and deviceClasses, or extendedResource.") -}}
  {{- else if and $rule.driver (not $rule.deviceClasses) -}}
    {{- include "slurm-charts.check.line" (list (printf "%s.deviceClasses" $place) "without a DeviceClass no claim requests these devices" "Set the names of DeviceClasses.") -}}
  {{- else if and $rule.extendedResource (or $rule.deviceClasses $rule.attributes) -}}
    {{- include "slurm-charts.check.line" (list $place "deviceClasses and attributes belong to a driver" "Remove them, or set driver instead of extendedResource.") -}}
  {{- end -}}
  {{- range $rule.deviceClasses -}}
    {{- if has . ($.Values.unmanagedDeviceClasses | default list) -}}
      {{- include "slurm-charts.check.line" (list "unmanagedDeviceClasses" (printf "`%s` is in a rule of `devices`, too" .) "Remove it from one of them: Slurm gives its devices, or kube-scheduler does.") -}}
    {{- end -}}
  {{- end -}}
  {{- if hasKey $seen $rule.gres -}}
    {{- include "slurm-charts.check.line" (list (printf "%s.gres" $place) (printf "`%s` has a rule already" $rule.gres) "Set another type, such as gpu:TYPE.") -}}
  {{- else if and (hasKey $seen $name) (ne (get $seen $name) (eq $name $rule.gres)) -}}
    {{- include "slurm-charts.check.line" (list (printf "%s.gres" $place) (printf "`%s` has rules with and without a type" $name) "Give each rule a type, or none.") -}}
  {{- end -}}
  {{- $_ := set $seen $rule.gres true -}}
  {{- $_ := set $seen $name (eq $name $rule.gres) -}}
{{- end -}}
{{- if has $namespace (.Values.admission.managedNamespaces | default list) -}}
  {{- include "slurm-charts.check.line" (list "admission.managedNamespaces" (printf "`%s` is the namespace of the bridge, whose pods can't wait for it" $namespace) "Remove it.") -}}
{{- end -}}
{{- if and (ne $namespace (include "slurm-bridge.clusterNamespace" .)) (has (include "slurm-bridge.clusterNamespace" .) (.Values.admission.managedNamespaces | default list)) -}}
  {{- include "slurm-charts.check.line" (list "admission.managedNamespaces" (printf "`%s` is the namespace of the Slurm cluster, whose pods can't wait for it" (include "slurm-bridge.clusterNamespace" .)) "Remove it.") -}}
{{- end -}}
{{- if has "kube-system" (.Values.admission.managedNamespaces | default list) -}}
  {{- include "slurm-charts.check.line" (list "admission.managedNamespaces" "the pods of `kube-system` can't wait for Slurm" "Remove it.") -}}
{{- end -}}
{{- if and (eq .Values.admission.mode "policy") (include "slurm-bridge.mutatingVersion" .) (semverCompare "<1.34-0" .Capabilities.KubeVersion.Version) -}}
  {{- include "slurm-charts.check.line" (list
    "admission.mode"
    (printf "Kubernetes %s has no MutatingAdmissionPolicy" .Capabilities.KubeVersion.Version)
    "Set it to webhook or auto."
  ) -}}
{{- end -}}
{{- end }}
