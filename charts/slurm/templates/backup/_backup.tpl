{{- /* The pods that make and restore backups. */}}

{{- /* Names of the CronJob and of the claim of the backups, and of the CronJob that restores. Call with the root context. */}}
{{- define "slurm.backup.name" -}}
{{- printf "%s-backup" (include "slurm.fullname" .) -}}
{{- end }}

{{- define "slurm.restore.name" -}}
{{- printf "%s-restore" (include "slurm.fullname" .) -}}
{{- end }}

{{- define "slurm.backup.claim" -}}
{{- .Values.backup.persistence.existingClaim | default (include "slurm.backup.name" .) -}}
{{- end }}

{{- /* "true" if slurmctld's state is saved: it is on a claim of this release. Call with the root context. */}}
{{- define "slurm.backup.state" -}}
{{- if not .Values.controller.external }}true{{ end -}}
{{- end }}

{{- /* "true" if the database is saved: slurmdbd is one of this release. Call with the root context. */}}
{{- define "slurm.backup.database" -}}
{{- if and .Values.accounting.enabled (not .Values.accounting.external) }}true{{ end -}}
{{- end }}

{{- /* The claim with slurmctld's state. Call with the root context. */}}
{{- define "slurm.backup.stateClaim" -}}
{{- .Values.controller.persistence.existingClaim | default (printf "statesave-%s-controller-0" (include "slurm.fullname" .)) -}}
{{- end }}

{{- /* A line for each value with which no backup is possible. Call with the root context. */}}
{{- define "slurm.faults.backup" -}}
{{- if .Values.backup.enabled -}}
  {{- if not (or (include "slurm.backup.state" .) (include "slurm.backup.database" .)) -}}
    {{- include "slurm-charts.check.line" (list "backup.enabled" "slurmctld and slurmdbd are external, so this release has nothing to save" "Set it to false.") -}}
  {{- else if and (include "slurm.backup.state" .) (not .Values.controller.persistence.enabled) -}}
    {{- include "slurm-charts.check.line" (list "backup.enabled" "slurmctld's state is on no volume" "Set controller.persistence.enabled to true.") -}}
  {{- end -}}
  {{- if and (include "slurm.backup.state" .) (has "ReadWriteOncePod" (.Values.controller.persistence.accessModes | default list)) -}}
    {{- include "slurm-charts.check.line" (list "controller.persistence.accessModes" "only the pod of slurmctld can read a volume with ReadWriteOncePod, and a backup has a pod of its own" "Set [ReadWriteOnce].") -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{- /* What all containers of these pods have, as YAML. Call with the root context. */}}
{{- define "slurm.backup.confined" -}}
imagePullPolicy: {{ .Values.imagePullPolicy }}
{{- with .Values.backup.resources }}
resources:
  {{- toYaml . | nindent 2 }}
{{- end }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end }}

{{- define "slurm.backup.image" -}}
{{- $image := .Values.backup.image -}}
{{- if kindIs "map" $image -}}
  {{- $image = mergeOverwrite (deepCopy $image) (dict "tag" ($image.tag | default .Chart.Version)) -}}
{{- end -}}
{{- include "slurm.image" (list . $image "backup.image") -}}
{{- end }}

