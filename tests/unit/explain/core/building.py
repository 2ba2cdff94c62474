"""Slurm clusters on Kubernetes as `explain` reads them: two idle workers of one NodeSet, and what a
test changes.
"""

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from sidecars.contract.extra import PodFacts, encode
from sidecars.explain.core.records import Kube, Seen, Slurm
from sidecars.slurm.details import JobDetail, PartitionDetail
from sidecars.slurm.records import JobRequest, Node, Pending

NOW = 1_790_000_000.0
NODESET = "slurm-worker-cpu"
Object = dict[str, Any]


def at(seconds: float) -> str:
    """A time of Kubernetes, in seconds from NOW."""
    return datetime.fromtimestamp(NOW + seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def node(name: str = "cpu-0", *states: str, **more: Any) -> Node:
    """An idle node of 4 CPUs with a worker pod of the NodeSet."""
    known: dict[str, Any] = {
        "cpus": 4,
        "sockets": 1,
        "cores": 4,
        "threads": 1,
        "real_memory": 16_000,
        "partitions": ("cpu",),
        "features": ("cpu",),
        "extra": encode(
            PodFacts(f"uid-of-{name}", f"slurm-worker-{name}", "slurm", f"uid-of-{NODESET}")
        ),
        "slurmd_start_time": int(NOW) - 3600,
    }
    return Node(name, frozenset(states or {"IDLE"}), **(known | more))


def busy(name: str = "cpu-0", **more: Any) -> Node:
    """A node with a job on all CPUs."""
    return node(name, "ALLOCATED", alloc_cpus=4, alloc_memory=16_000, **more)


def job(reason: str = "Resources", **more: Any) -> JobDetail:
    """Pending job 12 of user ada, of one task with 1000 MiB."""
    asked: dict[str, Any] = {
        key: more.pop(key) for key in list(more) if key in JobRequest.__dataclass_fields__
    }
    waits: dict[str, Any] = {
        key: more.pop(key) for key in list(more) if key in Pending.__dataclass_fields__
    }
    requested: dict[str, Any] = {
        "partitions": ("cpu",),
        "memory_per_node": 1000,
        "cpus_per_task": 1,
    }
    request = JobRequest(**(requested | asked))
    waiting: dict[str, Any] = {"request": request, "reason": reason, "priority": 100}
    pending = Pending(**(waiting | waits))
    known: dict[str, Any] = {
        "states": frozenset({"PENDING"}),
        "partition": "cpu",
        "user_name": "ada",
        "account": "physics",
        "qos": "normal",
        "submit_time": int(NOW) - 600,
        "time_limit": 60,
        "pending": pending,
        "licenses": request.licenses,
        "reservation": request.reservation,
        "reason": reason,
    }
    return JobDetail(12, **(known | more))


def started(*states: str, **more: Any) -> JobDetail:
    """Job 12 on cpu-0."""
    known: dict[str, Any] = {"pending": None, "nodes": "cpu-0", "start_time": int(NOW) - 300}
    return job(more.pop("reason", "None"), states=frozenset(states), **(known | more))


def partition(name: str = "cpu", **more: Any) -> PartitionDetail:
    """A partition that is up."""
    return PartitionDetail(
        **({"name": name, "states": frozenset({"UP"}), "node_sets": name} | more)
    )


def condition(kind: str, status: str, reason: str = "", message: str = "") -> Object:
    """A condition."""
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": at(-60),
    }


def nodeset(
    name: str = NODESET, replicas: int = 2, conditions: tuple[Object, ...] = (), **status: Any
) -> Object:
    """A NodeSet with as many pods as replicas."""
    return {
        "kind": "NodeSet",
        "metadata": {"name": name, "namespace": "slurm", "uid": f"uid-of-{name}", "generation": 1},
        "spec": {"replicas": replicas, "controllerRef": {"name": "slurm"}},
        "status": {"replicas": replicas, "partitions": ["cpu"], "conditions": list(conditions)}
        | status,
    }


