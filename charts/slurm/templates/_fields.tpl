{{- /*
Generated from schemas/crds and schemas/fields.tpl by `make generate`. Edit those instead.

The fields of an object of a custom resource that the values have and that aren't empty, as YAML. Call with a list: the place
of the object, such as `NodeSet.gpu`, and its values (may be null).
*/}}
{{- define "slurm.passed" -}}
{{- $names := dict
  "Controller" (list "extraConf" "persistence" "constrainJobs" "slurmctld" "service" "ha" "autoscaling" "metrics" "configUpdate" "inplaceReconfigure" "reconfigure" "logfile" "external" "externalConfig")
  "Controller.persistence" (list "storageClassName" "accessModes" "resources" "selector" "dataSource" "dataSourceRef" "volumeMode" "volumeName" "volumeAttributesClassName" "enabled" "existingClaim")
  "Controller.service" (list "metadata" "spec" "port" "nodePort")
  "Controller.service.metadata" (list "labels" "annotations")
  "Controller.ha" (list "enabled" "backups")
  "Controller.autoscaling" (list "budget")
  "Controller.metrics" (list "enabled" "serviceMonitor")
  "Controller.metrics.serviceMonitor" (list "enabled" "annotations" "labels" "interval" "scrapeTimeout" "endpoints")
  "Controller.externalConfig" (list "host" "port")
  "Accounting" (list "storageConfig" "extraConf" "slurmdbd" "service" "external" "externalConfig")
  "Accounting.storageConfig" (list "host" "port" "database" "username" "passwordKeyRef" "tls")
  "Accounting.storageConfig.passwordKeyRef" (list "name" "key" "optional")
  "Accounting.storageConfig.tls" (list "caKeyRef" "clientSecretRef")
  "Accounting.storageConfig.tls.caKeyRef" (list "name" "key" "optional")
  "Accounting.storageConfig.tls.clientSecretRef" (list "name")
  "Accounting.service" (list "metadata" "spec" "port" "nodePort")
  "Accounting.service.metadata" (list "labels" "annotations")
  "Accounting.externalConfig" (list "host" "port")
  "RestApi" (list "replicas" "slurmrestd" "service")
  "RestApi.service" (list "metadata" "spec" "port" "nodePort")
  "RestApi.service.metadata" (list "labels" "annotations")
  "LoginSet" (list "replicas" "login" "initconf" "rootSshAuthorizedKeys" "extraSshdConfig" "strategy" "service")
  "LoginSet.service" (list "metadata" "spec" "port" "nodePort")
  "LoginSet.service.metadata" (list "labels" "annotations")
  "NodeSet" (list "replicas" "gpu" "slurmd" "extraConf" "partition" "autoscaling" "scalingMode" "powerSaving" "volumeClaimTemplates" "persistentVolumeClaimRetentionPolicy" "updateStrategy" "health" "ssh" "jobLogs" "ordinalPadding" "pinToNode" "oversubscribeNode" "workloadDisruptionProtection" "nodeRecords" "pruneSlurmNodeRecords" "deletionTimeout" "minReadySeconds" "revisionHistoryLimit" "logfile")
  "NodeSet.gpu" (list "enabled" "count" "expected" "type" "resourceName" "onMismatch" "autoDetect" "devices")
  "NodeSet.partition" (list "enabled" "config")
  "NodeSet.autoscaling" (list "min" "max" "node" "price" "idleSeconds" "coolDownSeconds" "stepSeconds" "maxStepUp" "maxStepDown" "capacityWaitSeconds" "windows")
  "NodeSet.powerSaving" (list "enabled" "min" "idleSeconds" "startSeconds" "capacityWaitSeconds" "retrySeconds" "startAheadSeconds" "node" "price")
  "NodeSet.persistentVolumeClaimRetentionPolicy" (list "whenDeleted" "whenScaled")
  "NodeSet.updateStrategy" (list "type" "rollingUpdate" "scheduledUpdate")
  "NodeSet.updateStrategy.rollingUpdate" (list "maxUnavailable")
  "NodeSet.updateStrategy.scheduledUpdate" (list "startTime" "duration" "flags")
  "NodeSet.health" (list "enabled" "checkSeconds" "skip" "disks" "diskFreePercent" "memoryFreePercent" "paths" "xids" "checks")
  "NodeSet.ssh" (list "enabled" "extraSshdConfig")
  "NodeSet.jobLogs" (list "enabled" "privateFiles" "bytesPerSecond" "backlogBytes")
  "Token" (list "username" "lifetime" "refresh" "secretRef")
  "Token.secretRef" (list "name" "key" "optional")
-}}
{{- include "slurm.fields" (concat (list (last .)) (get $names (first .))) -}}
{{- end }}
