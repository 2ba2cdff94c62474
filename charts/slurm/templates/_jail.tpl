{{- /* The shared root of jobs: the line of plugstack.conf, the volume of the workers, and the Job that fills it. */}}

{{- /* The folder of slurmd's container with the versions. */}}
{{- define "slurm.jail.folder" -}}
/var/lib/slurm-jail
{{- end }}

{{- /* What the plugin mounts in each jail, without configuration. */}}
{{- define "slurm.jail.always" -}}
/proc /sys /dev /run /tmp /var/spool/slurmd /etc/hosts /etc/hostname /etc/resolv.conf
{{- end }}

{{- /*
The line of plugstack.conf. It is required: a slurmd without the plugin doesn't start. It is the first line, so that other plugins
run in the jail. Call with the root context.
*/}}
{{- define "slurm.jail.plugstackConf" -}}
{{- $words := list (printf "root=%s" (include "slurm.jail.folder" .)) -}}
{{- range include "slurm.jail.mounts" . | fromYamlArray -}}
  {{- $words = append $words (printf "mount=%s" .) -}}
{{- end -}}
{{- range .Values.jail.allow -}}
  {{- $words = append $words (printf "allow=%s" .) -}}
{{- end -}}
required /usr/local/lib/slurm-containers/slurm_jail.so {{ join " " $words }}
{{ end }}

{{- /* The mounts of the values, and the cache of container images. Call with the root context. */}}
{{- define "slurm.jail.mounts" -}}
{{- $mounts := .Values.jail.mounts | default list -}}
{{- if .Values.containers.enabled -}}
  {{- $mounts = append $mounts (include "slurm.containers.folder" .) -}}
{{- end -}}
{{- toYaml $mounts -}}
{{- end }}

{{- /* The volume, as YAML. Call with the root context. */}}
{{- define "slurm.jail.volume" -}}
{{- $jail := .Values.jail -}}
name: jail
{{- if $jail.existingClaim }}
persistentVolumeClaim:
  claimName: {{ $jail.existingClaim }}
{{- else }}
hostPath:
  path: {{ toJson $jail.hostPath }}
  type: DirectoryOrCreate
{{- end }}
{{- end }}

{{- /*
Lines of sshd_config after `extra`: sessions of all users but root have the folder as root on which pam_slurm_jail mounts the
jail. Call with `extra`.
*/}}
{{- define "slurm.jail.sshdConfig" -}}
{{- with . }}{{ trimSuffix "\n" . }}
{{ end -}}
Match User *,!root
ChrootDirectory /var/lib/slurm-jail-session
{{- end }}

{{- /* A loginset whose sessions are in the jail. Call with a list: root context, the loginset. */}}
{{- define "slurm.loginWithJail" -}}
{{- $root := index . 0 -}}
{{- $set := index . 1 -}}
{{- $login := $set.login | default dict -}}
{{- $podSpec := $set.podSpec | default dict -}}
{{- $_ := set $podSpec "volumes" (append ($podSpec.volumes | default list) (include "slurm.jail.volume" $root | fromYaml)) -}}
{{- $_ := set $login "volumeMounts" (append ($login.volumeMounts | default list) (include "slurm.jail.mount" $root | fromYaml)) -}}
{{- $_ := set $set "extraSshdConfig" (include "slurm.jail.sshdConfig" $set.extraSshdConfig) -}}
{{- toYaml (mergeOverwrite $set (dict "login" $login "podSpec" $podSpec)) -}}
{{- end }}

{{- /* The mount of the volume. Call with the root context. */}}
{{- define "slurm.jail.mount" -}}
name: jail
mountPath: {{ include "slurm.jail.folder" . }}
{{- if not .Values.jail.writable }}
readOnly: true
{{- end }}
{{- end }}

