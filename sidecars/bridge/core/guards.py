"""Pods on nodes with a slurmd, beside Slurm's own jobs. Pure.

There the placeholder of a pod is a guard: a batch job that only waits. When it ends, the Epilog of
each of its nodes waits until the bridge has written the job's id in an annotation of the node's
worker pod. The kubelet shows it to the Epilog as a file. Until then Slurm keeps the node
COMPLETING, and gives nothing of the job to another one.

Silence keeps the node COMPLETING: an id is written when it is known that no pod of the job is on
the node, nor will be.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from sidecars.bridge.core.devices import BUILT_IN
from sidecars.bridge.core.manifests import Container, Pod
from sidecars.bridge.core.nodes import Drain, Undrain, is_ours
from sidecars.bridge.core.records import Job, Kind, Part, Phase, View, concerns
from sidecars.bridge.core.records import Pod as SeenPod
from sidecars.bridge.core.shape import constraint
from sidecars.bridge.core.twice import without_place
from sidecars.contract import bridge, extra
from sidecars.contract.reasons import Owner
from sidecars.slurm import owners, states
from sidecars.slurm.records import Node

EXTERNAL, GUARD = Kind(), Kind(guard=True)


@dataclass(frozen=True, slots=True)
class Worker:
    """The worker pod of a Slurm node."""

    slurm_node: str
    kube_node: str
    pod: Pod

    @property
    def gone(self) -> str:
        """What is written of jobs whose pods are gone."""
        return self.pod.metadata.annotations.get(bridge.GONE, "")


@dataclass(frozen=True, slots=True)
class Gone:
    """Write the ids of the jobs whose pods are gone from the worker's Kubernetes node."""

    worker: Worker
    text: str


@dataclass(frozen=True, slots=True)
class Resume:
    """Return the node to service: it is DOWN, with the reason of a drain of the bridge, and its
    slurmd answers.

    With ReturnToService=1, slurmctld does so itself only where no reason but its own is on the
    node.
    """

    name: str


def worker_of(record: Node, facts: extra.PodFacts | None, pod: Pod | None) -> Worker | None:
    """Return the worker of a Slurm node, by the node's Extra, or None without one whose Epilog
    waits for pods.

    `pod`: the pod of that namespace and name.
    """
    kube_node = kube_node_of(facts, pod)
    if (
        pod is None
        or not kube_node
        or pod.metadata.annotations.get(bridge.GUARD) != bridge.GUARD_VERSION
    ):
        return None
    return Worker(record.name, kube_node, pod)


def kube_node_of(facts: extra.PodFacts | None, pod: Pod | None) -> str:
    """Return the Kubernetes node of the worker pod in a Slurm node's Extra, "" without one. `pod`:
    as for `worker_of`.
    """
    if facts is None or pod is None or pod.metadata.uid != facts.pod_uid:
        return ""
    return pod.spec.node_name or ""


def kinds(records: Iterable[Node], workers: Mapping[str, Worker]) -> dict[str, Kind]:
    """Return what the pods of each partition get, by the records of its nodes. `workers` by their
    Slurm nodes. A partition without nodes isn't among them.
    """
    external: dict[str, str] = {}
    native: dict[str, str] = {}
    unready: dict[str, str] = {}
    for it in records:
        is_external = "EXTERNAL" in it.states
        lists = [external if is_external else native]
        # A node that power saving has stopped has no pod. It gets one before a job runs there.
        if (
            not is_external
            and it.name not in workers
            and not states.is_under_power_saving(it.states)
        ):
            lists.append(unready)
        for partition in it.partitions:
            for names in lists:
                # The messages name the same node each time.
                names[partition] = min(it.name, names.get(partition, it.name))
    found = dict.fromkeys(external, EXTERNAL) | dict.fromkeys(native, GUARD)
    for partition, name in unready.items():
        found[partition] = Kind(
            problem=f"Slurm node {name} of partition {partition} has a slurmd, and no worker pod "
            "whose Epilog waits for pods: set slurmBridge.guard.enabled in the values of the "
            "chart slurm, or use another partition"
        )
    for partition in external.keys() & native.keys():
        found[partition] = Kind(
            problem=f"partition {partition} has external nodes, such as {external[partition]}, and "
            f"nodes with a slurmd, such as {native[partition]}: an administrator separates "
            "them, or use another partition"
        )
    return found


