"""What to do about the records of Kubernetes nodes in Slurm: external nodes, which need no slurmd.
Pure.

A record is created without its Extra, which `scontrol create` and node_conf don't accept, and gets
it afterwards. NodeAddr is always the node's InternalIP: a name that slurmctld can't resolve would
stall it at each allocation.
"""

import functools
import types
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal

from sidecars.bridge.core.devices import NO_RULES, Device, Numbered, Rules
from sidecars.bridge.core.manifests import Node as KubeNode
from sidecars.contract import bridge
from sidecars.contract.reasons import Owner, owner
from sidecars.slurm import states
from sidecars.slurm.gres import GresError, parse, total
from sidecars.slurm.records import Node
from sidecars.workloads.quantities import quantity
from sidecars.workloads.resources import ResourceError

FEATURE = "slurm-bridge"
"""Every node has this feature: `NodeSet=bridge Feature=slurm-bridge` names them all. Those of one
Kubernetes cluster have another one as well, with the first characters of `bridge.CLUSTER`.
"""

_SHORT = 8
"""Characters of the cluster's uid in the feature of its nodes."""

_CORDONED = bridge.DRAIN_PREFIX + "the Kubernetes node is cordoned"
_NOT_READY = bridge.DRAIN_PREFIX + "the Kubernetes node isn't ready"
_CHANGED = bridge.DRAIN_PREFIX + "its resources have changed"
_GONE = "its Kubernetes node is gone"
_SILENT = bridge.DRAIN_PREFIX + "the record has to be created again"


@dataclass(frozen=True, slots=True)
class Usage:
    """What pods that Slurm doesn't schedule request of one Kubernetes node."""

    cpus: int = 0
    """Rounded up."""
    memory: int = 0
    """MiB, rounded up."""
    exact: Decimal | None = field(default=None, compare=False)
    """The CPUs that are not rounded, if they are known: what is left is rounded once."""

    def at_least(self, reserve: "Usage") -> "Usage":
        """Return this usage, or the reserve where that is more."""
        exact = max(Decimal(it.cpus) if it.exact is None else it.exact for it in (self, reserve))
        return Usage(max(self.cpus, reserve.cpus), max(self.memory, reserve.memory), exact)


NO_USAGE = Usage()


@dataclass(frozen=True, slots=True)
class Wanted:
    """The record that a Kubernetes node should have."""

    name: str
    kube_node: str
    address: str
    cpus: int
    memory: int
    """MiB."""
    counted: tuple[tuple[str, int], ...] = ()
    """GRES whose devices Slurm only counts, as `gpu`, and their number."""
    devices: tuple[Numbered, ...] = ()
    """The devices that Slurm gives away by index, in this order."""
    features: tuple[str, ...] = (FEATURE,)
    labels: Mapping[str, str] = field(default_factory=dict, hash=False)
    cluster: str = ""
    """The Kubernetes cluster, as in `bridge.CLUSTER`."""
    drain: str = ""
    """Why it takes no new pods; "" if it does."""

    def conf(self) -> str:
        """Return the line that creates it."""
        words = [
            *(
                f"NodeName={self.name}",
                f"NodeAddr={self.address}",
                f"CPUs={self.cpus}",
                "Sockets=1",
            ),
            *(
                f"CoresPerSocket={self.cpus}",
                "ThreadsPerCore=1",
                f"RealMemory={self.memory}",
                "State=External",
            ),
            f"Feature={','.join(self.features)}",
        ]
        if self.gres:
            words += [f"Gres={self.gres}", f"GresConf={'+'.join(self._gres_conf())}"]
        return " ".join(words)

    def _gres_conf(self) -> Iterator[str]:
        """Yield a line for each GRES. The files only number the devices: an external node has no
        slurmd that opens them.
        """
        first: Counter[str] = Counter()
        for gres, count in self._counts.items():
            name, _, kind = gres.partition(":")
            line = f"count={count},name={name}" + (f",type={kind}" if kind else "")
            if any(its == gres for its, _ in self.devices):
                start, end = first[name], first[name] + count - 1
                line += f",file={name}-{start}" if count == 1 else f",file={name}-[{start}-{end}]"
            first[name] += count
            yield line

    @property
    def _counts(self) -> dict[str, int]:
        return {**dict(self.counted), **Counter(gres for gres, _ in self.devices)}

    def record_extra(self, keys: Iterable[str], devices: Iterable[Numbered]) -> str:
        """Return the record's Extra with these devices."""
        named = ((gres, *device) for gres, device in devices)
        return bridge.node_extra(self.kube_node, self.labels, keys, named, self.cluster)

    @property
    def gres(self) -> str:
        """As Slurm reports it, but perhaps in another order."""
        return ",".join(f"{gres}:{count}" for gres, count in self._counts.items())