{{- /*
The spec of a Job, up to its containers, which the caller appends. Call with a list: root context, what the pod does, which is
`backup`, `restore` or `restore-database`.
*/}}
{{- define "slurm.backup.job" -}}
{{- $root := index . 0 -}}
{{- $backup := $root.Values.backup -}}
{{- $stem := include "slurm.fullname" $root -}}
backoffLimit: 1
activeDeadlineSeconds: {{ $backup.timeoutSeconds }}
{{- if and $backup.s3.bucket (eq (index . 1) "backup") }}
# The backup on the volume is complete. Another pod would create one more; the next backup copies this one too.
podFailurePolicy:
  rules:
    - action: FailJob
      onExitCodes:
        containerName: copy
        operator: NotIn
        values: [0]
{{- end }}
template:
  metadata:
    labels:
      {{- include "slurm.identityLabels" (list (index . 1) $stem) | nindent 6 }}
  spec:
    restartPolicy: Never
    {{- with $backup.serviceAccountName }}
    serviceAccountName: {{ . }}
    {{- end }}
    automountServiceAccountToken: false
    enableServiceLinks: false
    {{- with include "slurm-charts.imagePullSecrets" $root }}
    imagePullSecrets:
      {{- . | nindent 6 }}
    {{- end }}
    {{- if $root.Values.priorityClass.enabled }}
    priorityClassName: {{ $root.Values.priorityClass.name }}
    {{- end }}
    # slurmctld's user, who alone can read its state.
    securityContext:
      runAsNonRoot: true
      runAsUser: 401
      runAsGroup: 401
      fsGroup: 401
      fsGroupChangePolicy: OnRootMismatch
      seccompProfile:
        type: RuntimeDefault
    {{- with include "slurm.fields" (list $backup "nodeSelector" "tolerations") }}
    {{- . | nindent 4 }}
    {{- end }}
    {{- if include "slurm.backup.state" $root }}
    # A volume with ReadWriteOnce can be mounted on one Kubernetes node at a time.
    affinity:
      podAffinity:
        preferredDuringSchedulingIgnoredDuringExecution:
          - weight: 100
            podAffinityTerm:
              topologyKey: kubernetes.io/hostname
              labelSelector:
                matchLabels:
                  {{- include "slurm.selectorLabels" (list "slurmctld" $stem) | nindent 18 }}
    {{- end }}
    volumes:
      - name: backup
        persistentVolumeClaim:
          claimName: {{ include "slurm.backup.claim" $root }}
      {{- if and $backup.s3.bucket $backup.s3.caConfigMapName }}
      - name: ca
        configMap:
          name: {{ $backup.s3.caConfigMapName }}
          items:
            - key: ca.crt
              path: ca.crt
      {{- end }}
      {{- if eq (index . 1) "restore-database" }}
      - name: chosen
        emptyDir: {}
      {{- end }}
      {{- if and (ne (index . 1) "restore-database") (include "slurm.backup.state" $root) }}
      - name: statesave
        persistentVolumeClaim:
          claimName: {{ include "slurm.backup.stateClaim" $root }}
      {{- end }}
      {{- if and (ne (index . 1) "restore") (include "slurm.backup.database" $root) }}
      {{- $storage := include "slurm.storageConfig" $root | fromYaml }}
      {{- $password := $storage.passwordKeyRef }}
      - name: password
        secret:
          secretName: {{ $password.name }}
          defaultMode: 0440
          items:
            - key: {{ $password.key | default "password" }}
              path: password
      {{- with $storage.tls }}
      - name: database-tls
        projected:
          defaultMode: 0440
          sources:
            - secret:
                name: {{ .caKeyRef.name }}
                items:
                  - key: {{ .caKeyRef.key }}
                    path: ca.crt
            {{- with .clientSecretRef }}
            - secret:
                name: {{ .name }}
                items:
                  - key: tls.crt
                    path: tls.crt
                  - key: tls.key
                    path: tls.key
            {{- end }}
      {{- end }}
      {{- end }}
{{- end }}

{{- /* Where the containers with the database's client mount its password and certificates, as YAML. Call with the root context. */}}
{{- define "slurm.backup.clientMounts" -}}
- name: password
  mountPath: /run/password
  readOnly: true
{{- if (include "slurm.storageConfig" . | fromYaml).tls }}
- name: database-tls
  mountPath: /run/database-tls
  readOnly: true
{{- end }}
{{- end }}

{{- /* How the containers with the database's client reach it, as YAML. Call with the root context. */}}
{{- define "slurm.backup.client" -}}
{{- $storage := include "slurm.storageConfig" . | fromYaml -}}
- name: DATABASE_HOST
  value: {{ $storage.host | toJson }}
- name: DATABASE_PORT
  value: {{ $storage.port | default 3306 | toString | quote }}
- name: DATABASE_NAME
  value: {{ $storage.database | default "slurm_acct_db" | toJson }}
- name: DATABASE_USER
  value: {{ $storage.username | default "slurm" | toJson }}
- name: PASSWORD_FILE
  value: /run/password/password
{{- with $storage.tls }}
- name: TLS_CA_FILE
  value: /run/database-tls/ca.crt
{{- if .clientSecretRef }}
- name: TLS_CERT_FILE
  value: /run/database-tls/tls.crt
- name: TLS_KEY_FILE
  value: /run/database-tls/tls.key
{{- end }}
{{- end }}
{{- end }}

{{- define "slurm.backup.pod" -}}
- name: POD
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
{{- end }}

