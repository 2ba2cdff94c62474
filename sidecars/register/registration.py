"""How a worker pod registers in Slurm: a pure function from facts to slurmd's --conf, --extra and
--instance-id.

It reads nothing and writes nothing. slurmd finds the host's hardware itself and puts it before the
items of --conf; so what a limited pod may not use is registered as specialized cores and memory
(CoreSpecCount, MemSpecLimit), as SchedMD's slurmd image does. How slurmd 26.05 uses the items of
--conf (https://slurm.schedmd.com/slurmd.html):

- They are keys of slurm.conf's NodeName line, in any letter case; the last of a repeated key wins.
  An unknown key, and a value with a space that isn't within double quotes, ends slurmd with `failed
  to create dynamic node`.
- State=DRAIN and Reason= create a record that accepts no job from the start.
- A CoreSpecCount of all cores is cut to leave one; a MemSpecLimit above RealMemory is ignored
  without a word.
- slurmctld takes a dynamic node's address from the connection that registers it, whatever the value
  of NodeAddr.
- --conf, --extra and --instance-id count at the creation of the record only. While a record of the
  same name exists, a new slurmd keeps its old ones, and its drain and reason too; only the address
  and a DOWN state are renewed.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from sidecars.contract import extra
from sidecars.contract.shape import Shape
from sidecars.register import cpuset
from sidecars.register.gpus import Verdict
from sidecars.slurm import nodeconf
from sidecars.slurm.nodeconf import Item, NodeConf

_NOT_EXPRESSIBLE = re.compile(r"""["'\\\s\x00-\x1f\x7f]""")

_OWN_CPUS = frozenset(
    {
        "boards",
        "corespeccount",
        "corespersocket",
        "cpus",
        "cpuspeclist",
        "procs",
        "sockets",
        "socketsperboard",
        "threadspercore",
    }
)
_TOPOLOGY = _OWN_CPUS - {"corespeccount", "cpuspeclist"}
_OWN_MEMORY = frozenset({"memspeclimit", "realmemory"})
_RESERVED_PART, _MOST_RESERVED_MIB = 8, 1024
"""What part of the memory is reserved for slurmd, `node` and the system, and the most that is."""

_OWN_STATE = frozenset({"state", "reason"})


class BadFact(ValueError):
    """Slurm can't be given a fact about this pod. The message has its source, its value and the
    remedy.
    """


@dataclass(frozen=True, slots=True)
class Host:
    """The hardware that slurmd will report, `slurmd -C` in other words. Memory is MiB."""

    cores: int
    threads_per_core: int
    real_memory: int
    cpus: int = 0
    """Threads of all cores; 0 if unknown."""

    order: tuple[tuple[int, ...], ...] = ()
    """The CPUs of each core, in the order in which Slurm numbers the cores; () if unknown."""

    allowed: frozenset[int] = frozenset()
    """The CPUs that this container may use."""


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a worker pod."""

    host: Host
    """The hardware of its Kubernetes node."""

    pod_ip: str
    """status.podIP"""

    pod_uid: str
    """metadata.uid"""

    pod_name: str = ""
    """metadata.name"""

    namespace: str = ""
    """metadata.namespace"""

    nodeset_uid: str = ""
    """metadata.uid of its NodeSet."""

    kube_node: str = ""
    """spec.nodeName"""

    cpus: Decimal = Decimal(0)
    """CPU limit of slurmd's container, 0 for none."""

    memory: int = 0
    """Memory limit of slurmd's container in MiB, 0 for none."""

    pod_memory: int = 0
    """Memory limit of the pod as a whole in MiB, 0 for none. Jobs share it with all containers."""

    default_limits: bool = False
    """Whether these limits are smaller than those of the NodeSet: a LimitRange has set them."""

    exclusive_cpus: bool = False
    """Whether Slurm is to use the very CPUs that the kubelet has given to the container."""

    conf: str = ""
    """The NodeSet's items of --conf (`sidecars.slurm.nodeconf`)."""

    topology: str = ""
    """Value of the Topology item, or ""."""

    gpus: Verdict | None = None
    """None where the NodeSet asks for no GPUs."""


@dataclass(frozen=True, slots=True)
class Registration:
    """What slurmd starts with."""

    conf: str
    """Value of --conf."""

    extra: str
    """Value of --extra."""

    instance_id: str
    """Value of --instance-id: the Kubernetes node."""

    shape: Shape
    """What a new record of this worker would have."""

    summary: str
    """A line for the log: the values and the reasons for them."""


