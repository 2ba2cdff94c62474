"""Samples of nodes: of each, of each partition and of the cluster. Pure."""

from collections import Counter
from collections.abc import Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import lru_cache

from sidecars.contract.extra import pod_facts
from sidecars.contract.text import printable
from sidecars.exporter import compatible, families
from sidecars.exporter.samples import Samples
from sidecars.slurm import gres, owners, states
from sidecars.slurm.usage import NodeUsage

MEBIBYTE = 2**20
UNRECOGNIZED = "unrecognized"
FLAGS = frozenset(
    {
        *(
            "BLOCKED",
            "CLOUD",
            "COMPLETING",
            "DRAIN",
            "DYNAMIC_FUTURE",
            "DYNAMIC_NORM",
            "EXTERNAL",
            "FAIL",
        ),
        *(
            "INVALID_REG",
            "MAINTENANCE",
            "NOT_RESPONDING",
            "PLANNED",
            "POWERED_DOWN",
            "POWERING_DOWN",
            "POWERING_UP",
        ),
        *(
            "POWER_DOWN",
            "POWER_DOWN_ASAP",
            "POWER_DOWN_FORCE",
            "POWER_DRAIN",
            "POWER_UP",
            "REBOOT_CANCELED",
        ),
        *("REBOOT_ISSUED", "REBOOT_REQUESTED", "RESERVED", "RESUME", "UNDRAIN"),
    }
)
"""The flags of a node's state (slurm.h, NODE_STATE_FLAGS). Any other word counts as `unrecognized`.
"""

_SAVING = frozenset({"POWERED_DOWN", "POWERING_DOWN", "POWERING_UP", "POWER_UP"})
"""Flags of a node that is not up by intention: it need not respond, and nothing on it is idle."""
_NOT_FREE = frozenset({"RESERVED", "MAINTENANCE", "PLANNED", "COMPLETING", "NOT_RESPONDING"})
_LONGEST_REASON = 200


def cause_of(words: AbstractSet[str]) -> str:
    """Return why a node takes no new job, "" for one that does."""
    if states.is_down(words):
        return "down"
    if states.is_drain(words):
        return "drain"
    if "NOT_RESPONDING" in words and words.isdisjoint(_SAVING):
        return "not_responding"
    return "invalid" if "INVALID_REG" in words or "INVALID" in words else ""


_MARKS = (
    ("MAINTENANCE", "$"),
    ("REBOOT_ISSUED", "^"),
    ("REBOOT_REQUESTED", "@"),
    ("POWERING_UP", "#"),
    ("POWERING_DOWN", "%"),
    ("POWERED_DOWN", "~"),
    ("POWER_DOWN", "!"),
    ("NOT_RESPONDING", "*"),
)
"""What sinfo appends for a flag (sinfo, NODE STATE CODES). The first one counts."""

_OF_IDLE = (("RESERVED", "reserved"), ("BLOCKED", "blocked"), ("PLANNED", "planned"))
_LAST = {("ALLOCATED", "COMPLETING"): "+", ("MIXED", "PLANNED"): "-"}


def sinfo_state(words: AbstractSet[str]) -> str:
    """Return the state as `sinfo` shows it in one word, with its mark (src/common/
    slurm_protocol_defs.c, node_state_string).
    """
    base = states.base_state(words) or "UNKNOWN"
    at_work = base in {"ALLOCATED", "MIXED"}
    mark = next((mark for flag, mark in _MARKS if flag in words), "")
    silent = "*" if "NOT_RESPONDING" in words else ""
    if "INVALID_REG" in words:
        return "inval"
    if "MAINTENANCE" in words and "DRAIN" not in words and not (at_work or base == "DOWN"):
        return f"maint{silent}"
    if not at_work and not words.isdisjoint({"REBOOT_ISSUED", "REBOOT_REQUESTED"}):
        return "reboot^" if "REBOOT_ISSUED" in words else f"reboot{silent}"
    if "DRAIN" in words:
        return f"{'draining' if states.is_busy(words) else 'drained'}{mark}"
    if "FAIL" in words:
        return f"{'failing' if states.is_busy(words) else 'fail'}{silent}"
    shown = base.lower()
    if "COMPLETING" in words and not (at_work or base == "DOWN"):
        shown = "completing"
    elif base == "IDLE" and not mark:
        shown = next((name for flag, name in _OF_IDLE if flag in words), shown)
    last = next((sign for (of, flag), sign in _LAST.items() if of == base and flag in words), "")
    return f"{shown}{mark or last}"


class _Totals:
    """Sums over nodes."""

    def __init__(self) -> None:
        self.nodes = self.free = 0
        self.bases: Counter[str] = Counter()
        self.words: Counter[str] = Counter()
        self.shown: Counter[str] = Counter()
        self.unavailable: Counter[tuple[str, str]] = Counter()
        self.cpus: Counter[str] = Counter()
        self.memory: Counter[str] = Counter()
        self.gpus: Counter[tuple[str, str]] = Counter()
        self.resources: Counter[str] = Counter()