@functools.lru_cache(maxsize=16_384)
def numbered_of(extra: str) -> tuple[Numbered, ...]:
    """Return the devices in the Extra of a record, in the order of their indices."""
    return tuple((gres, Device(*device)) for gres, *device in bridge.devices_of(extra))


@dataclass(frozen=True, slots=True)
class Create:
    """Create the record."""

    wanted: Wanted


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete the record, on which no job is."""

    name: str


@dataclass(frozen=True, slots=True)
class SetExtra:
    """Write the record's Extra."""

    name: str
    extra: str


@dataclass(frozen=True, slots=True)
class Drain:
    """Drain the node with this reason; "" for the reason that it has."""

    name: str
    reason: str


@dataclass(frozen=True, slots=True)
class Undrain:
    """End the drain."""

    name: str


@dataclass(frozen=True, slots=True)
class Conflict:
    """This Kubernetes node has no record: that of its name isn't the bridge's, or another node has
    it.
    """

    kube_node: str
    message: str


Change = Create | Delete | SetExtra | Drain | Undrain
NodeAction = Change | Conflict


def wanted_of(
    node: KubeNode,
    usage: Usage,
    keys: Iterable[str],
    rules: Rules = NO_RULES,
    devices: tuple[Numbered, ...] = (),
    cluster: str = "",
) -> Wanted | str:
    """Return the record for a Kubernetes node, or why it can't have one. `keys` are the labels that
    pods select nodes by.

    `devices`: those of DRA drivers that the rules select on this node.
    """
    meta = node.metadata
    if bridge.EXTERNAL_NODE not in meta.labels:
        return ""
    if not node.address:
        return "it has no InternalIP: Slurm needs an address that resolves"
    try:
        used = usage.cpus if usage.exact is None else usage.exact
        cpus = int(quantity(node.status.allocatable.get("cpu", "0"), "allocatable cpu") - used)
        memory = (
            int(quantity(node.status.allocatable.get("memory", "0"), "allocatable memory")) // 2**20
            - usage.memory
        )
        counts: Counter[str] = Counter()
        for resource, gres in rules.extended.items():
            counts[gres] += int(quantity(node.status.allocatable.get(resource, "0"), resource))
    except ResourceError as error:
        return str(error)
    if cpus < 1 or memory < 1:
        return "other pods request, or nodes.reserve keeps, all of its CPUs or memory"
    more = [
        it.strip() for it in meta.annotations.get(bridge.NODE_FEATURES, "").split(",") if it.strip()
    ]
    drain = _CORDONED if node.spec.unschedulable else "" if node.ready else _NOT_READY
    return Wanted(
        name=meta.labels.get(bridge.NODE_NAME) or meta.name,
        kube_node=meta.name,
        address=node.address,
        cpus=cpus,
        memory=memory,
        counted=tuple((gres, count) for gres, count in sorted(counts.items()) if count),
        devices=devices,
        features=tuple(dict.fromkeys((FEATURE, *_features(cluster), *more))),
        labels={key: value for key, value in meta.labels.items() if key in set(keys)},
        cluster=cluster,
        drain=drain,
    )