def registration(facts: Facts) -> Registration:
    """Compose what slurmd starts with. Items of the NodeSet win over ours. Raises BadFact."""
    nodeset = nodeconf.parse(facts.conf)
    if nodeset.problems:
        raise BadFact(f"NODESET_CONF, from the NodeSet's extraConf: {nodeset.problems[0]}")
    # slurmd would end over an item without a value.
    own = [item for item in nodeset.items if item.value]
    unset = [item.key for item in nodeset.items if not item.value]
    named = {item.key.lower() for item in own}
    ours: list[Item] = []
    notes: list[str] = []

    ours.append(
        Item("NodeAddr", _plain(facts.pod_ip, "POD_IP", "it comes from the pod's status.podIP"))
    )
    ours += _specialized_cpus(facts, named, notes)
    memory = _specialized_memory(facts, named, notes)
    if memory:
        ours.append(Item("MemSpecLimit", str(memory)))

    if facts.default_limits:
        notes.append(
            "the limits are those that the pod has been given, as by a LimitRange of its namespace"
        )

    if facts.topology:
        place = "SLINKY_TOPOLOGY"
        if problem := nodeconf.topology_problem(facts.topology):
            raise BadFact(f"{place}, from the annotation topology.slinky.slurm.net/spec: {problem}")
        ours.append(
            Item(
                "Topology",
                _plain(
                    facts.topology, place, "correct the annotation topology.slinky.slurm.net/spec"
                ),
            )
        )

    if facts.gpus is not None:
        notes.append(facts.gpus.summary)
        if facts.gpus.gres:
            ours.append(Item("Gres", facts.gpus.gres))
        if facts.gpus.drain and _OWN_STATE.isdisjoint(named):
            ours += [Item("State", "DRAIN"), Item("Reason", _quotable(facts.gpus.drain))]

    if unset:
        notes.append(f"omitted, because they have no value: {', '.join(unset)}")
    overruled = [item.key for item in ours if item.key.lower() in named]
    if overruled:
        notes.append(f"the NodeSet's own: {', '.join(overruled)}")
    conf = nodeconf.render([*(item for item in ours if item.key.lower() not in named), *own])
    return Registration(
        conf=conf,
        extra=_extra(facts),
        instance_id=_plain(
            facts.kube_node, "KUBE_NODE_NAME", "it comes from the pod's spec.nodeName"
        ),
        shape=_shape(facts, nodeset),
        summary=f"--conf {conf} --instance-id {facts.kube_node} ({'; '.join(notes)})",
    )


def _shape(facts: Facts, nodeset: NodeConf) -> Shape:
    """Return the shape to register. slurmd finds CPUs, memory and GPUs itself. Where the NodeSet
    sets them, they don't change from start to start.
    """
    own_gres = nodeset.get("Gres")
    return Shape(
        cpus=(facts.host.cpus or None) if _TOPOLOGY.isdisjoint(nodeset.keys) else None,
        memory=None if nodeset.get("RealMemory") else facts.host.real_memory,
        gres=own_gres or (None if facts.gpus is None else facts.gpus.gres),
    )


def _plain(value: str, place: str, remedy: str) -> str:
    if not value:
        raise BadFact(f"{place} is empty: {remedy}")
    found = _NOT_EXPRESSIBLE.search(value)
    if found:
        raise BadFact(f"{place} is {value!r}: slurmd's --conf can't express {found[0]!r}; {remedy}")
    return value


def _quotable(reason: str) -> str:
    """Return a reason as the value of an item, without the characters that would end it or mean
    something to a shell.
    """
    return "".join(character for character in reason if character not in "\"'\\$`#")


def _specialized_cpus(facts: Facts, named: Iterable[str], notes: list[str]) -> list[Item]:
    host = f"{facts.host.cores} cores of {facts.host.threads_per_core} threads"
    if not facts.cpus:
        notes.append(f"CPUs: all of the host, {host}")
        return []
    if not _OWN_CPUS.isdisjoint(named):
        notes.append("CPUs: from the NodeSet")
        return []
    own = (
        cpuset.own_cores(facts.cpus, facts.host.allowed, facts.host.order)
        if facts.exclusive_cpus
        else []
    )
    if own:
        allowed = len(facts.host.allowed)
        whose = (
            f"because it may use {allowed} CPUs, fewer than its limit of {facts.cpus}"
            if allowed < facts.cpus
            else "that the kubelet's CPU manager has given to it"
        )
        notes.append(f"CPUs: the {len(own)} of {host} of the container, {whose}")
        found = cpuset.others(own, len(facts.host.order), facts.host.threads_per_core)
        return [Item("CpuSpecList", found)] if found else []
    # A core with some of its threads within the limit is the pod's: rounding the other way could
    # leave it none.
    wanted = math.ceil(facts.cpus / facts.host.threads_per_core)
    if wanted > facts.host.cores:
        notes.append(f"CPUs: the limit of {facts.cpus} is beyond the host's {host}")
        return []
    notes.append(f"CPUs: {wanted} of {host} for the limit of {facts.cpus}")
    return (
        [Item("CoreSpecCount", str(facts.host.cores - wanted))] if wanted < facts.host.cores else []
    )


def _specialized_memory(facts: Facts, named: Iterable[str], notes: list[str]) -> int:
    """Return the memory that jobs may not use, so that the kernel never has to choose between a job
    and the pod's own containers.

    Jobs are in the pod's cgroup beside the containers. The limit of slurmd's container binds no
    job, that of the pod does.
    """
    if not _OWN_MEMORY.isdisjoint(named):
        notes.append("memory: from the NodeSet")
        return 0
    host = facts.host.real_memory
    shared = min(host, facts.pod_memory or host)
    jobs = min(facts.memory or host, shared - min(shared // _RESERVED_PART, _MOST_RESERVED_MIB))
    notes.append(f"memory: {jobs} of {host} MiB for jobs")
    return host - jobs


def _extra(facts: Facts) -> str:
    if not facts.pod_uid:
        raise BadFact("POD_UID is empty: it comes from the pod's metadata.uid")
    return extra.encode(
        extra.PodFacts(facts.pod_uid, facts.pod_name, facts.namespace, facts.nodeset_uid)
    )
