{{- /*
GPU instances of Google Kubernetes Engine: what Google requires of a pod that uses their GPUs and network interfaces, in the shape
of a nodeset's values (https://cloud.google.com/kubernetes-engine/docs/how-to/gpu-bandwidth-gpudirect-tcpx).
*/}}

{{- /*
A nodeset with what its instances need. Maps are merged, lists too, item by item. Google's values replace those of the nodeset.
Call with a list: root context, key of the nodeset, the nodeset.
*/}}
{{- define "slurm.withGoogleInstances" -}}
{{- $google := (index . 0).Values.vendor.google | default dict -}}
{{- $key := index . 1 -}}
{{- $set := index . 2 -}}
{{- range $vendor := list "a3mega" "a3ultra" -}}
  {{- range $instances := get $google $vendor | default list -}}
    {{- if eq $instances.targetNodeSet $key -}}
      {{- $overlay := include (printf "slurm.google.%s" $vendor) $instances | fromYaml -}}
      {{- range ($overlay.podSpec | default dict).containers -}}
        {{- $_ := set . "image" (include "slurm-charts.atRegistry" (list (index $ 0) .image)) -}}
      {{- end -}}
      {{- range $path := list (list "slurmd" "env") (list "slurmd" "volumeMounts") (list "podSpec" "containers") (list "podSpec" "volumes") -}}
        {{- $theirs := get $overlay (first $path) -}}
        {{- $names := list -}}
        {{- range get $theirs (last $path) | default list }}{{ $names = append $names .name }}{{ end -}}
        {{- $items := list -}}
        {{- range get (get $set (first $path) | default dict) (last $path) | default list -}}
          {{- if not (has .name $names) }}{{ $items = append $items . }}{{ end -}}
        {{- end -}}
        {{- with concat $items (get $theirs (last $path) | default list) -}}
          {{- $_ := set $theirs (last $path) . -}}
        {{- end -}}
      {{- end -}}
      {{- $set = mergeOverwrite $set $overlay -}}
    {{- end -}}
  {{- end -}}
{{- end -}}
{{- toYaml $set -}}
{{- end }}

{{- /* The annotation with the network of each interface. Call with a list: the networks, the names of the interfaces. */}}
{{- define "slurm.google.interfaces" -}}
{{- $interfaces := list -}}
{{- range $place, $network := index . 0 -}}
  {{- $interfaces = append $interfaces (dict "interfaceName" (index (index $ 1 | splitList " ") $place) "network" $network) -}}
{{- end -}}
{{- toJson $interfaces -}}
{{- end }}

{{- /* A3 Mega: 8 H100 GPUs, GPUDirect-TCPXO with a daemon of its own. Call with an item of `vendor.google.a3mega`. */}}
{{- define "slurm.google.a3mega" -}}
metadata:
  annotations:
    devices.gke.io/container.tcpxo-daemon: |
      {{- range $gpu := until 8 }}
      - path: /dev/nvidia{{ $gpu }}
      {{- end }}
      - path: /dev/nvidiactl
      - path: /dev/nvidia-uvm
      - path: /dev/dmabuf_import_helper
    networking.gke.io/default-interface: eth0
    networking.gke.io/interfaces: {{ include "slurm.google.interfaces" (list .networks "eth0 eth1 eth2 eth3 eth4 eth5 eth6 eth7 eth8") | quote }}
extraConfMap:
  Gres: gpu:nvidia_h100_80gb_hbm3:8
slurmd:
  env:
    - name: LD_LIBRARY_PATH
      value: /usr/local/nvidia/lib64
    - name: NCCL_FASTRAK_LLCM_DEVICE_DIRECTORY
      value: /dev/aperture_devices
  resources:
    requests: {nvidia.com/gpu: 8}
    limits: {nvidia.com/gpu: 8}
  volumeMounts:
    - name: aperture-devices
      mountPath: /dev/aperture_devices