def _features(cluster: str) -> tuple[str, ...]:
    """Return the feature of all nodes of a Kubernetes cluster. A record has it from its creation
    on, before its Extra.
    """
    return (f"{FEATURE}-{cluster[:_SHORT]}",) if cluster else ()


def decide(
    wanted: Iterable[Wanted],
    records: Mapping[str, Node],
    keys: frozenset[str],
    *,
    known: bool,
    holding: Container[str] | None = frozenset(),
    refused: Mapping[str, str] = types.MappingProxyType({}),
    lacking: Container[str] = frozenset(),
    cluster: str = "",
) -> tuple[NodeAction, ...]:
    """Decide what to do about the records, nothing while Slurm's list of nodes isn't `known`. Of
    several `wanted` with one name, the first has the record.

    `refused`: why other Kubernetes nodes have none. `holding`: the nodes of jobs that have begun
    and not ended, also of suspended ones, whose nodes are IDLE. None: any may be one. `lacking`:
    the records whose devices may be back in a moment, see `lacks_devices`.
    """
    if not known:
        return ()
    actions: list[NodeAction] = []
    named: dict[str, Wanted] = {}
    for it in wanted:
        if it.name in named:
            text = (
                f"Kubernetes node {named[it.name].kube_node} has Slurm node {it.name}: give this "
                "one another name"
            )
            actions.append(Conflict(it.kube_node, text))
        else:
            named[it.name] = it
    for name, it in sorted(named.items()):
        record = records.get(name)
        if record is not None and is_of_another_cluster(record, cluster):
            text = (
                f"Slurm node {name} is of another Kubernetes cluster: give this one another name "
                f"with the label {bridge.NODE_NAME}"
            )
            actions.append(Conflict(it.kube_node, text))
        else:
            actions += _one(it, record, keys, holding, recent=name in lacking)
    for name, record in sorted(records.items()):
        if name not in named and _ours(record) and not is_of_another_cluster(record, cluster):
            kube_node = (bridge.labels_of(record.extra) or {}).get(bridge.KUBE_NODE, name)
            actions += _removal(
                record, bridge.DRAIN_PREFIX + refused.get(kube_node, _GONE), holding
            )
    return tuple(actions)


def _ours(record: Node) -> bool:
    # Without an Extra, it is one that was created a moment before the bridge ended.
    begun = not record.extra and FEATURE in record.features
    return "EXTERNAL" in record.states and (begun or bridge.labels_of(record.extra) is not None)


@functools.lru_cache(maxsize=16_384)
def _cluster_of(extra: str) -> str | None:
    # Each record is looked at in each pass, and few change.
    return (bridge.labels_of(extra) or {}).get(bridge.CLUSTER)


def is_of_another_cluster(record: Node, cluster: str) -> bool:
    """Return whether the bridge of another Kubernetes cluster has created the record."""
    if "EXTERNAL" not in record.states:
        return False
    named = _cluster_of(record.extra)
    if named is not None:
        return named != cluster
    theirs = {it for it in record.features if it.startswith(f"{FEATURE}-")}
    return not record.extra and bool(theirs) and theirs.isdisjoint(_features(cluster))


