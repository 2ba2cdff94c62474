"""The dashboards of charts/slurm-exporter. Writes nothing."""

from schemas import grafana

_STARTABLE = "Without held jobs. Array tasks count one by one."
_MAPPED = 'hpc_job!=""'
_NOT_READY = 'condition="Ready", status=~"false|unknown"'
_JOBS = "Needs the mapping of jobs to GPUs: vendor.nvidia.dcgm."
_WORKER = 'namespace="$namespace", container!="", pod=~".*-worker-.*"'
_PODS = 'namespace="$namespace", pod=~".*-worker-.*"'
_OTHER = 'namespace="$namespace", container!="", pod!~".*-worker-.*"'


def _dcgm(field: str, *labels: str) -> str:
    """Return a field of NVIDIA's DCGM for the GPUs of pods in the namespace.

    The label `namespace` is that of the pod with the GPU if Prometheus honours the labels of
    dcgm-exporter, and else `exported_namespace` is.
    """
    own, exported = (
        ",".join(it)
        for it in (
            ('namespace="$namespace"', 'exported_namespace=""', *labels),
            ('exported_namespace="$namespace"', *labels),
        )
    )
    return f"(DCGM_FI_DEV_{field}{{{own}}} or DCGM_FI_DEV_{field}{{{exported}}})"