{{- /* A nodeset with the volume. Call with a list: root context, the nodeset. */}}
{{- define "slurm.withJail" -}}
{{- $root := index . 0 -}}
{{- $set := index . 1 -}}
{{- $slurmd := $set.slurmd | default dict -}}
{{- $podSpec := $set.podSpec | default dict -}}
{{- $mount := include "slurm.jail.mount" $root | fromYaml -}}
{{- with $set.ssh -}}
  {{- if .enabled -}}
    {{- $_ := set . "extraSshdConfig" (include "slurm.jail.sshdConfig" .extraSshdConfig) -}}
  {{- end -}}
{{- end -}}
{{- $_ := set $podSpec "volumes" (append ($podSpec.volumes | default list) (include "slurm.jail.volume" $root | fromYaml)) -}}
{{- $_ := set $slurmd "volumeMounts" (append ($slurmd.volumeMounts | default list) $mount) -}}
{{- toYaml (mergeOverwrite $set (dict "slurmd" $slurmd "podSpec" $podSpec)) -}}
{{- end }}

{{- /* The image of slurmd, whose slurm-jail-fill fills the volume. Call with the root context. */}}
{{- define "slurm.jail.image" -}}
{{- $path := "nodesetDefaults.slurmd.image" -}}
{{- $found := include "slurm.images.daemon" (list . (.Values.nodesetDefaults.slurmd | default dict).image $path) | fromYaml -}}
{{- include "slurm.image" (list . $found.image $path) -}}
{{- end }}

{{- /* The spec of the Job. A change of it is another Job, see its name. Call with the root context. */}}
{{- define "slurm.jail.job" -}}
{{- $jail := .Values.jail -}}
backoffLimit: 3
activeDeadlineSeconds: {{ $jail.timeoutSeconds }}
template:
  metadata:
    labels:
      {{- include "slurm.identityLabels" (list "jail" (include "slurm.fullname" .)) | nindent 6 }}
  spec:
    restartPolicy: Never
    automountServiceAccountToken: false
    enableServiceLinks: false
    {{- with include "slurm-charts.imagePullSecrets" . }}
    imagePullSecrets:
      {{- . | nindent 6 }}
    {{- end }}
    nodeSelector:
      kubernetes.io/os: linux
    containers:
      - name: fill
        image: {{ include "slurm.jail.image" . }}
        imagePullPolicy: {{ .Values.imagePullPolicy }}
        command: [slurm-jail-fill]
        args:
          - --volume=/jail
          - --version={{ $jail.version }}
          {{- with $jail.image }}
          - {{ printf "--image=%s" . | quote }}
          {{- end }}
          {{- with $jail.tarball }}
          - {{ printf "--tarball=%s" . | quote }}
          {{- end }}
          {{- with $jail.claim.name }}
          - {{ join "/" (compact (list (printf "--claim=%s" .) $jail.claim.subPath)) | quote }}
          {{- end }}
          - --keep={{ $jail.keep }}
          - --seconds={{ $jail.timeoutSeconds }}
          {{- range include "slurm.jail.mounts" . | fromYamlArray }}
          - {{ printf "--mount=%s" . | quote }}
          {{- end }}
          {{- range $jail.allow }}
          - {{ printf "--protect=%s" . | quote }}
          {{- end }}
          {{- range $jail.insecureRegistries }}
          - {{ printf "--insecure-registry=%s" . | quote }}
          {{- end }}
          {{- if $jail.pullSecretName }}
          - --auth-file=/run/auth/config.json
          {{- end }}
        # Files of the jail belong to the users that the image names.
        securityContext:
          runAsUser: 0
          runAsGroup: 0
          allowPrivilegeEscalation: false
          readOnlyRootFilesystem: true
          capabilities:
            drop: [ALL]
            add: [CHOWN, DAC_OVERRIDE, FOWNER, FSETID, MKNOD, SETFCAP]
          seccompProfile:
            type: RuntimeDefault
        volumeMounts:
          - name: jail
            mountPath: /jail
          - name: tmp
            mountPath: /tmp
          {{- if $jail.claim.name }}
          - name: source
            mountPath: /source
            readOnly: true
            {{- with $jail.claim.subPath }}
            subPath: {{ . }}
            {{- end }}
          {{- end }}
          {{- if $jail.pullSecretName }}
          - name: auth
            mountPath: /run/auth
            readOnly: true
          {{- end }}
    volumes:
      - {{ include "slurm.jail.volume" . | nindent 8 | trim }}
      - name: tmp
        emptyDir: {}
      {{- with $jail.claim.name }}
      - name: source
        persistentVolumeClaim:
          claimName: {{ . }}
          readOnly: true
      {{- end }}
      {{- with $jail.pullSecretName }}
      - name: auth
        secret:
          secretName: {{ . }}
          items:
            - key: .dockerconfigjson
              path: config.json
      {{- end }}
{{- end }}