class _Facts:
    """What the samples of one node have in common. Raises nothing: unreadable GRES counts as
    none.
    """

    def __init__(self, usage: NodeUsage, samples: Samples) -> None:
        node = usage.node
        self.base = (states.base_state(node.states) or UNRECOGNIZED).lower()
        self.flags = {
            word.lower() if word in FLAGS else UNRECOGNIZED
            for word in node.states - states.BASE_STATES
        }
        self.cause = cause_of(node.states)
        owner = owners.owner_of(node)
        self.owner = owner.value if self.cause else ""
        saving = not node.states.isdisjoint(_SAVING)
        unknown = not states.base_state(node.states)
        rest = "other" if self.cause or saving or unknown else "idle"
        self.free = self.base == "idle" and rest == "idle" and node.states.isdisjoint(_NOT_FREE)
        self.cpus = _split(usage.effective_cpus, node.alloc_cpus, rest)
        self.memory = _split(usage.effective_memory, node.alloc_memory, rest)
        self.gpus: dict[str, int] = {}
        self.used_gpus: dict[str, int] = {}
        try:
            self.gpus, self.used_gpus = _gpus(node.gres), _gpus(node.gres_used)
        except gres.GresError:
            samples.unreadable += 1
        samples.unreadable += self.base == UNRECOGNIZED
        self.rest = rest
        self.resources = {
            "cpus_total": node.cpus,
            "cpus_effective_total": usage.effective_cpus,
            "cpus_alloc_total": node.alloc_cpus,
            "cpus_idle_total": usage.idle_cpus,
            "memory_bytes": node.real_memory,
            "memory_effective_bytes": usage.effective_memory,
            "memory_alloc_bytes": node.alloc_memory,
            "memory_free_bytes": usage.free_memory or 0,
        }

    def add_to(self, totals: _Totals, words: AbstractSet[str]) -> None:
        """Add the node to sums."""
        totals.nodes += 1
        totals.free += self.free
        totals.bases[self.base] += 1
        totals.words.update(words)
        totals.shown[sinfo_state(words)] += 1
        if self.cause:
            totals.unavailable[self.owner, self.cause] += 1
        totals.cpus.update(self.cpus)
        totals.memory.update(self.memory)
        for type_ in self.gpus.keys() | self.used_gpus.keys():
            for use, count in _split(
                self.gpus.get(type_, 0), self.used_gpus.get(type_, 0), self.rest
            ).items():
                totals.gpus[type_, use] += count
        totals.resources.update(self.resources)


def add_nodes(samples: Samples, nodes: Sequence[NodeUsage], partitions: Iterable[str]) -> None:
    """Add all samples of nodes. `partitions`: those that exist, so that one without nodes has
    zeros.
    """
    cluster = _Totals()
    by_partition = {name: _Totals() for name in partitions}
    for usage in nodes:
        node, facts = usage.node, _Facts(usage, samples)
        facts.add_to(cluster, node.states)
        for partition in node.partitions:
            facts.add_to(by_partition.setdefault(partition, _Totals()), node.states)
        _add_node(samples, usage, facts)
    _add_cluster(samples, cluster)
    for name, totals in by_partition.items():
        _add_partition(samples, name, totals)


def _add_node(samples: Samples, usage: NodeUsage, facts: _Facts) -> None:
    node, name = usage.node, usage.node.name
    add = samples.add
    pod = pod_facts(node.extra)
    add(
        families.NODE_INFO,
        1,
        name,
        pod.namespace if pod else "",
        pod.pod if pod else "",
        node.version,
    )
    add(families.NODE_STATE, 1, name, facts.base)
    for flag in facts.flags:
        add(families.NODE_FLAG, 1, name, flag)
    if facts.cause:
        reason = printable(node.reason, _LONGEST_REASON)
        add(families.NODE_UNAVAILABLE, 1, name, facts.owner, facts.cause, reason)
        if node.reason_changed_at:
            add(families.NODE_UNAVAILABLE_SINCE, node.reason_changed_at, name)
    add(families.NODE_CPUS, usage.effective_cpus, name)
    add(families.NODE_CPUS_ALLOCATED, node.alloc_cpus, name)
    if usage.load is not None:
        add(families.NODE_CPU_LOAD, usage.load, name)
    add(families.NODE_MEMORY, usage.effective_memory * MEBIBYTE, name)
    add(families.NODE_MEMORY_ALLOCATED, node.alloc_memory * MEBIBYTE, name)
    if usage.free_memory is not None:
        add(families.NODE_MEMORY_UNUSED, usage.free_memory * MEBIBYTE, name)
    for type_, count in facts.gpus.items():
        add(families.NODE_GPUS, count, name, type_)
        add(families.NODE_GPUS_ALLOCATED, facts.used_gpus.get(type_, 0), name, type_)
    for ending, value in facts.resources.items():
        samples.add_named(f"node_{ending}", value, name)
    status = sinfo_state(node.states)
    cpus = facts.cpus
    for word, use in (("alloc", "allocated"), ("idle", "idle"), ("other", "other")):
        samples.add_named(f"node_cpu_{word}", cpus.get(use, 0), name, status)
    samples.add_named("node_cpu_total", sum(cpus.values()), name, status)
    samples.add_named("node_mem_alloc", node.alloc_memory, name, status)
    samples.add_named("node_mem_total", node.real_memory, name, status)


