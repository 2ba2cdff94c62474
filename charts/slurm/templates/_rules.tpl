{{- /*
Generated from the rules in schemas/crds by `make generate`. Edit those instead.

What the API server would refuse about a custom resource of the chart, because several of its fields don't fit.
*/}}

{{- /*
Fails with the rules that a resource breaks. Call with a list: its kind, its text, the place of its values.
*/}}
{{- define "slurm.rules" -}}
{{- include "slurm-charts.check.fail" (include (printf "slurm.rules.%s" (first .)) (list (index . 1 | fromYaml) (last .))) -}}
{{- end }}

{{- /* A duration, such as `1h30m`, in seconds. */}}
{{- define "slurm.rules.seconds" -}}
{{- $units := dict "h" 3600 "m" 60 "s" 1 "ms" 0.001 -}}
{{- $seconds := 0.0 -}}
{{- range regexFindAll `[0-9.]+[a-z]+` (toString .) -1 -}}
{{- $seconds = addf $seconds (mulf (regexFind `[0-9.]+` .) (get $units (regexFind `[a-z]+` .) | default 0)) -}}
{{- end -}}
{{- $seconds -}}
{{- end }}

{{- define "slurm.rules.NodeSet" -}}
{{- $object := first . -}}
{{- $place := last . -}}
{{- $self := $object -}}
{{- if not (kindIs "invalid" $self) }}{{ if not (le (float64 (add (len (dig "name" "" (dig "metadata" dict $self | default dict))) (ternary 6 (add 1 (ternary (dig "ordinalPadding" 0 (dig "spec" dict $self | default dict)) (len (toString (int64 (dig "replicas" 1 (dig "spec" dict $self | default dict))))) (gt (float64 (dig "ordinalPadding" 0 (dig "spec" dict $self | default dict))) (float64 (len (toString (int64 (dig "replicas" 1 (dig "spec" dict $self | default dict))))))))) (eq (dig "scalingMode" "StatefulSet" (dig "spec" dict $self | default dict)) `DaemonSet`)))) (float64 63)) -}}
{{- include "slurm-charts.check.line" (list $place "the name of a NodeSet and the ordinal of its last pod can have at most 63 characters together" "Shorten the key of the NodeSet, or set fullnameOverride.") -}}
{{- end }}{{- end -}}
{{- $self := dig "spec" nil $object -}}
{{- if not (kindIs "invalid" $self) }}{{ if not (or (not (hasKey $self "autoscaling")) (eq (dig "scalingMode" "StatefulSet" $self) `StatefulSet`)) -}}
{{- include "slurm-charts.check.line" (list $place "autoscaling needs scalingMode StatefulSet" "Remove autoscaling, or set scalingMode to StatefulSet.") -}}
{{- end }}{{- end -}}
{{- $self := dig "spec" nil $object -}}
{{- if not (kindIs "invalid" $self) }}{{ if not (or (or (not (hasKey $self "powerSaving")) (not (dig "enabled" false (dig "powerSaving" dict $self | default dict)))) (eq (dig "scalingMode" "StatefulSet" $self) `StatefulSet`)) -}}
{{- include "slurm-charts.check.line" (list $place "powerSaving needs scalingMode StatefulSet" "Remove powerSaving, or set scalingMode to StatefulSet.") -}}
{{- end }}{{- end -}}
{{- $self := dig "spec" nil $object -}}
{{- if not (kindIs "invalid" $self) }}{{ if not (or (or (not (hasKey $self "powerSaving")) (not (dig "enabled" false (dig "powerSaving" dict $self | default dict)))) (not (hasKey $self "autoscaling"))) -}}
{{- include "slurm-charts.check.line" (list $place "powerSaving and autoscaling exclude each other" "Remove one of the two.") -}}
{{- end }}{{- end -}}
{{- $self := dig "spec" nil $object -}}
{{- if not (kindIs "invalid" $self) }}{{ if not (or (eq (dig "scalingMode" "StatefulSet" $self) `DaemonSet`) (le (float64 (add (len (dig "hostname" "" (dig "spec" dict (dig "template" dict $self | default dict) | default dict))) (ternary (dig "ordinalPadding" 0 $self) (len (toString (int64 (dig "replicas" 1 $self)))) (gt (float64 (dig "ordinalPadding" 0 $self)) (float64 (len (toString (int64 (dig "replicas" 1 $self))))))))) (float64 63))) -}}
{{- include "slurm-charts.check.line" (list $place "template.spec.hostname and the ordinal of the last pod can have at most 63 characters together" "Shorten the key of the NodeSet.") -}}
{{- end }}{{- end -}}
{{- $self := dig "spec" "gpu" nil $object -}}
{{- if not (kindIs "invalid" $self) }}{{ if not (or (eq (float64 (len (dig "devices" list $self))) (float64 0)) (gt (float64 (len (dig "type" "" $self))) (float64 0))) -}}
{{- include "slurm-charts.check.line" (list (printf "%s.gpu" $place) "gpu.devices needs gpu.type" "Set type to the name of the GPUs in Slurm, or remove devices.") -}}
{{- end }}{{- end -}}
{{- $self := dig "spec" "extraConf" nil $object -}}
{{- if not (kindIs "invalid" $self) }}{{ if not (regexMatch `^\s*([^\s=]+=("[^"]*"|'[^']*'|\S*)(\s+|$))*$` (toString $self)) -}}
{{- include "slurm-charts.check.line" (list (printf "%s.extraConf" $place) "extraConf must be Key=Value items separated by spaces" "Write it as in Features=fast Weight=10.") -}}
{{- end }}{{- end -}}
{{- $self := dig "spec" "autoscaling" nil $object -}}
{{- if not (kindIs "invalid" $self) }}{{ if not (le (float64 (ternary (dig "min" 0 $self) 0 true)) (float64 (dig "max" 0 $self))) -}}
{{- include "slurm-charts.check.line" (list (printf "%s.autoscaling" $place) "autoscaling.min can't be higher than autoscaling.max" "Lower min, or raise max.") -}}
{{- end }}{{- end -}}
{{- $self := dig "spec" "powerSaving" nil $object -}}
{{- if not (kindIs "invalid" $self) }}{{ if not (or (or (not (dig "enabled" false $self)) (not (hasKey $self "capacityWaitSeconds"))) (lt (float64 (dig "capacityWaitSeconds" 0 $self)) (float64 (dig "startSeconds" 600 $self)))) -}}
{{- include "slurm-charts.check.line" (list (printf "%s.powerSaving" $place) "powerSaving.capacityWaitSeconds must be lower than powerSaving.startSeconds" "Lower capacityWaitSeconds, or raise startSeconds.") -}}
{{- end }}{{- end -}}
{{- $self := dig "spec" "updateStrategy" nil $object -}}
{{- if not (kindIs "invalid" $self) }}{{ if not (or (ne (dig "type" "RollingUpdate" $self) `ScheduledUpdate`) (and (and (hasKey $self "scheduledUpdate") (hasKey (dig "scheduledUpdate" dict $self | default dict) "startTime")) true)) -}}
{{- include "slurm-charts.check.line" (list (printf "%s.updateStrategy" $place) "scheduledUpdate.startTime and scheduledUpdate.duration are required when type is ScheduledUpdate" "Set scheduledUpdate.startTime, or another type.") -}}
{{- end }}{{- end -}}
{{- $self := dig "spec" "updateStrategy" "rollingUpdate" "maxUnavailable" nil $object -}}
{{- if not (kindIs "invalid" $self) }}{{ if not (ternary (ge (float64 $self) (float64 1)) (regexMatch `^[0-9]*[1-9][0-9]*%$` (toString $self)) (kindIs `float64` $self)) -}}
{{- include "slurm-charts.check.line" (list (printf "%s.updateStrategy.rollingUpdate.maxUnavailable" $place) "maxUnavailable must be a number of at least 1, or a percentage of more than 0%" "Set 1 or more, or a percentage in quotes.") -}}
{{- end }}{{- end -}}
{{- $self := dig "spec" "updateStrategy" "scheduledUpdate" "duration" nil $object -}}
{{- if not (kindIs "invalid" $self) }}{{ if not (or (eq (float64 (include "slurm.rules.seconds" $self)) (float64 (include "slurm.rules.seconds" `0s`))) (ge (float64 (include "slurm.rules.seconds" $self)) (float64 (include "slurm.rules.seconds" `1m`)))) -}}
{{- include "slurm-charts.check.line" (list (printf "%s.updateStrategy.scheduledUpdate.duration" $place) "duration must be at least 1m" "Set 1m or more, or 0s.") -}}
{{- end }}{{- end -}}
{{- $self := dig "spec" "health" "checks" nil $object -}}
{{- if not (kindIs "invalid" $self) }}{{- range $name, $_ := $self }}{{ if not (and (regexMatch `^[a-z]([-a-z0-9]*[a-z0-9])?$` (toString $name)) (le (float64 (len $name)) (float64 40))) -}}
{{- include "slurm-charts.check.line" (list (printf "%s.health.checks" $place) `names of checks must have at most 40 characters of a-z, 0-9 and "-", and begin with a letter` "Rename the check.") -}}
{{- end }}{{- end }}{{- end -}}
{{- $self := dig "spec" "ssh" nil $object -}}
{{- if not (kindIs "invalid" $self) }}{{ if not (or (not (dig "enabled" false $self)) (ne (dig "name" "" (dig "sssdConfRef" dict $self | default dict)) ``)) -}}
{{- include "slurm-charts.check.line" (list (printf "%s.ssh" $place) "ssh.sssdConfRef.name is required when ssh.enabled is true" "Correct the values.") -}}
{{- end }}{{- end -}}
{{- end }}

