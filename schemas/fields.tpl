{{- /*
Generated from schemas/crds and schemas/fields.tpl by `make generate`. Edit those instead.

The fields of an object of a custom resource that the values have and that aren't empty, as YAML. Call with a list: the place
of the object, such as `NodeSet.gpu`, and its values (may be null).
*/}}
{{- define "slurm.passed" -}}
{{- $names := dict
PLACES
-}}
{{- include "slurm.fields" (concat (list (last .)) (get $names (first .))) -}}
{{- end }}
