{{- /*
Values that Helm shares between charts: `global.imageRepository`, `global.imageRegistry` and
`global.imagePullSecrets`.
*/}}

{{- /* Registry and path of this project's images in the default values. */}}
{{- define "slurm-charts.ownImages" -}}
registry.invalid/slurm-charts
{{- end }}

{{- /*
An image at the place that `global` names for it. `global.imageRepository` is registry and path of this project's images.
`global.imageRegistry` replaces the registry of all others. Call with a list: root context, the image as one string.
*/}}
{{- define "slurm-charts.atRegistry" -}}
{{- $image := index . 1 -}}
{{- $global := (index . 0).Values.global | default dict -}}
{{- $own := printf "%s/" (include "slurm-charts.ownImages" .) -}}
{{- if and $global.imageRepository (hasPrefix $own $image) -}}
  {{- printf "%s/%s" (trimSuffix "/" $global.imageRepository) (trimPrefix $own $image) -}}
{{- else -}}
  {{- $parts := splitList "/" $image -}}
  {{- with $global.imageRegistry -}}
    {{- if and (gt (len $parts) 1) (regexMatch "[.:]|^localhost$" (first $parts)) }}{{ $parts = rest $parts }}{{ end -}}
    {{- $parts = prepend $parts (trimSuffix "/" .) -}}
  {{- end -}}
  {{- join "/" $parts -}}
{{- end -}}
{{- end }}

{{- /* The pull secrets of the chart and of `global`, as a YAML list; empty without any. Call with the root context. */}}
{{- define "slurm-charts.imagePullSecrets" -}}
{{- $secrets := .Values.imagePullSecrets | default list -}}
{{- range (.Values.global | default dict).imagePullSecrets -}}
  {{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) -}}
{{- end -}}
{{- with $secrets | uniq }}{{ toYaml . }}{{ end -}}
{{- end }}

{{- /*
The affinity of pods beside those of workers: that of the values, else a preference for Kubernetes nodes without workers, which are
drained and scaled in, and without GPUs. Call with the affinity of the values.
*/}}
{{- define "slurm-charts.affinity" -}}
{{- if . -}}
{{ toYaml . }}
{{- else -}}
nodeAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 50
      preference:
        matchExpressions:
          - {key: nvidia.com/gpu.present, operator: DoesNotExist}
          - {key: cloud.google.com/gke-accelerator, operator: DoesNotExist}
          - {key: amd.com/gpu.device-id, operator: DoesNotExist}
podAntiAffinity:
  preferredDuringSchedulingIgnoredDuringExecution:
    - weight: 50
      podAffinityTerm:
        topologyKey: kubernetes.io/hostname
        namespaceSelector: {}
        labelSelector:
          matchLabels:
            app.kubernetes.io/name: slurmd
{{- end -}}
{{- end }}

{{- /*
"true" if a chart creates an object of the Prometheus operator: if `enabled` is true, or if it is null and Helm knows that the
Prometheus operator is installed. Call with a list: root context, `enabled`.
*/}}
{{- define "slurm-charts.monitored" -}}
{{- $installed := (index . 0).Capabilities.APIVersions.Has "monitoring.coreos.com/v1" -}}
{{- if kindIs "invalid" (index . 1) | ternary $installed (index . 1) }}true{{ end -}}
{{- end }}

{{- /*
How to get images, for the notes: empty unless one of these images is in a registry that can't exist. Call with the images.
*/}}
{{- define "slurm-charts.imagesNote" -}}
{{- $missing := list -}}
{{- range . }}{{ if regexMatch `^[^/]*\.invalid(:[0-9]+)?/` . }}{{ $missing = append $missing . }}{{ end }}{{ end -}}
{{- with $missing | uniq }}
The images of these charts are not published: {{ first . | splitList "/" | first }} can't exist. The two ways to get them:
- In a checkout, `REGISTRY=registry.example.com/team KUBECONFIG=... make up` builds and pushes them, and sets the values.
- Set global.imageRepository, the same in all charts, to a registry that has them: yours, or that of a release.
Images that you have loaded into all nodes under these names work too.
{{- end -}}
{{- end }}
