{{- /*
Checks values against the rules in values-rules.json, which are JSON Schema (draft-07) with `remedy`, `kept` and
`former` (schemas/chart_values.py). Each helper returns text.
*/}}

{{- /*
A line for each value that a rule refuses: its place, what is wrong, and the remedy. Call with a list: the definitions to which
rules refer, the rule, the value, its place in the values.
*/}}
{{- define "slurm-charts.check" -}}
{{- $definitions := index . 0 -}}
{{- $rule := index . 1 -}}
{{- $value := index . 2 -}}
{{- $path := index . 3 -}}
{{- with get $rule "$ref" -}}
  {{- $rule = get $definitions (trimPrefix "#/definitions/" .) -}}
{{- end -}}
{{- $kind := kindOf $value -}}
{{- $type := get (dict "map" "object" "slice" "array" "string" "string" "bool" "boolean" "invalid" "null") $kind | default "number" -}}
{{- $types := kindIs "string" $rule.type | ternary (list $rule.type) $rule.type -}}
{{- if and (eq $type "number") (has "integer" ($types | default list)) (eq (floor $value) (float64 $value)) -}}
  {{- $type = "integer" -}}
{{- end -}}
{{- if and $types (not (has $type $types)) -}}
  {{- $words := dict "object" "a map" "array" "a list" "string" "text" "boolean" "true or false" "null" "null" "number" "a number" "integer" "a whole number" -}}
  {{- $wanted := list -}}
  {{- range without $types "null" -}}
    {{- $wanted = append $wanted (get $words .) -}}
  {{- end -}}
  {{- $remedy := get $rule "remedy" | default (printf "Set %s." (join " or " $wanted)) -}}
  {{- $fits := or (not $rule.pattern) (regexMatch ($rule.pattern | default "") (toString $value)) -}}
  {{- if include "slurm-charts.check.needlessQuotes" (list $value $types) -}}
    {{- $remedy = "Remove the quotes, or use --set." -}}
  {{- else if and (eq (join "" $wanted) "text") (has $type (list "number" "integer" "boolean")) (or $fits (not $rule.remedy)) -}}
    {{- $remedy = "Put it in quotes, or use --set-string." -}}
  {{- else if and (eq $type "boolean") (has "object" $types) (hasKey ($rule.properties | default dict) "enabled") -}}
    {{- $remedy = printf "Set %s.enabled." $path -}}
  {{- end -}}
  {{- include "slurm-charts.check.line" (list $path (printf "%s is not %s" (include "slurm-charts.check.shown" $value) (join " or " $wanted)) $remedy) -}}
{{- else if and (hasKey $rule "enum") (not (include "slurm-charts.check.listed" (list $value $rule.enum))) -}}
  {{- if $rule.former -}}
    {{- include "slurm-charts.check.line" (list $path "this chart has no such key" $rule.remedy) -}}
  {{- else -}}
    {{- $choices := list -}}
    {{- range $rule.enum -}}
      {{- if or (kindIs "float64" .) . }}{{ $choices = append $choices (toString .) }}{{ end -}}
    {{- end -}}
    {{- include "slurm-charts.check.line" (list $path (printf "%s is not possible" (include "slurm-charts.check.shown" $value)) (printf "Set one of: %s." (join ", " $choices))) -}}
  {{- end -}}
{{- else if eq $type "object" -}}
  {{- include "slurm-charts.check.object" (list $definitions $rule $value $path) -}}
{{- else if eq $type "array" -}}
  {{- $remedy := get $rule "remedy" -}}
  {{- $length := len $value -}}
  {{- if and (hasKey $rule "minItems") (lt $length (int $rule.minItems)) -}}
    {{- include "slurm-charts.check.line" (list $path (printf "the list has %d items, and needs %d" $length (int $rule.minItems)) ($remedy | default "Add items.")) -}}
  {{- else if and (hasKey $rule "maxItems") (gt $length (int $rule.maxItems)) -}}
    {{- include "slurm-charts.check.line" (list $path (printf "the list has %d items, and may have %d" $length (int $rule.maxItems)) ($remedy | default "Remove items.")) -}}
  {{- end -}}
  {{- if hasKey $rule "items" -}}
    {{- range $place, $item := $value -}}
      {{- include "slurm-charts.check" (list $definitions $rule.items $item (printf "%s[%d]" $path $place)) -}}
    {{- end -}}
  {{- end -}}
{{- else if eq $type "string" -}}
  {{- include "slurm-charts.check.string" (list $rule $value $path) -}}
{{- else if or (eq $type "integer") (eq $type "number") -}}
  {{- if and (hasKey $rule "minimum") (lt (float64 $value) (float64 $rule.minimum)) -}}
    {{- include "slurm-charts.check.line" (list $path (printf "%v is too small" $value) ($rule.remedy | default (printf "Set %v or more." $rule.minimum))) -}}
  {{- else if and (hasKey $rule "maximum") (gt (float64 $value) (float64 $rule.maximum)) -}}
    {{- include "slurm-charts.check.line" (list $path (printf "%v is too large" $value) ($rule.remedy | default (printf "Set at most %v." (int64 $rule.maximum)))) -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{- /* Like `slurm-charts.check`, for a map. Call with a list: definitions, rule, map, place. */}}
{{- define "slurm-charts.check.object" -}}
{{- $definitions := index . 0 -}}
{{- $rule := index . 1 -}}
{{- $path := index . 3 -}}
{{- $properties := get $rule "properties" | default dict -}}
{{- $others := get $rule "additionalProperties" -}}
{{- range $key, $value := index . 2 -}}
  {{- $here := empty $path | ternary $key (printf "%s.%s" $path $key) -}}
  {{- if hasKey $properties $key -}}
    {{- include "slurm-charts.check" (list $definitions (get $properties $key) $value $here) -}}
  {{- else if kindIs "map" $others -}}
    {{- include "slurm-charts.check" (list $definitions $others $value $here) -}}
  {{- else if and (hasKey $rule "additionalProperties") (not $others) -}}
    {{- include "slurm-charts.check.unknown" (list $definitions $properties $key $here) -}}
  {{- end -}}
  {{- with $rule.propertyNames -}}
    {{- $names := . -}}
    {{- with get . "$ref" -}}
      {{- $names = get $definitions (trimPrefix "#/definitions/" .) -}}
    {{- end -}}
    {{- include "slurm-charts.check.string" (list $names $key $here) -}}
  {{- end -}}
{{- end -}}
{{- $value := index . 2 -}}
{{- range concat ($rule.required | default list) ($rule.kept | default list) -}}
  {{- if or (not (hasKey $value .)) (kindIs "invalid" (get $value .)) -}}
    {{- if $path -}}
      {{- $here := printf "%s.%s" $path . -}}
      {{- include "slurm-charts.check.line" (list $here "the key is missing, or null" (printf "Set %s." $here)) -}}
    {{- else -}}
      {{- /* All keys at the top have defaults. */}}
      {{- include "slurm-charts.check.line" (list . "the key is missing, or null"
        "Remove the line, or set keys below it. With --reuse-values, use --reset-then-reuse-values instead.") -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- if and (hasKey $rule "minProperties") (lt (len $value) (int $rule.minProperties)) -}}
  {{- include "slurm-charts.check.line" (list $path "the map is empty" $rule.remedy) -}}
{{- end -}}
{{- end }}

{{- /* Like `slurm-charts.check`, for text. Call with a list: rule, text, place. */}}
{{- define "slurm-charts.check.string" -}}
{{- $rule := index . 0 -}}
{{- $value := index . 1 -}}
{{- $path := index . 2 -}}
{{- $problem := "" -}}
{{- if and $rule.pattern (not (regexMatch $rule.pattern $value)) -}}
  {{- $problem = "has a wrong form" -}}
{{- else if and (hasKey $rule "minLength") (lt (len $value) (int $rule.minLength)) -}}
  {{- $problem = "is too short" -}}
{{- else if and (hasKey $rule "maxLength") (gt (len $value) (int $rule.maxLength)) -}}
  {{- $problem = printf "has %d characters, and may have %d" (len $value) (int $rule.maxLength) -}}
{{- end -}}
{{- if $problem -}}
  {{- $remedy := $rule.remedy | default (eq $problem "is too short" | ternary "Set a text that is not empty." "Shorten it.") -}}
  {{- if include "slurm-charts.check.needlessQuotes" (list $value $rule.type) -}}
    {{- $remedy = "Remove the quotes, or use --set." -}}
  {{- end -}}
  {{- include "slurm-charts.check.line" (list $path (printf "%s %s" (include "slurm-charts.check.shown" $value) $problem) $remedy) -}}
{{- end -}}
{{- end }}

{{- /*
Like `slurm-charts.check`, for a key that no rule has: where the key belongs, else the key that is most like it, else all keys. Call
with a list: definitions, the map of rules by key, the key, its place.
*/}}
{{- define "slurm-charts.check.unknown" -}}
{{- $definitions := index . 0 -}}
{{- $key := index . 2 -}}
{{- $names := list -}}
{{- $parents := list -}}
{{- range $name, $rule := index . 1 -}}
  {{- if not $rule.former -}}
    {{- $names = append $names $name -}}
    {{- with get $rule "$ref" -}}
      {{- $rule = get $definitions (trimPrefix "#/definitions/" .) -}}
    {{- end -}}
    {{- $inner := get (get $rule "properties" | default dict) $key | default dict -}}
    {{- if and $inner (not $inner.former) -}}
      {{- $parents = append $parents (printf "`%s`" $name) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- $remedy := "" -}}
{{- $close := include "slurm-charts.check.close" (list $key $names) -}}
{{- if $parents -}}
  {{- $remedy = printf "%s into %s." (empty $close | ternary "Move it" (printf "Did you mean `%s`? Or move it" $close)) (join " or " $parents) -}}
{{- else -}}
  {{- with $close | default (include "slurm-charts.check.nearest" (list $key $names)) -}}
    {{- $remedy = printf "Did you mean `%s`?" . -}}
  {{- else -}}
    {{- $remedy = printf "Remove it, or use one of: %s." (join ", " $names) -}}
  {{- end -}}
{{- end -}}
{{- include "slurm-charts.check.line" (list (index . 3) "unknown key" $remedy) -}}
{{- end }}

{{- /*
The name that differs from a key the least, in one place with at most two letters, and in at most a third of them. Empty if none does.
Call with a list: the key, the names.
*/}}
{{- define "slurm-charts.check.close" -}}
{{- $key := index . 0 | lower -}}
{{- $best := "" -}}
{{- $least := min 2 (div (len $key) 3) | int -}}
{{- range $name := index . 1 -}}
  {{- $other := lower $name -}}
  {{- $both := min (len $key) (len $other) | int -}}
  {{- $start := 0 -}}
  {{- range $place := until $both -}}
    {{- if and (eq $start $place) (eq (substr $place (add1 $place | int) $key) (substr $place (add1 $place | int) $other)) }}{{ $start = add1 $place | int }}{{ end -}}
  {{- end -}}
  {{- $end := 0 -}}
  {{- range $place := until (sub $both $start | int) -}}
    {{- if and (eq $end $place) (hasSuffix (substr (sub (len $key) (add1 $place) | int) (len $key) $key) $other) }}{{ $end = add1 $place | int }}{{ end -}}
  {{- end -}}
  {{- $different := sub (max (len $key) (len $other)) (add $start $end) | int -}}
  {{- if or (lt $different $least) (and (eq $different $least) (not $best)) -}}
    {{- $best = $name -}}
    {{- $least = $different -}}
  {{- end -}}
{{- end -}}
{{- $best -}}
{{- end }}

{{- /*
The name most like a key, by pairs of neighbouring letters; a name of the same letters in another order wins, and one that begins
with the key. Empty if none is much like it. Call with a list: the key, the names.
*/}}
{{- define "slurm-charts.check.nearest" -}}
{{- $key := index . 0 | lower -}}
{{- $letters := splitList "" $key | sortAlpha | join "" -}}
{{- $best := "" -}}
{{- $most := 50 -}}
{{- range $name := index . 1 -}}
  {{- $other := lower $name -}}
  {{- $shared := 0 -}}
  {{- range $place := until (max (sub (len $key) 1) 0 | int) -}}
    {{- if contains (substr $place (add $place 2 | int) $key) $other }}{{ $shared = add $shared 1 }}{{ end -}}
  {{- end -}}
  {{- $score := div (mul 200 $shared) (max 1 (sub (add (len $key) (len $other)) 2)) -}}
  {{- if or (eq $letters (splitList "" $other | sortAlpha | join "")) (and (gt (len $key) 2) (hasPrefix $key $other)) }}{{ $score = 100 }}{{ end -}}
  {{- if gt (int $score) (int $most) -}}
    {{- $best = $name -}}
    {{- $most = $score -}}
  {{- end -}}
{{- end -}}
{{- $best -}}
{{- end }}

{{- /* "true" if a value is one of a list. Numbers count as their text. Call with a list: the value, the list. */}}
{{- define "slurm-charts.check.listed" -}}
{{- $text := index . 0 | toString -}}
{{- range index . 1 -}}
  {{- if eq (toString .) $text }}true{{ end -}}
{{- end -}}
{{- end }}

{{- /* "true" if a value is text that would be a value of the types without its quotes. Call with a list: the value, the types. */}}
{{- define "slurm-charts.check.needlessQuotes" -}}
{{- $types := kindIs "string" (index . 1) | ternary (list (index . 1)) (index . 1) | default list -}}
{{- $text := kindIs "string" (index . 0) | ternary (index . 0) "" -}}
{{- if or (and (has "boolean" $types) (has $text (list "true" "false")))
  (and (or (has "integer" $types) (has "number" $types)) (regexMatch "^(0|-?[1-9][0-9]*)$" $text)) -}}
  true
{{- end -}}
{{- end }}

{{- /* A value in a message: at most 60 characters of text, which is in double quotes. Call with the value. */}}
{{- define "slurm-charts.check.shown" -}}
{{- if kindIs "map" . -}}
  a map
{{- else if kindIs "slice" . -}}
  a list
{{- else if kindIs "invalid" . -}}
  `null`
{{- else if kindIs "string" . -}}
  "{{ . | replace "\n" " " | trunc 60 }}"
{{- else -}}
  `{{ . }}`
{{- end -}}
{{- end }}

{{- /* One line of the report. Call with a list: place, problem, remedy. */}}
{{- define "slurm-charts.check.line" -}}
{{- printf "  %s: %s. %s\n" (index . 0 | default "the values") (index . 1) (index . 2) -}}
{{- end }}

{{- /*
Checks the values of a chart, and fails with the lines for what is wrong. With `global.unknownKeys: warn`, unknown keys are no fault.
Call with a list: the rules, the values.
*/}}
{{- define "slurm-charts.check.values" -}}
{{- $lines := include "slurm-charts.check" (list (index . 0).definitions (index . 0) (index . 1) "") -}}
{{- if include "slurm-charts.check.warns" (index . 1) -}}
  {{- $lines = regexReplaceAll (include "slurm-charts.check.unknownLine" .) $lines "" -}}
{{- end -}}
{{- include "slurm-charts.check.fail" $lines -}}
{{- end }}

{{- /* "true" if unknown keys are only reported. Call with the values. */}}
{{- define "slurm-charts.check.warns" -}}
{{- if and (kindIs "map" .global) (eq (get (.global | default dict) "unknownKeys" | toString) "warn") }}true{{ end -}}
{{- end }}

{{- /* A line about an unknown key, as a regular expression. A line with a value in quotes is none. */}}
{{- define "slurm-charts.check.unknownLine" -}}
(?m)^  [^"`\n]*: unknown key\. .*\n
{{- end }}

{{- /* The unknown keys that `global.unknownKeys: warn` accepts, for the notes; empty without any. Call with the root context. */}}
{{- define "slurm-charts.unknownKeysNote" -}}
{{- if include "slurm-charts.check.warns" .Values -}}
  {{- $rules := .Files.Get "values-rules.json" | fromJson -}}
  {{- $lines := include "slurm-charts.check" (list $rules.definitions $rules .Values "") -}}
  {{- with regexFindAll (include "slurm-charts.check.unknownLine" .) $lines -1 }}
WARNING: This chart has no such keys, so these values have no effect:
{{ join "" . | trimSuffix "\n" }}
  {{- end -}}
{{- end -}}
{{- end }}

{{- /*
Fails with the lines. Does nothing without lines. Call with the lines. For `helm lint`, which only logs the failure and continues
to render, the result is text that is not YAML, so that it fails too.
*/}}
{{- define "slurm-charts.check.fail" -}}
{{- with trimSuffix "\n" . -}}
  {{- fail (printf "the values can't be used:\n%s" .) -}}
  {{- print "[ " -}}
{{- end -}}
{{- end }}