{{- /*
A line if sessions, which the chart has in the jail, have another ChrootDirectory before. Call with a list: path, map with
extraSshdConfig.
*/}}
{{- define "slurm.faults.jail.chroot" -}}
{{- $lines := get (index . 1 | default dict) "extraSshdConfig" | default "" -}}
{{- $found := regexFindAll `(?im)^[ \t]*ChrootDirectory\b` $lines -1 -}}
{{- if and (contains "/var/lib/slurm-jail-session" $lines) (gt (len $found) 1) -}}
  {{- include "slurm-charts.check.line" (list (printf "%s.extraSshdConfig" (index . 0)) "ChrootDirectory moves sessions out of the jail"
    "Remove ChrootDirectory.") -}}
{{- end -}}
{{- end }}

{{- /* A line for each value with which no job could have the shared root. Call with the root context. */}}
{{- define "slurm.faults.jail" -}}
{{- $jail := .Values.jail -}}
{{- if $jail.enabled -}}
  {{- if .Values.controller.external -}}
    {{- include "slurm-charts.check.line" (list "jail.enabled" "workers get plugstack.conf from slurmctld, which is external"
      "Set jail.enabled to false.") -}}
  {{- end -}}
  {{- $conf := include "slurm.slurmConf" . -}}
  {{- $place := ternary "controller.extraConfMap" "controller.extraConf" (empty .Values.controller.extraConf) -}}
  {{- range regexFindAll `(?im)^[ \t]*(Namespace|JobContainer)Type[ \t]*=[ \t]*[^\s#]+` $conf -1 -}}
    {{- if not (hasSuffix "/none" (lower .)) -}}
      {{- include "slurm-charts.check.line" (list $place (printf "`%s` moves tasks out of the jail" (trim .)) "Remove it, or set jail.enabled to false.") -}}
    {{- end -}}
  {{- end -}}
  {{- include "slurm.faults.plugStackConfig" . -}}
  {{- if not $jail.version -}}
    {{- include "slurm-charts.check.line" (list "jail.version" "jobs need a version to see" "Set a name, for example `v1`.") -}}
  {{- else if eq $jail.version "none" -}}
    {{- include "slurm-charts.check.line" (list "jail.version" "`none` is the root of the worker in --jail" "Set another name, for example `v1`.") -}}
  {{- end -}}
  {{- if and $jail.existingClaim $jail.hostPath -}}
    {{- include "slurm-charts.check.line" (list "jail" "existingClaim and hostPath exclude each other" "Set one of them to null.") -}}
  {{- else if not (or $jail.existingClaim $jail.hostPath) -}}
    {{- include "slurm-charts.check.line" (list "jail" "no volume is set, which all workers must share" "Set existingClaim to a claim with access mode ReadWriteMany.") -}}
  {{- end -}}
  {{- if gt (len (compact (list $jail.image $jail.tarball $jail.claim.name))) 1 -}}
    {{- include "slurm-charts.check.line" (list "jail" "image, tarball and claim.name exclude each other" "Set all but one of them to null.") -}}
  {{- end -}}
  {{- if and $jail.claim.subPath (not $jail.claim.name) -}}
    {{- include "slurm-charts.check.line" (list "jail.claim.subPath" "the claim is missing" "Set jail.claim.name.") -}}
  {{- end -}}
  {{- if and $jail.claim.name (eq $jail.claim.name ($jail.existingClaim | default "")) -}}
    {{- include "slurm-charts.check.line" (list "jail.claim.name" "this is the volume of the jail" "Set another claim. To see an older version, set jail.version alone.") -}}
  {{- end -}}
  {{- range $path, $value := dict "jail.tarball" $jail.tarball "jail.claim.subPath" $jail.claim.subPath -}}
    {{- if regexMatch "(^|/)[.][.](/|$)" ($value | default "") -}}
      {{- include "slurm-charts.check.line" (list $path (printf "`%s` contains `..`" $value) "Set a path on the volume.") -}}
    {{- end -}}
  {{- end -}}
  {{- $always := splitList " " (include "slurm.jail.always" .) -}}
  {{- $volume := printf "%s/" (include "slurm.jail.folder" .) -}}
  {{- range $place, $mount := $jail.mounts | default list -}}
    {{- $path := printf "jail.mounts[%d]" $place -}}
    {{- if regexMatch "(^|/)[.][.]?(/|$)|//|/$" $mount -}}
      {{- include "slurm-charts.check.line" (list $path (printf "`%s` isn't written in full" $mount) "Set an absolute path without `..`, `//` and a `/` at its end.") -}}
    {{- else if has $mount $always -}}
      {{- include "slurm-charts.check.line" (list $path (printf "`%s` is always mounted" $mount) "Remove it.") -}}
    {{- else if or (hasPrefix $volume (printf "%s/" $mount)) (hasPrefix (printf "%s/" $mount) $volume) -}}
      {{- include "slurm-charts.check.line" (list $path (printf "`%s` and the jail's volume contain each other" $mount) "Remove it.") -}}
    {{- end -}}
  {{- end -}}
  {{- $images := list (list "nodesetDefaults.slurmd.image" .Values.nodesetDefaults.slurmd) -}}
  {{- range $key, $set := include "slurm.nodesets" . | fromYaml -}}
    {{- $images = append $images (list (printf "nodesets.%s.slurmd.image" $key) $set.slurmd) -}}
    {{- include "slurm.faults.jail.chroot" (list (printf "nodesets.%s.ssh" $key) $set.ssh) -}}
    {{- if eq (toString (($set.slurmd | default dict).securityContext | default dict).privileged) "false" -}}
      {{- include "slurm-charts.check.line" (list (printf "nodesets.%s.slurmd.securityContext.privileged" $key)
        "an unprivileged slurmd can't change the root of jobs, which jail.enabled needs" "Set it to true, or jail.enabled to false.") -}}
    {{- end -}}
  {{- end -}}
  {{- range $key, $set := include "slurm.loginsets" . | fromYaml -}}
    {{- $images = append $images (list (printf "loginsets.%s.login.image" $key) $set.login) -}}
    {{- include "slurm.faults.jail.chroot" (list (printf "loginsets.%s" $key) $set) -}}
    {{- if and $jail.login (ne (toString (($set.login | default dict).securityContext | default dict).privileged) "true") -}}
      {{- include "slurm-charts.check.line" (list (printf "loginsets.%s.login.securityContext.privileged" $key)
        "an unprivileged login pod can't change the root of sessions, which jail.login needs" "Set it to true, or jail.login to false.") -}}
    {{- end -}}
  {{- end -}}
  {{- range $images -}}
    {{- $path := index . 0 -}}
    {{- $found := include "slurm.images.daemon" (list $ (index . 1 | default dict).image $path) | fromYaml -}}
    {{- if and (kindIs "map" $found.image) (hasPrefix "ghcr.io/slinkyproject/" ($found.image.repository | default "")) -}}
      {{- include "slurm-charts.check.line" (list $path "SchedMD's images have no slurm_jail.so, which jail.enabled needs"
        (ternary "Set it to an image with slurm_jail.so and Pyxis, or jail.enabled to false."
          (printf "Set %s to this project's image, or to one with slurm_jail.so." $path) ($.Values.pyxis.enabled | default false))) -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- end }}