podSpec:
  nodeSelector:
    cloud.google.com/gke-nodepool: {{ .nodePool | quote }}
  containers:
    - name: tcpxo-daemon
      image: us-docker.pkg.dev/gce-ai-infra/gpudirect-tcpxo/tcpgpudmarxd-dev:v1.0.21
      imagePullPolicy: Always
      command: [/bin/sh, -c]
      args:
        - |
          set -ex
          chmod 755 /fts/entrypoint_rxdm_container.sh
          /fts/entrypoint_rxdm_container.sh --num_hops=2 --num_nics=8 --uid= --alsologtostderr
      env:
        - name: LD_LIBRARY_PATH
          value: /usr/local/nvidia/lib64
      securityContext:
        capabilities:
          add: [NET_ADMIN, NET_BIND_SERVICE]
      volumeMounts:
        - name: libraries
          mountPath: /usr/local/nvidia/lib64
        - name: sys
          mountPath: /hostsysfs
        - name: proc-sys
          mountPath: /hostprocsysfs
  volumes:
    - name: libraries
      hostPath: {path: /home/kubernetes/bin/nvidia/lib64}
    - name: sys
      hostPath: {path: /sys}
    - name: proc-sys
      hostPath: {path: /proc/sys}
    - name: aperture-devices
      hostPath: {path: /dev/aperture_devices}
{{- end }}

{{- /* A3 Ultra: 8 H200 GPUs, RDMA. eth1 is not an interface of the pod. Call with an item of `vendor.google.a3ultra`. */}}
{{- define "slurm.google.a3ultra" -}}
metadata:
  annotations:
    networking.gke.io/default-interface: eth0
    networking.gke.io/interfaces: {{ include "slurm.google.interfaces" (list .networks "eth0 eth2 eth3 eth4 eth5 eth6 eth7 eth8 eth9") | quote }}
extraConfMap:
  Gres: gpu:nvidia_h200:8
slurmd:
  env:
    - name: LD_LIBRARY_PATH
      value: /usr/local/nvidia/lib64
    - name: PATH
      value: /usr/local/nvidia/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin
  resources:
    requests: {nvidia.com/gpu: 8}
    limits: {nvidia.com/gpu: 8}
  volumeMounts:
    - name: library-dir-host
      mountPath: /usr/local/nvidia
    - name: gib
      mountPath: /usr/local/gib
podSpec:
  nodeSelector:
    cloud.google.com/gke-nodepool: {{ .nodePool | quote }}
  volumes:
    - name: library-dir-host
      hostPath: {path: /home/kubernetes/bin/nvidia}
    - name: gib
      hostPath: {path: /home/kubernetes/bin/gib}
    - name: sys
      hostPath: {path: /sys}
    - name: proc-sys
      hostPath: {path: /proc/sys}
{{- end }}

{{- /*
Name of the ConfigMap with gres.conf for these instances. Empty if the values have a gres.conf, or if the operator writes the
same line for the GPUs of another nodeset. Call with the root context.
*/}}
{{- define "slurm.google.config" -}}
{{- $google := .Values.vendor.google | default dict -}}
{{- if and (or $google.a3mega $google.a3ultra) (not (hasKey (.Values.configFiles | default dict) "gres.conf")) -}}
  {{- $written := false -}}
  {{- range include "slurm.nodesets" . | fromYaml -}}
    {{- if and (.gpu | default dict).enabled (not (include "slurm.google.gpuLines" .gpu)) }}{{ $written = true }}{{ end -}}
  {{- end -}}
  {{- if not $written -}}
    {{- include "slurm.configMap.name" (list . (empty $google.a3mega | ternary "config-a3ultra" "config-a3mega")) -}}
  {{- end -}}
{{- end -}}
{{- end }}

{{- /* "true" if gres.conf has other lines for a nodeset's GPUs than `AutoDetect=nvidia`. Call with its `gpu`. */}}
{{- define "slurm.google.gpuLines" -}}
{{- if and .enabled (or .devices (ne (.autoDetect | default "nvidia") "nvidia")) }}true{{ end -}}
{{- end }}