def pod(name: str = "cpu-0", **status: Any) -> Object:
    """The ready worker pod of a node."""
    known: Object = {
        "phase": "Running",
        "conditions": [condition("PodScheduled", "True"), condition("Ready", "True")],
    }
    return {
        "kind": "Pod",
        "metadata": {
            "name": f"slurm-worker-{name}",
            "namespace": "slurm",
            "uid": f"uid-of-{name}",
            "creationTimestamp": at(-3600),
            "labels": {
                "app.kubernetes.io/name": "slurmd",
                "nodeset.slinky.slurm.net/pod-hostname": name,
            },
            "ownerReferences": [{"kind": "NodeSet", "name": NODESET, "uid": f"uid-of-{NODESET}"}],
        },
        "spec": {"nodeName": f"kube-{name}"},
        "status": known | status,
    }


def starting(name: str = "cpu-1", waiting: str = "", message: str = "", **status: Any) -> Object:
    """A worker pod that isn't ready; its container `slurmd` waits for this reason."""
    container = {
        "name": "slurmd",
        "image": "slurmd:26.05",
        "ready": False,
        "state": {"waiting": {"reason": waiting, "message": message}},
    }
    known: Object = {
        "phase": "Pending",
        "conditions": [condition("PodScheduled", "True"), condition("Ready", "False")],
        "containerStatuses": [container],
    }
    return pod(name, **(known | status))


def unscheduled(
    name: str = "cpu-1", message: str = "0/3 nodes are available: 3 Insufficient cpu."
) -> Object:
    """A worker pod without a Kubernetes node."""
    found = pod(
        name,
        phase="Pending",
        conditions=[condition("PodScheduled", "False", "Unschedulable", message)],
    )
    del found["spec"]["nodeName"]
    return found


def daemon(app: str = "slurmctld", name: str = "slurm-controller-0", **status: Any) -> Object:
    """The ready pod of a daemon."""
    found = pod(name, **status)
    found["metadata"] |= {
        "name": name,
        "uid": f"uid-of-{name}",
        "labels": {"app.kubernetes.io/name": app},
        "ownerReferences": [],
    }
    return found


def controller(*conditions: Object, **status: Any) -> Object:
    """The Controller."""
    return {
        "kind": "Controller",
        "metadata": {"name": "slurm", "namespace": "slurm", "uid": "uid-of-slurm", "generation": 1},
        "spec": {},
        "status": {"conditions": list(conditions)} | status,
    }


def event(kind: str, name: str, reason: str, message: str, seconds: float = -30) -> Object:
    """An Event."""
    return {
        "kind": "Event",
        "metadata": {"name": f"{name}.{reason}", "creationTimestamp": at(seconds)},
        "involvedObject": {"kind": kind, "name": name},
        "reason": reason,
        "message": message,
        "type": "Warning",
        "lastTimestamp": at(seconds),
    }


def kube_node(
    name: str = "kube-cpu-0", *, ready: bool = True, cordoned: bool = False, **status: Any
) -> Object:
    """A Kubernetes node."""
    is_ready = condition(
        "Ready",
        "True" if ready else "Unknown",
        "",
        "" if ready else "Kubelet stopped posting node status.",
    )
    return {
        "kind": "Node",
        "metadata": {"name": name, "uid": f"uid-of-{name}"},
        "spec": {"unschedulable": True} if cordoned else {},
        "status": {"conditions": [is_ready]} | status,
    }


def seen(
    slurm: dict[str, Any] | None = None, kube: dict[str, Any] | None = None, **more: Any
) -> Seen:
    """The cluster with two idle workers and no job, but for what is given."""
    reported = Slurm(
        jobs=(),
        nodes=(node("cpu-0"), node("cpu-1")),
        partitions=(partition(),),
        reservations=(),
        licenses=(),
        config={"selecttypeparameters": "CR_CORE_MEMORY"},
        limits="",
        waiting=(),
        running=(),
    )
    found = Kube(
        controllers=(controller(condition("Ready", "True", "Ready")),),
        nodesets=(nodeset(),),
        resources=(),
        pods=(pod("cpu-0"), pod("cpu-1"), daemon()),
        kube_nodes=(),
        events=(),
        quotas=(),
    )
    return Seen(
        NOW, "slurm", replace(reported, **(slurm or {})), replace(found, **(kube or {})), **more
    )
