"""Which jobs a change of the partitions strands: what they wait for never comes, or slurmctld ends
them.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from postrender.preview.state import SlurmState
from sidecars.slurm import conf
from sidecars.slurm.job_states import has_ended
from sidecars.slurm.records import Job
from sidecars.workloads.resources import NodeSet

_CLOSED = frozenset({"DOWN", "INACTIVE"})
_EVERY = "ALL"
"""The nodes of a partition: all of the cluster."""


@dataclass(frozen=True, slots=True)
class Stranded:
    """A partition that starts no job after the change, and the jobs that this concerns."""

    controller: str
    """Namespace and name."""
    partition: str
    outcome: str
    """closed: its line stays, without new jobs; removed: slurm.conf lacks it; empty: none of its
    NodeSets has a worker.
    """
    waiting: tuple[int, ...] = ()
    """Pending jobs that may use no other partition."""
    lost: tuple[int, ...] = ()
    """Jobs that slurmctld ends when it reads the configuration."""
    unknown: str = ""
    """Why the jobs are unknown; "" if they are known."""


@dataclass(frozen=True, slots=True)
class Partitions:
    """The partitions of one Slurm cluster, before or after a change."""

    text: str
    """slurm.conf."""
    nodesets: Sequence[NodeSet]
    scaled_by_others: Collection[str] = ()
    """Names of NodeSets whose number of workers isn't in the stream."""

    def declared(self) -> dict[str, tuple[bool, str]]:
        """Return whether each partition starts jobs, and its nodes as slurm.conf has them."""
        found: dict[str, tuple[bool, str]] = {}
        usual: tuple[str, str] = ("", "")
        for line in conf.parse_readable(self.text).all("PartitionName"):
            state = (line.get("State") or usual[0]).upper()
            nodes = line.get("Nodes") or usual[1]
            if line.pairs[0].value.upper() == "DEFAULT":
                usual = state, nodes
                continue
            for name in line.pairs[0].value.split(","):
                found[name] = state not in _CLOSED, nodes
        return found

    def closable(self) -> frozenset[str]:
        """Return the partitions whose line the operator keeps, closed, while jobs name them."""
        found = (
            {*it.status.partitions, *([it.slurm_name] if it.spec.partition.enabled else ())}
            for it in self.nodesets
        )
        return frozenset[str]().union(*found)

    def without_workers(self, nodes: str, foreign: Collection[str]) -> bool:
        """Return whether none of the NodeSets that a partition names has a worker, nor gets one for
        a job. `foreign`: nodes of the cluster that are no workers.
        """
        by_name = {it.slurm_name: it for it in self.nodesets}
        words = nodes.split(",")
        if nodes.upper() == _EVERY:
            return not foreign and not any(map(self._has_workers, self.nodesets))
        return all(it in by_name and not self._has_workers(by_name[it]) for it in words)

    def _has_workers(self, nodeset: NodeSet) -> bool:
        spec = nodeset.spec
        return (
            spec.scaling_mode != "StatefulSet"
            or spec.replicas > 0
            or spec.autoscaling is not None
            or spec.power_saving.enabled
            or nodeset.name in self.scaled_by_others
        )


def stranded(
    controller: str,
    before: Partitions,
    after: Partitions,
    slurm: SlurmState,
    workers: Collection[str],
) -> Iterable[Stranded]:
    """Yield the partitions that start no job after the change and have jobs, by name, those that
    slurm.conf loses last. Each job is in one of them. `workers`: the Slurm nodes of worker pods.
    """
    foreign = {it.name for it in slurm.nodes} - set(workers)
    had, has = before.declared(), after.declared()
    outcomes = _outcomes(before, after, had, has, foreign)
    usable = {name for name, (starts, _) in has.items() if starts} - outcomes.keys()
    shown: set[int] = set()
    for name, outcome in sorted(outcomes.items(), key=lambda it: (it[1] == "removed", it[0])):
        if slurm.problem:
            yield Stranded(controller, name, outcome, unknown=slurm.problem)
            continue
        jobs = [it for it in slurm.jobs if name in _partitions(it) and not has_ended(it.states)]
        waiting = [it for it in jobs if "PENDING" in it.states and not usable & _partitions(it)]
        # A pending job outlives one of its partitions, a running one has only one.
        lost = [
            it for it in jobs if {outcomes.get(name) for name in _partitions(it)} == {"removed"}
        ]
        ended = {it.job_id for it in lost} - shown
        left = {it.job_id for it in waiting} - ended - shown
        shown |= ended | left
        if left or ended:
            yield Stranded(controller, name, outcome, tuple(sorted(left)), tuple(sorted(ended)))


def _outcomes(
    before: Partitions,
    after: Partitions,
    had: Mapping[str, tuple[bool, str]],
    has: Mapping[str, tuple[bool, str]],
    foreign: Collection[str],
) -> dict[str, str]:
    kept, found = before.closable(), {}
    for name, (started, nodes) in had.items():
        if name not in has:
            found[name] = "closed" if name in kept else "removed"
        elif started and not has[name][0]:
            found[name] = "closed"
        elif (
            has[name][0]
            and after.without_workers(has[name][1], foreign)
            and not before.without_workers(nodes, foreign)
        ):
            found[name] = "empty"
    return found


def _partitions(job: Job) -> set[str]:
    return set(job.partition.split(","))
