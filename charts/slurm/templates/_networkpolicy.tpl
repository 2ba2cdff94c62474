{{- /*
NetworkPolicies: one for the pods of each Slurm daemon. Each admits the daemons and clients that connect to it, and nothing
else. A kubelet's probes are always admitted, and `kubectl exec` and `port-forward` don't use the pod network.
*/}}

{{- /*
The beginning of a NetworkPolicy, up to its ingress rules, which the caller appends. Call with a list: root context, name of
the policy, program in the pods, labels that select the pods, as YAML.
*/}}
{{- define "slurm.networkPolicy" -}}
{{- $root := index . 0 -}}
{{- $blocked := $root.Values.networkPolicy.blockedEgress | default list -}}
apiVersion: networking.k8s.io/v1
kind: NetworkPolicy
metadata:
  {{- include "slurm.metadata" (list $root (index . 1) (index . 2)) | nindent 2 }}
spec:
  podSelector:
    matchLabels:
      {{- index . 3 | nindent 6 }}
  policyTypes: [Ingress{{ if $blocked }}, Egress{{ end }}]
  {{- if $blocked }}
  {{- $blocks := dict "0.0.0.0/0" list "::/0" list }}
  {{- range $cidr := $blocked }}
  {{- $family := ternary "::/0" "0.0.0.0/0" (contains ":" $cidr) }}
  {{- $_ := set $blocks $family (append (get $blocks $family) $cidr) }}
  {{- end }}
  egress:
    - to:
        # Some network plugins don't count pods as parts of an ipBlock.
        - namespaceSelector: {}
        {{- range $cidr, $except := $blocks }}
        - ipBlock: {{ toJson (ternary (dict "cidr" $cidr "except" $except) (dict "cidr" $cidr) (not (empty $except))) }}
        {{- end }}
  {{- end }}
{{- end }}

{{- /*
An ingress rule, as an item of a list. Call with a map:
  root      root context
  daemons   Slurm daemons of this cluster that connect
  clients   other peers that connect, as peers of a NetworkPolicy
  ports     TCP ports, or none for all ports of all protocols
  public    whether the rule admits everyone, if the values don't name the peers
*/}}
{{- define "slurm.networkPolicy.rule" -}}
{{- $stem := include "slurm.fullname" .root -}}
{{- $rule := dict -}}
{{- $clients := .clients | default list -}}
{{- if or $clients (not .public) -}}
  {{- $peers := list -}}
  {{- range $daemon := .daemons -}}
    {{- $labels := include (ternary "slurm.memberLabels" "slurm.selectorLabels" (has $daemon (list "login" "slurmd"))) (list $daemon $stem) -}}
    {{- $peers = append $peers (dict "podSelector" (dict "matchLabels" (fromYaml $labels))) -}}
  {{- end -}}
  {{- if not (concat $peers $clients) -}}
    {{- fail "networkPolicy.operatorFrom: name at least one peer, because a rule without peers admits everyone" -}}
  {{- end -}}
  {{- $_ := set $rule "from" (concat $peers $clients) -}}
{{- end -}}
{{- if .ports -}}
  {{- $ports := list -}}
  {{- range $port := .ports -}}
    {{- $ports = append $ports (dict "port" $port "protocol" "TCP") -}}
  {{- end -}}
  {{- $_ := set $rule "ports" $ports -}}
{{- end -}}
{{- toYaml (list $rule) -}}
{{- end }}

{{- /*
"true" if pods of the cluster have addresses of their Kubernetes nodes, which no podSelector matches. Call with the root
context.
*/}}
{{- define "slurm.hostNetwork" -}}
{{- $found := list (.Values.controller.podSpec | default dict) (.Values.restapi.podSpec | default dict) (.Values.accounting.podSpec | default dict) -}}
{{- range $sets := list (include "slurm.loginsets" . | fromYaml) (include "slurm.nodesets" . | fromYaml) -}}
  {{- range $set := $sets -}}
    {{- $found = append $found ($set.podSpec | default dict) -}}
  {{- end -}}
{{- end -}}
{{- range $podSpec := $found -}}
  {{- if $podSpec.hostNetwork }}true{{ end -}}
{{- end -}}
{{- end }}

{{- /* "true" if a `service` of the values can be reached from outside Kubernetes. Call with the map (may be null). */}}
{{- define "slurm.service.public" -}}
{{- $service := . | default dict -}}
{{- if has (toString ($service.spec | default dict).type) (list "LoadBalancer" "NodePort") }}true{{ end -}}
{{- end }}