def kind_of(
    waiting: Iterable[SeenPod], parts: tuple[Part, ...], kinds: Mapping[str, Kind]
) -> tuple[bool, str]:
    """Return whether the pods get a guard, and why they get nothing."""
    found = [kinds.get(it.shape.partition, Kind()) for it in parts]
    problem = next((it.problem for it in found if it.problem), "")
    guard = any(it.guard for it in found)
    if problem or not guard:
        return guard, problem
    if len(parts) > 1:
        return guard, (
            f"partition {parts[0].shape.partition} has nodes with a slurmd, where all pods of a "
            "group have to request the same: use another partition, or give them the same "
            "requests"
        )
    return guard, next((f"{it.name}: {it.unguarded}" for it in waiting if it.unguarded), "")


def problem_of(
    pod: Pod,
    *,
    exclusive: bool,
    gres: str = "",
    claims: bool = False,
    extended: Collection[str] = BUILT_IN,
) -> str:
    """Return why the pod can't run beside Slurm's own jobs, "" if it can.

    `exclusive`: its job has whole nodes. `gres`: what the job requests for its devices. `claims`:
    the pod has ResourceClaims for some. `extended`: the extended resources that are GRES.
    """
    if constraint(pod):
        return (
            "Slurm can't compare node selectors with the labels of a node with a slurmd: select "
            f"features of Slurm nodes with the annotation {bridge.WISHES}constraints instead of "
            "nodeSelector and affinity"
        )
    if claims:
        return (
            "which devices of a DRA driver are those of Slurm is known only of nodes without a "
            "slurmd: use another partition, or a device plugin's resource"
        )
    if gres and not exclusive:
        return (
            "the device plugin doesn't know which devices Slurm gives to its own jobs on this "
            "node: request the whole "
            f'node with the annotation {bridge.WISHES}exclusive: "true"'
        )
    unknown = next((name for name in _extended(pod) if name not in extended), "")
    if unknown and not exclusive:
        return (
            f"{unknown} is no GRES of Slurm, so that its own jobs on this node may use the same "
            "devices: request the "
            f'whole node with the annotation {bridge.WISHES}exclusive: "true"'
        )
    level = pod.spec.resources
    if all(_bounded(level.requests, level.limits, name) for name in _BOUNDED):
        return ""
    for it in (*pod.spec.containers, *pod.spec.init_containers):
        name = _unbounded(it)
        if name:
            return (
                f"container {it.name} can use more {name} than it requests, which Slurm may give "
                f"to its own jobs on this node: set limits.{name} to the requests"
            )
    return ""


_BOUNDED = ("cpu", "memory")

_BY_CLASS = "deviceclass.resource.kubernetes.io"
"""The domain of the extended resource that each DeviceClass has."""


def _extended(pod: Pod) -> list[str]:
    """Return the extended resources that the pod requests: names with a domain that isn't
    Kubernetes' own, and those by which a DRA driver gives devices.
    """
    names = {
        name
        for it in (*pod.spec.containers, *pod.spec.init_containers)
        for name in (*it.resources.requests, *it.resources.limits)
    }
    domains = {name: name.partition("/")[0] for name in names if "/" in name}
    return sorted(
        name for name, it in domains.items() if it == _BY_CLASS or not it.endswith("kubernetes.io")
    )


def _unbounded(container: Container) -> str:
    """Return the first resource of which the container may use more than it requests."""
    its = container.resources
    return next((name for name in _BOUNDED if not _bounded(its.requests, its.limits, name)), "")


def _bounded(requests: Mapping[str, str], limits: Mapping[str, str], name: str) -> bool:
    # The API server writes the limit as a missing request.
    return name in limits and requests.get(name, limits[name]) == limits[name]


