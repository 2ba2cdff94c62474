{{- /*
Generated from schemas/global.tpl by `make generate`. Edit that file instead.

Values that Helm shares between charts: `global.imageRegistry` and `global.imagePullSecrets`.
*/}}

{{- /*
An image from `global.imageRegistry`, which replaces the image's own registry. Call with a list: root context, the image as one
string.
*/}}
{{- define "slurm-bridge.atRegistry" -}}
{{- $parts := splitList "/" (index . 1) -}}
{{- with ((index . 0).Values.global | default dict).imageRegistry -}}
{{- if and (gt (len $parts) 1) (regexMatch "[.:]|^localhost$" (first $parts)) }}{{ $parts = rest $parts }}{{ end -}}
{{- $parts = prepend $parts (trimSuffix "/" .) -}}
{{- end -}}
{{- join "/" $parts -}}
{{- end }}

{{- /* The pull secrets of the chart and of `global`, as a YAML list; empty without any. Call with the root context. */}}
{{- define "slurm-bridge.imagePullSecrets" -}}
{{- $secrets := .Values.imagePullSecrets | default list -}}
{{- range (.Values.global | default dict).imagePullSecrets -}}
{{- $secrets = append $secrets (kindIs "string" . | ternary (dict "name" .) .) -}}
{{- end -}}
{{- with $secrets | uniq }}{{ toYaml . }}{{ end -}}
{{- end }}