{{- define "slurm.rules.Token" -}}
{{- $object := first . -}}
{{- $place := last . -}}
{{- $self := $object -}}
{{- if not (kindIs "invalid" $self) }}{{ if not (or (ne (dig "name" "" (dig "secretRef" dict (dig "spec" dict $self | default dict) | default dict)) ``) (regexMatch `^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$` (toString (dig "username" "" (dig "spec" dict $self | default dict))))) -}}
{{- include "slurm-charts.check.line" (list $place "secretRef.name is required for a user whose name can't be part of a Secret's name" "Set secretRef.name.") -}}
{{- end }}{{- end -}}
{{- $self := dig "spec" nil $object -}}
{{- if not (kindIs "invalid" $self) }}{{ if not (or (hasKey $self "jwtKeyRef") (hasKey $self "jwtHs256KeyRef")) -}}
{{- include "slurm-charts.check.line" (list $place "jwtKeyRef is required" "Correct the values.") -}}
{{- end }}{{- end -}}
{{- $self := dig "spec" nil $object -}}
{{- if not (kindIs "invalid" $self) }}{{ if not (or (not true) (ge (float64 (include "slurm.rules.seconds" (dig "lifetime" "15m" $self))) (float64 (include "slurm.rules.seconds" `30s`)))) -}}
{{- include "slurm-charts.check.line" (list (printf "%s.lifetime" $place) "lifetime must be at least 30s" "Set 30s or more.") -}}
{{- end }}{{- end -}}
{{- end }}
