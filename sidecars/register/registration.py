"""What a worker pod tells Slurm about itself: a pure function from facts to slurmd's --conf, --extra, --instance-id.

It reads nothing and writes nothing. slurmd finds the host's hardware itself and puts it before the items of --conf; so
what a limited pod may not use is told as specialized cores and memory (CoreSpecCount, MemSpecLimit), as SchedMD's
slurmd image does. How slurmd 26.05 takes the items of --conf (https://slurm.schedmd.com/slurmd.html):

- They are keys of slurm.conf's NodeName line, in any letter case; the last of a repeated key wins. An unknown key, and
  a value with a space that isn't within double quotes, ends slurmd with `failed to create dynamic node`.
- State=DRAIN and Reason= make a record that takes no job from its first moment on.
- A CoreSpecCount of all cores is cut to leave one; a MemSpecLimit above RealMemory is ignored without a word.
- slurmctld takes a dynamic node's address from the connection that registers it, whatever NodeAddr says.
- --conf, --extra and --instance-id count at the creation of the record only. While a record of the same name exists, a
  new slurmd keeps its old ones, and its drain and reason too; only the address and a DOWN state are renewed.
"""

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from decimal import Decimal

from sidecars.contract import extra
from sidecars.register.gpus import Verdict

_WORD = re.compile(r"""(?:"[^"]*"|\S)+""")
_ITEM = re.compile(r"(?P<key>[A-Za-z][A-Za-z0-9_]*)=(?P<value>.*)", re.DOTALL)
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
_OWN_MEMORY = frozenset({"memspeclimit", "realmemory"})
_OWN_STATE = frozenset({"state", "reason"})


class BadFact(ValueError):
    """Something about this pod can't be told to Slurm. The text says where it came from, its value and the remedy."""


@dataclass(frozen=True, slots=True)
class Host:
    """The hardware that slurmd will report, `slurmd -C` in other words. Memory is MiB."""

    cores: int
    threads_per_core: int
    real_memory: int


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a worker pod. `cpus` and `memory` (MiB) are slurmd's limits, 0 for none.

    `conf` holds the NodeSet's items of --conf between white space; `topology` is the value of its Topology item, or "".
    `gpus` is None where the NodeSet asks for none.
    """

    host: Host
    pod_ip: str
    pod_uid: str
    pod_name: str = ""
    namespace: str = ""
    nodeset_uid: str = ""
    kube_node: str = ""
    cpus: Decimal = Decimal(0)
    memory: int = 0
    conf: str = ""
    topology: str = ""
    gpus: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Registration:
    """The values of slurmd's --conf, --extra and --instance-id, and one line for the log that says how they came."""

    conf: str
    extra: str
    instance_id: str
    summary: str


def registration(facts: Facts) -> Registration:
    """What slurmd starts with. Items of the NodeSet win over ours. Raises BadFact."""
    own, unset = _items(facts.conf)
    named = {key.lower() for key, _ in own}
    ours: list[tuple[str, str]] = []
    notes: list[str] = []

    ours.append(("NodeAddr", _plain(facts.pod_ip, "POD_IP", "it comes from the pod's status.podIP")))
    cores = _specialized_cores(facts, named, notes)
    if cores:
        ours.append(("CoreSpecCount", str(cores)))
    memory = _specialized_memory(facts, named, notes)
    if memory:
        ours.append(("MemSpecLimit", str(memory)))

    if facts.topology:
        place = "SLINKY_TOPOLOGY"
        ours.append(
            ("Topology", _plain(facts.topology, place, "correct the annotation topology.slinky.slurm.net/spec"))
        )

    if facts.gpus is not None:
        notes.append(facts.gpus.summary)
        if facts.gpus.gres:
            ours.append(("Gres", facts.gpus.gres))
        if facts.gpus.drain and _OWN_STATE.isdisjoint(named):
            ours += [("State", "DRAIN"), ("Reason", _quoted(facts.gpus.drain))]

    if unset:
        notes.append(f"left out for want of a value: {', '.join(unset)}")
    overruled = [key for key, _ in ours if key.lower() in named]
    if overruled:
        notes.append(f"the NodeSet's own: {', '.join(overruled)}")
    conf = " ".join(f"{key}={value}" for key, value in (*_without(ours, named), *own))
    return Registration(
        conf=conf,
        extra=_extra(facts),
        instance_id=_plain(facts.kube_node, "KUBE_NODE_NAME", "it comes from the pod's spec.nodeName"),
        summary=f"--conf {conf} --instance-id {facts.kube_node} ({'; '.join(notes)})",
    )