def decide(
    view: View,
    workers: Iterable[Worker],
    records: Mapping[str, Node],
    silent: AbstractSet[str] = frozenset(),
) -> tuple[Gone | Drain | Undrain | Resume, ...]:
    """Decide what to write on the workers and about their nodes. None while Slurm is unknown.

    `silent`: the Slurm nodes whose slurmd has not answered for a while. With a pod there, they are
    drained before Slurm forgets its guard: when they come back, nothing has to be quick.
    """
    present = {worker.slurm_node: worker for worker in workers}
    if not view.known or not (present or records):
        return ()
    completing: defaultdict[str, list[Job]] = defaultdict(list)
    for job in (it for whole in view.jobs.values() for it in whole.components if _is_over(it)):
        for node, _ in job.slots:
            completing[node].append(job)
    there: defaultdict[str, list[SeenPod]] = defaultdict(list)
    for pod in view.pods:
        if pod.present and pod.node and pod.job is not None:
            there[pod.node].append(pod)
    misplaced = without_place(view)
    found: list[Gone | Drain | Undrain | Resume] = []
    for worker in present.values():
        its = completing.get(worker.kube_node, [])
        over = sorted(job.job_id for job in its if _is_gone(job, worker.kube_node, view))
        text = ",".join(map(str, over))
        if text != worker.gone:
            found.append(Gone(worker, text))
        record = records.get(worker.slurm_node)
        if record is not None:
            pods = there.get(worker.kube_node, ())
            down = states.is_down(record.states)
            left = next(
                (pod for pod in pods if pod.uid in misplaced or _is_left(pod, view, down=down)),
                None,
            )
            words = "runs here without a guard"
            if left is None and worker.slurm_node in silent:
                left, words = next(iter(pods), None), "runs here, and slurmd doesn't answer"
            found += _drain(
                record, left, words, its, ending=worker.pod.metadata.deletion_timestamp is not None
            )
    return (*found, *_vanished(view, there, present, records))


def _vanished(
    view: View,
    there: Mapping[str, list[SeenPod]],
    present: Mapping[str, Worker],
    records: Mapping[str, Node],
) -> Iterator[Undrain]:
    """End the drains of the bridge on the nodes whose worker is gone. The operator deletes the
    record then.

    No record shows for sure on which Kubernetes node its worker was: they stay while a pod is on
    any without one.
    """
    places = {worker.kube_node for worker in present.values()}
    if not all(
        _is_external(pod, view)
        for node, pods in there.items()
        if node not in places
        for pod in pods
    ):
        return
    for name, record in records.items():
        ours = is_ours(record) and states.is_drain(record.states)
        # While the node is busy, an Epilog may wait there.
        if (
            ours
            and name not in present
            and "EXTERNAL" not in record.states
            and not states.is_busy(record.states)
        ):
            yield Undrain(name)


def _is_external(pod: SeenPod, view: View) -> bool:
    """Return whether the pod is on an external node of its job, which has no slurmd."""
    found = view.components.get(pod.job or 0)
    if found is None or not concerns(found[0].comment, pod.key):
        return False
    return not found[1].guard and pod.node in dict(found[1].slots)


def _is_over(job: Job) -> bool:
    """Return whether Epilogs of the job may run."""
    return job.guard and job.completing and job.phase not in (Phase.STARTING, Phase.RUNNING)


def _is_gone(job: Job, kube_node: str, view: View) -> bool:
    """Return whether no pod of the job is on the node, nor will be: those that are left are on its
    other nodes.

    Pods of other groups have the ids of a state that Slurm has lost. Those on the node use what the
    job had, too.
    """
    others = {node for node, _ in job.slots} - {kube_node}
    its = (
        it
        for it in view.labelled.get(job.job_id, ())
        if it.node == kube_node or concerns(job.comment, it.key)
    )
    return all(pod.node in others for pod in its)


def _is_left(pod: SeenPod, view: View, *, down: bool) -> bool:
    """Return whether no guard has what the pod uses: its job doesn't run, and no Epilog waits for
    the pod, or it is no guard for its group.

    A suspended guard has no cores. On a node that is DOWN no Epilog waits, even while the job is
    COMPLETING because of its other nodes.
    """
    found = view.components.get(pod.job or 0)
    if found is None or not concerns(found[0].comment, pod.key):
        return True
    _, component = found
    if not component.guard:
        return True
    return component.phase not in (Phase.STARTING, Phase.RUNNING) and (
        down or not component.completing
    )


def _drain(
    record: Node, left: SeenPod | None, words: str, completing: Iterable[Job], *, ending: bool
) -> Iterator[Drain | Undrain | Resume]:
    drained, ours = states.is_drain(record.states), is_ours(record)
    if left is not None and not drained:
        text = f"{bridge.DRAIN_PREFIX}pod {left.namespace}/{left.name} {words}"
        # Whoever has given another reason ends this drain. slurmctld's own words are replaced,
        # because it ends none.
        foreign = owners.owner_of(record) is Owner.FOREIGN and not ours
        yield Drain(record.name, "" if foreign else text)
    elif left is None and ours and not any(completing) and "COMPLETING" not in record.states:
        # A worker that ends sets its own node DOWN.
        if states.is_down(record.states) and "NOT_RESPONDING" not in record.states and not ending:
            yield Resume(record.name)
        elif drained:
            yield Undrain(record.name)
