"""What random runs of the bridge check, with its model and with a real Slurm alike. Pure.

Each answer is a list of texts, one for each thing that is wrong.
"""

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Claim:
    """What one owner uses of a node until it is gone."""

    owner: str
    node: str
    amounts: Mapping[str, int] = field(default_factory=dict)
    """Such as CPUs, MiB, GPUs."""
    things: frozenset[str] = frozenset()
    """What only one owner can have, such as a core."""


def overbooked(capacity: Mapping[str, Mapping[str, int]], claims: Iterable[Claim]) -> list[str]:
    """The nodes with more in use than they have, and what has two owners. A node without a capacity
    isn't summed up.
    """
    sums: defaultdict[str, Counter[str]] = defaultdict(Counter)
    names: defaultdict[str, set[str]] = defaultdict(set)
    having: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for claim in claims:
        sums[claim.node].update(claim.amounts)
        names[claim.node].add(claim.owner)
        for thing in claim.things:
            having[claim.node, thing].add(claim.owner)
    wrong = [
        f"{node}: {used[what]} of {most} {what} are in use by {', '.join(sorted(names[node]))}"
        for node, used in sums.items()
        for what, most in capacity.get(node, {}).items()
        if used[what] > most
    ]
    doubled: defaultdict[tuple[str, tuple[str, ...]], list[str]] = defaultdict(list)
    for (node, thing), owners in having.items():
        if len(owners) > 1:
            doubled[node, tuple(sorted(owners))].append(thing)
    return wrong + [
        f"{node}: {', '.join(sorted(things))} have several owners: {', '.join(owners)}"
        for (node, owners), things in doubled.items()
    ]


def rivals(started: Iterable[tuple[Hashable, int]]) -> list[str]:
    """The groups with two jobs that may run. `started`: the group and the id of each of these
    jobs.
    """
    jobs: defaultdict[Hashable, set[int]] = defaultdict(set)
    for group, job_id in started:
        jobs[group].add(job_id)
    return [
        f"jobs {', '.join(map(str, sorted(ids)))} of {group}"
        for group, ids in jobs.items()
        if len(ids) > 1
    ]


@dataclass(frozen=True)
class Component:
    """A job, or a component of a heterogeneous one."""

    job_id: int
    whole: int
    """The first component's id."""
    live: bool
    """Whether it has not ended."""


def leaked(jobs: Iterable[Component], pods: Mapping[str, tuple[int | None, bool]]) -> list[str]:
    """What is left when all is settled: jobs that have no pod, and pods that run without their job.

    `pods`: of each pod that has not finished, the job of its label, and whether it is bound.
    """
    jobs = list(jobs)
    known = {it.job_id: it for it in jobs}
    parts: defaultdict[int, list[Component]] = defaultdict(list)
    for it in jobs:
        parts[it.whole].append(it)
    present = {job for job, _ in pods.values()}
    wrong = [
        f"job {it.job_id} has no pod"
        for it in jobs
        if it.live and present.isdisjoint(part.job_id for part in parts[it.whole])
    ]
    for name, (job, bound) in pods.items():
        its = known.get(job) if job is not None else None
        if bound and (its is None or not all(it.live for it in parts[its.whole])):
            wrong.append(f"{name} runs without its job {job}")
    return wrong