DASHBOARDS: dict[str, grafana.Dashboard] = {
    "cluster": grafana.Dashboard(
        "Slurm / Cluster",
        (
            grafana.stat("Nodes", "sum(slurm_nodes{$cluster})"),
            grafana.stat(
                "Unavailable nodes", "sum(slurm_nodes_unavailable{$cluster}) or vector(0)"
            ),
            grafana.stat("Running jobs", 'sum(slurm_jobs{$cluster, state="running"})'),
            grafana.stat("Pending jobs", 'sum(slurm_jobs{$cluster, state="pending"})'),
            grafana.stat(
                "CPUs allocated",
                'sum(slurm_cpus{$cluster, state="allocated"}) / sum(slurm_cpus{$cluster})',
                "percentunit",
            ),
            grafana.stat(
                "GPUs allocated",
                'sum(slurm_gpus{$cluster, state="allocated"}) / sum(slurm_gpus{$cluster})',
                "percentunit",
                "Empty without GPUs.",
            ),
            grafana.stack(
                "Nodes by state", ("sum by (state) (slurm_nodes{$cluster})", "{{state}}")
            ),
            grafana.stack(
                "Jobs by state",
                ('sum by (state) (slurm_jobs{$cluster, state=~"running|pending"})', "{{state}}"),
            ),
            grafana.stack("CPUs", ("sum by (state) (slurm_cpus{$cluster})", "{{state}}")),
            grafana.stack(
                "GPUs", ("sum by (type, state) (slurm_gpus{$cluster})", "{{type}} {{state}}")
            ),
            grafana.stack(
                "Memory",
                ("sum by (state) (slurm_memory_bytes{$cluster})", "{{state}}"),
                unit="bytes",
            ),
            grafana.graph(
                "Jobs per minute",
                (
                    "sum(rate(slurm_controller_jobs_submitted_total{$cluster}[5m])) * 60",
                    "submitted",
                ),
                ("sum(rate(slurm_controller_jobs_started_total{$cluster}[5m])) * 60", "started"),
                (
                    "sum(rate(slurm_controller_jobs_completed_total{$cluster}[5m])) * 60",
                    "completed",
                ),
                ("sum(rate(slurm_controller_jobs_failed_total{$cluster}[5m])) * 60", "failed"),
            ),
        ),
    ),
    "queue": grafana.Dashboard(
        "Slurm / Partitions and queue",
        (
            grafana.stack(
                "Pending jobs by reason",
                ("sum by (reason) (slurm_pending_jobs{$cluster})", "{{reason}}"),
            ),
            grafana.graph(
                "Longest wait by partition",
                (
                    (
                        "time() - max by (partition) "
                        "(slurm_partition_pending_oldest_timestamp_seconds{$cluster})"
                    ),
                    "{{partition}}",
                ),
                unit="s",
                meaning=_STARTABLE,
            ),
            grafana.graph(
                "Running jobs by partition",
                (
                    'sum by (partition) (slurm_partition_jobs{$cluster, state="running"})',
                    "{{partition}}",
                ),
            ),
            grafana.graph(
                "Pending jobs by partition",
                (
                    'sum by (partition) (slurm_partition_jobs{$cluster, state="pending"})',
                    "{{partition}}",
                ),
                meaning="A pending job counts in each of its partitions.",
            ),
            grafana.graph(
                "CPUs in use by partition",
                (
                    (
                        'sum by (partition) (slurm_partition_cpus{$cluster, state="allocated"}) '
                        "/ sum by (partition) (slurm_partition_cpus{$cluster})"
                    ),
                    "{{partition}}",
                ),
                unit="percentunit",
            ),
            grafana.graph(
                "CPUs that pending jobs ask for",
                ("sum by (partition) (slurm_partition_pending_cpus{$cluster})", "{{partition}}"),
                meaning=_STARTABLE,
            ),
            grafana.graph(
                "GPUs in use by partition",
                (
                    (
                        'sum by (partition) (slurm_partition_gpus{$cluster, state="allocated"}) '
                        "/ sum by (partition) (slurm_partition_gpus{$cluster})"
                    ),
                    "{{partition}}",
                ),
                unit="percentunit",
            ),
            grafana.stack(
                "Jobs that have waited long",
                (
                    (
                        "sum by (age_seconds) (slurm_pending_jobs_older{$cluster, "
                        'age_seconds=~"600|3600|21600|86400"})'
                    ),
                    "longer than {{age_seconds}} s",
                ),
                meaning=_STARTABLE,
            ),
            grafana.table(
                "Nodes of the partitions",
                "sum by (partition, state) (slurm_partition_nodes{$cluster})",
            ),
        ),
    ),
    "nodes": grafana.Dashboard(
        "Slurm / Nodes and GPUs",
        (
            grafana.stack(
                "Unavailable nodes by cause and owner",
                (
                    "sum by (cause, owner) (slurm_nodes_unavailable{$cluster})",
                    "{{cause}} ({{owner}})",
                ),
                meaning="The owner is who drained the node or set it down.",
            ),
            grafana.stack(
                "Flags of nodes", ("sum by (flag) (slurm_nodes_flagged{$cluster})", "{{flag}}")
            ),
            grafana.table(
                "Unavailable nodes and reasons",
                "max by (node, owner, cause, reason) (slurm_node_unavailable{$cluster})",
            ),
            grafana.table(
                "Unavailable for, in seconds",
                "time() - max by (node) (slurm_node_unavailable_since_timestamp_seconds{$cluster})",
            ),
            grafana.graph(
                "GPUs allocated by node",
                ("sum by (node, type) (slurm_node_gpus_allocated{$cluster})", "{{node}} {{type}}"),
            ),
            grafana.graph(
                "GPUs configured by node",
                ("sum by (node, type) (slurm_node_gpus_configured{$cluster})", "{{node}} {{type}}"),
            ),
            grafana.graph(
                "CPUs allocated by node",
                (
                    (
                        "max by (node) (slurm_node_cpus_allocated{$cluster}) "
                        "/ max by (node) (slurm_node_cpus_allocatable{$cluster})"
                    ),
                    "{{node}}",
                ),
                unit="percentunit",
            ),
            grafana.graph(
                "Load by node", ("max by (node) (slurm_node_cpu_load{$cluster})", "{{node}}")
            ),
            grafana.graph(
                "Memory allocated by node",
                ("max by (node) (slurm_node_memory_allocated_bytes{$cluster})", "{{node}}"),
                unit="bytes",
            ),
            grafana.graph(
                "Memory unused by node",
                ("max by (node) (slurm_node_memory_unused_bytes{$cluster})", "{{node}}"),
                unit="bytes",
                meaning="As slurmd reports it, of the node's operating system.",
            ),
        ),
    ),
    "users": grafana.Dashboard(
        "Slurm / Users and accounts",
        tuple(
            panel
            for word in ("user", "account")
            for panel in (
                grafana.stack(
                    f"Running jobs by {word}",
                    (
                        (
                            f"topk(20, sum by ({word}) (slurm_{word}_jobs{{$cluster, "
                            f'state="running"}}))'
                        ),
                        f"{{{{{word}}}}}",
                    ),
                ),
                grafana.stack(
                    f"Pending jobs by {word}",
                    (
                        (
                            f"topk(20, sum by ({word}) (slurm_{word}_jobs{{$cluster, "
                            f'state="pending"}}))'
                        ),
                        f"{{{{{word}}}}}",
                    ),
                ),
                grafana.stack(
                    f"CPUs by {word}",
                    (
                        f"topk(20, sum by ({word}) (slurm_{word}_cpus_allocated{{$cluster}}))",
                        f"{{{{{word}}}}}",
                    ),
                ),
                grafana.stack(
                    f"GPUs by {word}",
                    (
                        f"topk(20, sum by ({word}) (slurm_{word}_gpus_allocated{{$cluster}}))",
                        f"{{{{{word}}}}}",
                    ),
                ),
                grafana.stack(
                    f"Memory by {word}",
                    (
                        (
                            f"topk(20, sum by ({word}) "
                            f"(slurm_{word}_memory_allocated_bytes{{$cluster}}))"
                        ),
                        f"{{{{{word}}}}}",
                    ),
                    unit="bytes",
                ),
            )
        ),
    ),
    "scheduler": grafana.Dashboard(
        "Slurm / Scheduler",
        (
            grafana.stat(
                "Server threads",
                "max(slurm_controller_server_threads{$cluster})",
                meaning="Of 256 at most.",
            ),
            grafana.stat(
                "Messages to slurmdbd", "max(slurm_controller_slurmdbd_queue_messages{$cluster})"
            ),
            grafana.stat(
                "Requests to nodes", "max(slurm_controller_agent_queue_requests{$cluster})"
            ),
            grafana.stat("Main queue", "max(slurm_schedule_queue_jobs{$cluster})"),
            grafana.stat("Backfill queue", "max(slurm_backfill_queue_jobs{$cluster})"),
            grafana.stat(
                "Since the last backfill",
                "time() - max(slurm_backfill_last_cycle_timestamp_seconds{$cluster})",
                "s",
            ),
            grafana.graph(
                "Duration of a cycle",
                (
                    (
                        "sum(rate(slurm_schedule_cycle_seconds_total{$cluster}[5m])) "
                        "/ sum(rate(slurm_schedule_cycles_total{$cluster}[5m]))"
                    ),
                    "main scheduler",
                ),
                (
                    (
                        "sum(rate(slurm_backfill_cycle_seconds_total{$cluster}[5m])) "
                        "/ sum(rate(slurm_backfill_cycles_total{$cluster}[5m]))"
                    ),
                    "backfill",
                ),
                unit="s",
            ),
            grafana.graph(
                "Jobs tested in the last backfill cycle",
                ("max(slurm_backfill_last_jobs_considered{$cluster})", "considered"),
                ("max(slurm_backfill_last_jobs_tried{$cluster})", "tried"),
            ),
            grafana.graph(
                "Ends of cycles, per minute",
                (
                    "sum by (reason) (rate(slurm_schedule_exits_total{$cluster}[5m])) * 60",
                    "main scheduler: {{reason}}",
                ),
                (
                    "sum by (reason) (rate(slurm_backfill_exits_total{$cluster}[5m])) * 60",
                    "backfill: {{reason}}",
                ),
            ),
            grafana.graph(
                "Threads and agents of slurmctld",
                ("max(slurm_controller_server_threads{$cluster})", "server threads"),
                ("max(slurm_controller_agents{$cluster})", "agents"),
                ("max(slurm_controller_agent_threads{$cluster})", "agent threads"),
            ),
            grafana.graph(
                "Requests to slurmctld by type, per second",
                (
                    "topk(10, sum by (type) (rate(slurm_controller_rpcs_total{$cluster}[5m])))",
                    "{{type}}",
                ),
                unit="reqps",
            ),
            grafana.graph(
                "Processing time of requests by type",
                (
                    (
                        "topk(10, sum by (type) "
                        "(rate(slurm_controller_rpc_seconds_total{$cluster}[5m])) / sum by "
                        "(type) (rate(slurm_controller_rpcs_total{$cluster}[5m]) > 0))"
                    ),
                    "{{type}}",
                ),
                unit="s",
            ),
            grafana.graph(
                "Requests to slurmctld by user, per second",
                (
                    (
                        "topk(10, sum by (user) "
                        "(rate(slurm_controller_user_rpcs_total{$cluster}[5m])))"
                    ),
                    "{{user}}",
                ),
                unit="reqps",
            ),
            grafana.graph(
                "Age of the exporter's data",
                (
                    (
                        "time() - max by (family) "
                        "(slurm_exporter_last_success_timestamp_seconds{$cluster})"
                    ),
                    "{{family}}",
                ),
                unit="s",
            ),
        ),
    ),
    "autoscaling": grafana.Dashboard(
        "Slurm / Autoscaling and power saving",
        (
            grafana.stat("Free nodes", "sum(slurm_nodes_free{$cluster})"),
            grafana.stat(
                "Powered-down nodes",
                'sum(slurm_nodes_flagged{$cluster, flag="powered_down"}) or vector(0)',
            ),
            grafana.stat(
                "Nodes that boot",
                'sum(slurm_nodes_flagged{$cluster, flag="powering_up"}) or vector(0)',
            ),
            grafana.stat(
                "Jobs without a node to come",
                "sum(slurm_autoscaling_jobs_not_counted{$cluster}) or vector(0)",
                meaning="Autoscaling adds no node for them.",
            ),
            grafana.stack(
                "Nodes of power saving",
                (
                    (
                        "sum by (flag) (slurm_nodes_flagged{$cluster, "
                        'flag=~"powered_down|powering_up|powering_down"})'
                    ),
                    "{{flag}}",
                ),
            ),
            grafana.graph(
                "Workers that the queue needs",
                (
                    ("max by (nodeset) (slurm_nodeset_wanted_replicas{$cluster}) or vector(0)"),
                    "{{nodeset}}",
                ),
                meaning="Of NodeSets that a HorizontalPodAutoscaler or KEDA scales.",
            ),
            grafana.stack(
                "Jobs for which no node is added",
                (
                    ("sum by (reason) (slurm_autoscaling_jobs_not_counted{$cluster}) or vector(0)"),
                    "{{reason}}",
                ),
                meaning="By the reasons of the condition JobsCounted.",
            ),
            grafana.graph(
                "Idle GPUs by partition",
                (
                    'sum by (partition) (slurm_partition_gpus{$cluster, state="idle"})',
                    "{{partition}}",
                ),
                meaning="Without those of nodes that are powered down.",
            ),
        ),
    ),
    "operator": grafana.Dashboard(
        "Slurm / Operator",
        (
            grafana.table(
                "Conditions that are not True",
                "max by (kind, name, type, status, reason) "
                '(slurm_operator_condition{namespace="$namespace", status!="True"})',
            ),
            grafana.stack(
                "NodeSets by the reason of autoscaling",
                (
                    (
                        'count by (reason) (slurm_operator_condition{namespace="$namespace", '
                        'type="Autoscaled"}) or vector(0)'
                    ),
                    "{{reason}}",
                ),
            ),
            grafana.stack(
                "NodeSets by the reason of power saving",
                (
                    (
                        'count by (reason) (slurm_operator_condition{namespace="$namespace", '
                        'type="PowerSaving"}) or vector(0)'
                    ),
                    "{{reason}}",
                ),
            ),
            grafana.graph(
                "Pods of NodeSets",
                (
                    'sum by (nodeset, state) (slurm_operator_nodeset_pods{namespace="$namespace"})',
                    "{{nodeset}} {{state}}",
                ),
            ),
            grafana.graph(
                "Slurm nodes of NodeSets",
                (
                    (
                        "sum by (nodeset, state) (slurm_operator_nodeset_slurm_nodes{namespace="
                        '"$namespace"})'
                    ),
                    "{{nodeset}} {{state}}",
                ),
            ),
            grafana.graph(
                "Duration of a pass, 99th percentile",
                (
                    (
                        "histogram_quantile(0.99, sum by (le, kind) "
                        "(rate(slurm_operator_pass_seconds_bucket[5m])))"
                    ),
                    "{{kind}}",
                ),
                unit="s",
                meaning="Of all namespaces.",
            ),
            grafana.graph(
                "Passes per second",
                ("sum by (kind) (rate(slurm_operator_pass_seconds_count[5m]))", "{{kind}}"),
                meaning="Of all namespaces.",
            ),
            grafana.graph(
                "Failed passes per minute",
                ("sum by (kind) (rate(slurm_operator_passes_failed_total[5m])) * 60", "{{kind}}"),
                meaning="Of all namespaces.",
            ),
            grafana.graph(
                "Resources that wait for a pass",
                ("sum by (kind) (slurm_operator_queue_length)", "{{kind}}"),
                meaning="Of all namespaces.",
            ),
        ),
        ("namespace", "Namespace", "label_values(slurm_operator_condition, namespace)"),
    ),
    "gpus": grafana.Dashboard(
        "Slurm / GPU hardware",
        (
            grafana.stat("GPUs", f"count({_dcgm('GPU_UTIL')})"),
            grafana.stat("Utilisation", f"avg({_dcgm('GPU_UTIL')}) / 100", "percentunit"),
            grafana.stat(
                "Allocated by Slurm",
                'sum(slurm_gpus{namespace="$namespace", state="allocated"}) '
                '/ sum(slurm_gpus{namespace="$namespace"})',
                "percentunit",
            ),
            grafana.stat("Power", f"sum({_dcgm('POWER_USAGE')})", "watt"),
            grafana.stat("Hottest GPU", f"max({_dcgm('GPU_TEMP')})", "celsius"),
            grafana.stat(
                "GPUs with an XID error",
                f"count({_dcgm('XID_ERRORS')} > 0) or vector(0)",
                meaning="DCGM shows the last error of a GPU until its driver starts again.",
            ),
            grafana.graph(
                "Utilised and allocated",
                (f"avg({_dcgm('GPU_UTIL')}) / 100", "utilised, of all GPUs"),
                (
                    (
                        'sum(slurm_gpus{namespace="$namespace", state="allocated"}) '
                        '/ sum(slurm_gpus{namespace="$namespace"})'
                    ),
                    "allocated by Slurm",
                ),
                unit="percentunit",
                meaning="GPUs that jobs have and don't use lie between the two.",
            ),
            grafana.graph(
                "Utilisation of the GPUs with a job",
                *(
                    (f"quantile({part}, {_dcgm('GPU_UTIL', _MAPPED)}) / 100", name)
                    for part, name in (
                        (0.1, "a tenth below"),
                        (0.5, "median"),
                        (0.9, "a tenth above"),
                    )
                ),
                unit="percentunit",
                meaning=_JOBS,
            ),
            grafana.graph("Power", (f"sum({_dcgm('POWER_USAGE')})", "all GPUs"), unit="watt"),
            grafana.graph(
                "Temperature",
                (f"max({_dcgm('GPU_TEMP')})", "hottest GPU"),
                (f"avg({_dcgm('GPU_TEMP')})", "mean"),
                unit="celsius",
            ),
            grafana.graph(
                "Memory of the GPUs in use",
                (
                    (
                        f"sum({_dcgm('FB_USED')}) "
                        f"/ (sum({_dcgm('FB_USED')}) + sum({_dcgm('FB_FREE')}))"
                    ),
                    "all GPUs",
                ),
                unit="percentunit",
            ),
            grafana.graph(
                "GPUs below 10 % although a job has them",
                (f"count({_dcgm('GPU_UTIL', _MAPPED)} < 10) or vector(0)", "GPUs"),
                meaning=_JOBS,
            ),
            grafana.table(
                "Jobs with the lowest utilisation, in %",
                f"bottomk(20, avg by (hpc_job) ({_dcgm('GPU_UTIL', _MAPPED)}))",
                meaning=_JOBS,
            ),
        ),
        ("namespace", "Namespace", "label_values(slurm_exporter_up, namespace)"),
    ),
    "kubernetes": grafana.Dashboard(
        "Slurm / Kubernetes",
        (
            grafana.stat(
                "Kubernetes nodes ready",
                'sum(kube_node_status_condition{condition="Ready", status="true"})',
                meaning="Of the whole Kubernetes cluster.",
            ),
            grafana.stat(
                "Not ready",
                'sum(kube_node_status_condition{condition="Ready", status=~"false|unknown"})',
            ),
            grafana.stat("Cordoned", "sum(kube_node_spec_unschedulable)"),
            grafana.stat(
                "Slurm nodes",
                'sum(slurm_nodes{namespace="$namespace"})',
            ),
            grafana.stat(
                "Pods ready",
                'sum(kube_pod_status_ready{namespace="$namespace", condition="true"})',
            ),
            grafana.stat(
                "Pods pending",
                'sum(kube_pod_status_phase{namespace="$namespace", phase="Pending"})',
            ),
            grafana.graph(
                "Workers in Kubernetes and in Slurm",
                (f"count(kube_pod_info{{{_PODS}}})", "pods"),
                (f'sum(kube_pod_status_ready{{{_PODS}, condition="true"}})', "ready"),
                (
                    (
                        'sum(slurm_nodes{namespace="$namespace"}) '
                        '- (sum(slurm_nodes_unavailable{namespace="$namespace"}) or vector(0)) '
                        '- (sum(slurm_nodes_flagged{namespace="$namespace", flag="powered_down"}) '
                        "or vector(0))"
                    ),
                    "available to Slurm",
                ),
                meaning="A worker that is ready in Kubernetes can be drained in Slurm.",
            ),
            grafana.stack(
                "Pods by phase",
                ('sum by (phase) (kube_pod_status_phase{namespace="$namespace"}) > 0', "{{phase}}"),
            ),
            grafana.graph(
                "Workers on Kubernetes nodes that aren't ready",
                (
                    (
                        f"sum(count by (node) (kube_pod_info{{{_PODS}}}) * on (node) "
                        "group_left sum by "
                        f"(node) (kube_node_status_condition{{{_NOT_READY}}}))"
                    ),
                    "workers",
                ),
            ),
            grafana.stack(
                "Containers that wait, by reason",
                (
                    (
                        "sum by (reason) (kube_pod_container_status_waiting_reason{namespace="
                        '"$namespace"})'
                    ),
                    "{{reason}}",
                ),
            ),
            grafana.graph(
                "Restarts of containers, per hour",
                (
                    (
                        "sum by (container) (increase(kube_pod_container_status_restarts_total"
                        '{namespace="$namespace"}[1h]))'
                    ),
                    "{{container}}",
                ),
            ),
            grafana.graph(
                "Volumes, used",
                (
                    (
                        "1 - max by (persistentvolumeclaim) "
                        '(kubelet_volume_stats_available_bytes{namespace="$namespace"}) '
                        "/ max by (persistentvolumeclaim) "
                        '(kubelet_volume_stats_capacity_bytes{namespace="$namespace"})'
                    ),
                    "{{persistentvolumeclaim}}",
                ),
                unit="percentunit",
            ),
            grafana.graph(
                "CPUs used by workers",
                (f"sum(rate(container_cpu_usage_seconds_total{{{_WORKER}}}[5m]))", "workers"),
            ),
            grafana.graph(
                "CPUs used by other pods",
                (
                    f"sum by (pod) (rate(container_cpu_usage_seconds_total{{{_OTHER}}}[5m]))",
                    "{{pod}}",
                ),
            ),
            grafana.graph(
                "Memory of workers",
                (f"sum(container_memory_working_set_bytes{{{_WORKER}}})", "workers"),
                unit="bytes",
            ),
            grafana.graph(
                "Memory of other pods",
                (f"sum by (pod) (container_memory_working_set_bytes{{{_OTHER}}})", "{{pod}}"),
                unit="bytes",
            ),
        ),
        ("namespace", "Namespace", "label_values(slurm_exporter_up, namespace)"),
    ),
}
"""By the names of their files."""

BESIDE = ("gpus", "kubernetes")
"""Those that need other exporters than this project's."""

BUSY = ("cluster", "queue", "users", "autoscaling", *BESIDE)
"""Those that are drawn with a simulated busy day. The others are drawn with what a real Slurm has
answered.
"""


def text(name: str) -> str:
    """Return the file of one dashboard."""
    return grafana.text(name, DASHBOARDS[name])


def queries(name: str) -> list[str]:
    """Return the PromQL of all panels of a dashboard, in their order, with Grafana's variables."""
    return grafana.queries(DASHBOARDS[name])