def _add_cluster(samples: Samples, totals: _Totals) -> None:
    for base in (*sorted(states.BASE_STATES), UNRECOGNIZED):
        samples.add(families.NODES, totals.bases[base.lower()], base.lower())
    known = {flag: totals.words[flag] for flag in sorted(FLAGS)}
    for flag, count in known.items():
        samples.add(families.NODES_FLAGGED, count, flag.lower())
    others = sum(
        count for word, count in totals.words.items() if word not in FLAGS | states.BASE_STATES
    )
    samples.add(families.NODES_FLAGGED, others, UNRECOGNIZED)
    samples.add(families.NODES_FREE, totals.free)
    for (owner, cause), count in totals.unavailable.items():
        samples.add(families.NODES_UNAVAILABLE, count, owner, cause)
    for use in ("allocated", "idle", "other"):
        samples.add(families.CPUS, totals.cpus[use], use)
        samples.add(families.MEMORY, totals.memory[use] * MEBIBYTE, use)
        for type_ in {type_ for type_, _ in totals.gpus}:
            samples.add(families.GPUS, totals.gpus[type_, use], type_, use)
    _add_reference_states(samples, "nodes", totals)
    cpus = totals.cpus
    for word, use in (("alloc", "allocated"), ("idle", "idle"), ("other", "other")):
        samples.add_named(f"cpus_{word}", cpus[use])
    samples.add_named("cpus_total", cpus.total())
    gpus, used = (
        totals.gpus.total(),
        sum(count for (_, use), count in totals.gpus.items() if use == "allocated"),
    )
    samples.add_named("gpus_alloc", used)
    samples.add_named("gpus_idle", gpus - used)
    samples.add_named("gpus_total", gpus)
    samples.add_named("gpus_utilization", used / gpus if gpus else 0)
    for word in compatible.VPENSO_NODES:
        shown = sum(
            count
            for state, count in totals.shown.items()
            if state.startswith(_SINFO.get(word, word))
        )
        samples.add_named(f"nodes_{word}", shown)


_SINFO = {"resv": "res", "plnd": "planned"}


def _add_partition(samples: Samples, name: str, totals: _Totals) -> None:
    for base in (*sorted(states.BASE_STATES), UNRECOGNIZED):
        samples.add(families.PARTITION_NODES, totals.bases[base.lower()], name, base.lower())
    by_owner: Counter[str] = Counter()
    for (owner, _), count in totals.unavailable.items():
        by_owner[owner] += count
    for owner, count in by_owner.items():
        samples.add(families.PARTITION_UNAVAILABLE, count, name, owner)
    for use in ("allocated", "idle", "other"):
        samples.add(families.PARTITION_CPUS, totals.cpus[use], name, use)
        samples.add(families.PARTITION_MEMORY, totals.memory[use] * MEBIBYTE, name, use)
        for type_ in {type_ for type_, _ in totals.gpus}:
            samples.add(families.PARTITION_GPUS, totals.gpus[type_, use], name, type_, use)
        samples.add_named(f"partition_cpus_{use}", totals.cpus[use], name)
    samples.add_named("partition_cpus_total", totals.cpus.total(), name)
    _add_reference_states(samples, "partition_nodes", totals, name)
    for ending in compatible.RESOURCES:
        samples.add_named(f"partition_nodes_{ending}", totals.resources[ending], name)


def _add_reference_states(samples: Samples, prefix: str, totals: _Totals, *labels: str) -> None:
    samples.add_named(f"{prefix}_total", totals.nodes, *labels)
    for word, state in compatible.NODE_STATES.items():
        samples.add_named(f"{prefix}_{word}_total", totals.words[state], *labels)


def _split(total: int, allocated: int, rest: str) -> dict[str, int]:
    return {"allocated": allocated, rest: max(0, total - allocated)}


@lru_cache(maxsize=4096)
def _gpus(text: str) -> dict[str, int]:
    """GPUs by type. Raises GresError. Don't change the result."""
    return {item.type: item.count for item in gres.total(gres.parse(text)) if item.name == "gpu"}