def _items(conf: str) -> tuple[list[tuple[str, str]], list[str]]:
    """The NodeSet's items in order, and the keys of those without a value, which slurmd must not see."""
    items: list[tuple[str, str]] = []
    unset: list[str] = []
    for word in _WORD.findall(conf):
        match = _ITEM.fullmatch(word)
        if match is None:
            raise BadFact(
                f"NODESET_CONF: {word!r} is not Key=Value; items of the NodeSet's extraConf are separated by spaces; "
                "a value that holds one is between double quotes"
            )
        if not match["value"]:
            unset.append(match["key"])
            continue
        value = match["value"]
        quoted = len(value) > 1 and value[0] == value[-1] == '"'
        bare = value[1:-1].replace(" ", "") if quoted else value
        _plain(bare, f"NODESET_CONF: the value of {match['key']}", "write it without, in extraConf")
        items.append((match["key"], value))
    return items, unset


def _plain(value: str, place: str, remedy: str) -> str:
    if not value:
        raise BadFact(f"{place} is empty: {remedy}")
    found = _NOT_EXPRESSIBLE.search(value)
    if found:
        raise BadFact(f"{place} is {value!r}: slurmd's --conf can't express {found[0]!r}; {remedy}")
    return value


def _quoted(reason: str) -> str:
    """A reason as the value of an item; what would end it or be taken for another language is left out."""
    return '"' + "".join(character for character in reason if character not in "\"'\\$`#") + '"'


def _specialized_cores(facts: Facts, named: Iterable[str], notes: list[str]) -> int:
    host = f"{facts.host.cores} cores of {facts.host.threads_per_core} threads"
    if not facts.cpus:
        notes.append(f"CPUs: all of the host, {host}")
        return 0
    if not _OWN_CPUS.isdisjoint(named):
        notes.append("CPUs: as the NodeSet says")
        return 0
    # A core with some of its threads within the limit is the pod's: rounding the other way could leave it none.
    wanted = math.ceil(facts.cpus / facts.host.threads_per_core)
    if wanted > facts.host.cores:
        notes.append(f"CPUs: the limit of {facts.cpus} is beyond the host's {host}")
        return 0
    notes.append(f"CPUs: {wanted} of {host} for the limit of {facts.cpus}")
    return facts.host.cores - wanted


def _specialized_memory(facts: Facts, named: Iterable[str], notes: list[str]) -> int:
    if not facts.memory:
        notes.append(f"memory: all of the host, {facts.host.real_memory} MiB")
        return 0
    if not _OWN_MEMORY.isdisjoint(named):
        notes.append("memory: as the NodeSet says")
        return 0
    if facts.memory > facts.host.real_memory:
        notes.append(f"memory: the limit of {facts.memory} MiB is beyond the host's {facts.host.real_memory} MiB")
        return 0
    notes.append(f"memory: {facts.memory} of {facts.host.real_memory} MiB")
    return facts.host.real_memory - facts.memory


def _without(items: Iterable[tuple[str, str]], named: Iterable[str]) -> Iterable[tuple[str, str]]:
    taken = set(named)
    return (item for item in items if item[0].lower() not in taken)


def _extra(facts: Facts) -> str:
    if not facts.pod_uid:
        raise BadFact("POD_UID is empty: it comes from the pod's metadata.uid")
    return extra.encode(extra.PodFacts(facts.pod_uid, facts.pod_name, facts.namespace, facts.nodeset_uid))