def _one(
    it: Wanted,
    record: Node | None,
    keys: frozenset[str],
    holding: Container[str] | None,
    *,
    recent: bool,
) -> Iterator[NodeAction]:
    if record is None:
        yield Create(it)
        return
    if "EXTERNAL" not in record.states:
        yield Conflict(
            it.kube_node, f"Slurm node {it.name} has a slurmd: the bridge uses external nodes alone"
        )
        return
    ours = bridge.labels_of(record.extra) is not None
    # Jobs have indices of the devices that the record was created with.
    devices = numbered_of(record.extra) if ours else it.devices
    extra = it.record_extra(keys, devices)
    if record.extra and not ours:
        yield Conflict(
            it.kube_node,
            f"Slurm node {it.name} has an Extra that the bridge hasn't written: delete the node",
        )
        return
    if record.extra != extra:
        yield SetExtra(it.name, extra)
    if "NOT_RESPONDING" in record.states:
        # A signal to an external job does that, and nothing but a new record ends it.
        yield from _removal(record, _SILENT, holding)
        return
    # A record that is too small only wastes, and is replaced when no job is on the node. Until
    # then, and while Slurm refuses that because of a reservation, it serves. One that is too large
    # would give away what other pods use.
    exceeds = it.cpus < record.cpus or it.memory < record.real_memory
    if exceeds or _lacks(it, record, devices):
        removal = _removal(record, _CHANGED, holding)
        yield from (
            change for change in removal if exceeds or not recent or not isinstance(change, Delete)
        )
        return
    if _is_others(record):
        return
    drained = states.is_drain(record.states)
    if it.drain and not drained:
        yield Drain(it.name, it.drain)
    elif not it.drain and drained and is_ours(record):
        yield Undrain(it.name)
    if (_differs(it, record) or devices != it.devices) and _is_removable(record, holding):
        yield Delete(it.name)


def lacks_devices(it: Wanted, record: Node) -> bool:
    """Return whether the record has devices that the Kubernetes node doesn't report. While a device
    plugin or a driver starts again, the node reports none of its devices.
    """
    ours = bridge.labels_of(record.extra) is not None
    return _lacks(it, record, numbered_of(record.extra) if ours else it.devices)


def _lacks(it: Wanted, record: Node, devices: tuple[Numbered, ...]) -> bool:
    left = _counts(it.gres)
    more = any(count > left.get(name, 0) for name, count in _counts(record.gres).items())
    return more or not set(devices) <= set(it.devices)


def _differs(it: Wanted, record: Node) -> bool:
    now = (
        record.cpus,
        record.real_memory,
        _counts(record.gres),
        record.address,
        frozenset(record.features),
    )
    return now != (it.cpus, it.memory, _counts(it.gres), it.address, frozenset(it.features))


@functools.lru_cache(maxsize=256)
def _counts(text: str) -> dict[tuple[str, str], int]:
    """Return the counts by name and type. Slurm reports the GRES in the order of its GresTypes, and
    2048 as 2K.
    """
    try:
        return {(it.name, it.type): it.count for it in total(parse(text))}
    except GresError:
        # What no node should have: such a record is replaced when no job is on the node.
        return {(text, ""): 0}


def is_ours(record: Node) -> bool:
    """Return whether a drain of this node is the bridge's. It never sets FAIL, which the end of a
    drain would end as well.
    """
    return record.reason.startswith(bridge.DRAIN_PREFIX) and "FAIL" not in record.states


def _is_others(record: Node) -> bool:
    """Return whether an administrator or another program has taken the node out of service."""
    out_of_service = states.is_drain(record.states) or states.is_down(record.states)
    # slurmctld's own words are those of a signal to an external job, and its user may have any
    # name.
    theirs = "FAIL" in record.states or owner(record.reason) in (Owner.FOREIGN, Owner.NOBODY)
    return out_of_service and theirs and not is_ours(record)


def _has_job(record: Node, holding: Container[str] | None) -> bool:
    return states.is_busy(record.states) or holding is None or record.name in holding


def _removal(record: Node, reason: str, holding: Container[str] | None) -> Iterator[NodeAction]:
    if _is_others(record):
        # The next record would be in service.
        return
    if not states.is_drain(record.states):
        # Also before a deletion: a job may begin before it, or Slurm refuse it because of a
        # reservation.
        yield Drain(record.name, reason)
    if _is_removable(record, holding):
        yield Delete(record.name)


def _is_removable(record: Node, holding: Container[str] | None) -> bool:
    return not _has_job(record, holding) and states.base_state(record.states) in ("IDLE", "DOWN")