{{- /* The containers of a backup. Call with the root context. */}}
{{- define "slurm.backup.containers" -}}
{{- $backup := .Values.backup -}}
initContainers:
  - name: state
    image: {{ include "slurm.backup.image" . }}
    args:
      - backup
      - state
      - --pod=$(POD)
      {{- if include "slurm.backup.state" . }}
      - --state=/statesave
      {{- if .Values.accounting.enabled }}
      - --accounting
      {{- end }}
      {{- end }}
      # After this time, no pod of a former backup runs.
      - --abandoned-after={{ add $backup.timeoutSeconds 60 }}
    env:
      {{- include "slurm.backup.pod" . | nindent 6 }}
    {{- include "slurm.backup.confined" . | nindent 4 }}
    volumeMounts:
      - name: backup
        mountPath: /backup
      {{- if include "slurm.backup.state" . }}
      - name: statesave
        mountPath: /statesave
        readOnly: true
      {{- end }}
  {{- if include "slurm.backup.database" . }}
  - name: database
    image: {{ include "slurm.image" (list . .Values.accounting.mariadb.image "accounting.mariadb.image") }}
    command:
      - /bin/sh
      - -c
      - |
        {{- .Files.Get "files/backup-database.sh" | nindent 8 }}
    env:
      {{- include "slurm.backup.pod" . | nindent 6 }}
      {{- include "slurm.backup.client" . | nindent 6 }}
    {{- include "slurm.backup.confined" . | nindent 4 }}
    volumeMounts:
      - name: backup
        mountPath: /backup
      {{- include "slurm.backup.clientMounts" . | nindent 6 }}
  {{- end }}
{{- $finish := include "slurm.backup.finish" . -}}
{{- if $backup.s3.bucket }}
  {{- $finish | nindent 2 }}
containers:
  {{- include "slurm.backup.store" (list . "copy") | nindent 2 }}
{{- else }}
containers:
  {{- $finish | nindent 2 }}
{{- end }}
{{- end }}

{{- define "slurm.backup.finish" -}}
{{- $backup := .Values.backup -}}
- name: finish
  image: {{ include "slurm.backup.image" . }}
  args:
    - backup
    - finish
    - --pod=$(POD)
    - --keep={{ $backup.keep }}
    {{- if include "slurm.backup.database" . }}
    - --database
    {{- end }}
  env:
    {{- include "slurm.backup.pod" . | nindent 4 }}
  {{- include "slurm.backup.confined" . | nindent 2 }}
  volumeMounts:
    - name: backup
      mountPath: /backup
{{- end }}

{{- /* A container that copies backups to or from the bucket. Call with a list: root context, `copy` or `fetch`. */}}
{{- define "slurm.backup.store" -}}
{{- $root := index . 0 -}}
{{- $way := index . 1 -}}
{{- $s3 := $root.Values.backup.s3 -}}
- name: {{ $way }}
  image: {{ include "slurm.backup.image" $root }}
  args:
    - backup
    - {{ $way }}
    - {{ printf "--bucket=%s" $s3.bucket | quote }}
    - {{ printf "--prefix=%s" ($s3.prefix | default (printf "%s/%s" (include "slurm.namespace" $root) (include "slurm.fullname" $root))) | quote }}
    {{- with $s3.endpoint }}
    - {{ printf "--endpoint=%s" . | quote }}
    {{- end }}
    - {{ printf "--region=%s" $s3.region | quote }}
    {{- if eq $way "copy" }}
    - --keep={{ $s3.keep }}
    {{- else }}
    - --pod=$(POD)
    - $(BACKUP)
    {{- end }}
  {{- if or (eq $way "fetch") $s3.secretName $s3.caConfigMapName }}
  env:
    {{- if eq $way "fetch" }}
    {{- include "slurm.backup.pod" $root | nindent 4 }}
    - name: BACKUP
      value: latest
    {{- end }}
    {{- with $s3.secretName }}
    {{- $secret := . }}
    {{- range list "AWS_ACCESS_KEY_ID" "AWS_SECRET_ACCESS_KEY" }}
    - name: {{ . }}
      valueFrom:
        secretKeyRef:
          name: {{ $secret }}
          key: {{ . }}
    {{- end }}
    {{- end }}
    {{- if $s3.caConfigMapName }}
    - name: SSL_CERT_FILE
      value: /run/ca/ca.crt
    {{- end }}
  {{- end }}
  {{- include "slurm.backup.confined" $root | nindent 2 }}
  volumeMounts:
    - name: backup
      mountPath: /backup
    {{- if $s3.caConfigMapName }}
    - name: ca
      mountPath: /run/ca
      readOnly: true
    {{- end }}
{{- end }}
