{{- /* The volume of slurmdbd's archives: what it purges from the database. */}}

{{- /* Where it is in slurmdbd's container. */}}
{{- define "slurm.archive.folder" -}}
/var/spool/slurm-archive
{{- end }}

{{- /* Name of a new claim. Call with the root context. */}}
{{- define "slurm.archive.name" -}}
{{- printf "%s-accounting-archive" (include "slurm.fullname" .) -}}
{{- end }}

{{- define "slurm.archive.claim" -}}
{{- .Values.accounting.archive.persistence.existingClaim | default (include "slurm.archive.name" .) -}}
{{- end }}

{{- /* A line for each value that contradicts the archive. Call with the root context. */}}
{{- define "slurm.faults.archive" -}}
{{- $accounting := .Values.accounting -}}
{{- $own := regexMatch `(?im)^\s*ArchiveDir\s*=` ($accounting.extraConf | default "") -}}
{{- range $key, $_ := $accounting.extraConfMap | default dict -}}
  {{- $own = or $own (eq (lower $key) "archivedir") -}}
{{- end -}}
{{- if ($accounting.archive | default dict).enabled -}}
  {{- if $accounting.external -}}
    {{- include "slurm-charts.check.line" (list "accounting.archive.enabled" "slurmdbd is external, so this release has nothing to archive" "Set it to false.") -}}
  {{- else if $own -}}
    {{- include "slurm-charts.check.line" (list "accounting.archive.enabled" "ArchiveDir is set in slurmdbd.conf, too" "Remove it from accounting.extraConf or accounting.extraConfMap.") -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{- /* "true" if slurmdbd archives into its pod, where a restart deletes it. Call with the root context. */}}
{{- define "slurm.archive.lost" -}}
{{- $accounting := .Values.accounting -}}
{{- $conf := include "slurm.conf" (list $accounting.extraConf $accounting.extraConfMap "\n" "accounting.extraConfMap") -}}
{{- $archives := regexMatch `(?im)^\s*Archive(Events|Jobs|Resvs|Steps|Suspend|TXN|Usage)\s*=\s*(yes|true|1)\b` $conf -}}
{{- $lasts := or ($accounting.archive | default dict).enabled (regexMatch `(?im)^\s*ArchiveDir\s*=` $conf) -}}
{{- if and $accounting.enabled (not $accounting.external) $archives (not $lasts) }}true{{ end -}}
{{- end }}
