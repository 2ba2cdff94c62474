"""How exactly the planner follows a queue: what it promises against what a real slurmctld starts.

Each drawn world exists several times in one slurmctld, with the same queue each time: with all
nodes that its NodeSets may have, which shows what can start; with none, where the nodes are added
that the planner asks for; and with one node fewer of each NodeSet, where fewer jobs must start.
"""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

from sidecars.autoscaling.plan import Autoscaling, Jobs
from sidecars.autoscaling.present import present
from sidecars.autoscaling.queue import Queue
from sidecars.autoscaling.records import Nodes, Plan, Settings
from sidecars.policy.reasons.autoscaling import NotCounted
from sidecars.slurm import protocol
from sidecars.slurm.records import Node, Partition, QueuedJob
from tests.support.real import simulated_nodes
from tests.support.real.drawn_queues import LICENSES, World, draw, line, names, with_prefix
from tests.support.real.simulated_nodes import Slurmctld

PROMISED, NAMED, KEPT, TOO_MANY = 0.95, 0.97, 0.95, 0.03
"""Shares: of what can start, the first two; of what is promised or starts; of the nodes."""
DOCUMENTED = (
    f"{NotCounted.NOT_MODELLED.value}:",
    f"{NotCounted.NAMED_NODES.value}:",
)
"""Reasons for which a job gets no node that Slurm would use."""
ROUNDS = 4
"""So often nodes are added for what Slurm has not started yet."""
_SUBMIT = """\
while read -r world words; do
  [ "$world" = "$former" ] || first=
  former=$world
  found=$(eval "sbatch --parsable --output=/dev/null --job-name=$world $words /tmp/job" 2>&1)
  echo "$? $(echo "$found" | tail -n 1)"
  [ -n "$first" ] || case $found in *[!0-9]*) ;; *) first=$found ;; esac
done
"""


@dataclass
class Outcome:
    """What became of one queue. Tasks of arrays count one each."""

    seed: int
    lines: tuple[str, ...]
    conf: str
    startable: Counter[int] = field(default_factory=Counter)
    """How many of each line start when all nodes exist."""
    promised: Counter[int] = field(default_factory=Counter)
    started: Counter[int] = field(default_factory=Counter)
    refused: dict[int, str] = field(default_factory=dict)
    """Lines that sbatch refuses only while nodes are absent, with its words."""
    reasons: dict[int, str] = field(default_factory=dict)
    """Why the planner does not count a line."""
    slurms: dict[int, str] = field(default_factory=dict)
    """Slurm's reason of lines that wait."""
    sizes: dict[str, int] = field(default_factory=dict)
    places: dict[int, list[str]] = field(default_factory=dict)
    """The nodes of each task that has started."""
    too_many: dict[str, dict[int, list[str]]] = field(default_factory=dict)
    """NodeSets without one of whose nodes as many jobs start, and on which nodes."""

    def named(self) -> Counter[int]:
        """The startable ones that are not promised for a reason that is documented."""
        left = self.startable - self.promised
        return Counter(
            {at: it for at, it in left.items() if self.reasons.get(at, "").startswith(DOCUMENTED)}
        )

    def __str__(self) -> str:
        """Only the lines of which something differs."""
        text = []
        for at, words in enumerate(self.lines):
            numbers = self.startable[at], self.promised[at], self.started[at]
            if len(set(numbers)) > 1 or at in self.refused:
                text.append(
                    f"  startable, promised, started: {numbers}: {words}"
                    f" | planner: {self.reasons.get(at)} | Slurm: {self.slurms.get(at)}"
                    f" {self.refused.get(at, '')}"
                )
        if not text and not self.too_many:
            return ""
        head = f"seed {self.seed}: nodes {self.sizes}, too many of {[*self.too_many]}"
        if self.too_many:
            text += [
                f"  all: {words} | {self.places.get(at)} | "
                + " ".join(f"{kind}: {it.get(at)}" for kind, it in self.too_many.items())
                for at, words in enumerate(self.lines)
            ]
        return "\n".join([head, self.conf, *text])


@dataclass
class _Copy:
    world: World
    prefix: str
    ids: list[int | None]
    """Of each line; None: refused."""
    words: list[str]
    """What sbatch has printed for each line."""

    def started(self, jobs: Sequence[QueuedJob]) -> dict[int, list[str]]:
        """The nodes of each task that has started, by line."""
        found: dict[int, list[str]] = {}
        of = {job_id: at for at, job_id in enumerate(self.ids) if job_id is not None}
        for job in jobs:
            at = of.get(job.array_job_id or job.job_id)
            if at is not None and "RUNNING" in job.states:
                found.setdefault(at, []).append(job.nodes)
        return found


def prove(home: Path, port: int, seeds: Sequence[int]) -> list[Outcome]:
    """The outcomes of the queues with these seeds."""
    drawn = {seed: draw(seed) for seed in seeds}
    worlds = {
        prefix: with_prefix(world, prefix)
        for seed, world in drawn.items()
        for prefix in (
            f"m{seed}x",
            f"z{seed}x",
            *(f"f{seed}{it.name[-1]}x" for it in world.nodesets),
        )
    }
    nodes = chain.from_iterable(map(line, it.nodesets) for it in worlds.values())
    licenses = ",".join(f"{prefix}lic:{LICENSES}" for prefix in worlds)
    conf = "\n".join(
        [
            "MaxNodeCount=16384",
            f"Licenses={licenses}",
            *nodes,
            "PartitionName=none Default=YES State=UP",
            *(it.conf for it in worlds.values()),
        ]
    )
    gres = "".join(it.gres for it in worlds.values())
    with simulated_nodes.running(home, conf + "\n", gres, port) as slurm:
        return _Proof(slurm, worlds, drawn).outcomes()


class _Proof:
    def __init__(
        self, slurm: Slurmctld, worlds: Mapping[str, World], drawn: Mapping[int, World]
    ) -> None:
        self._slurm = slurm
        self._worlds = worlds
        self._drawn = drawn
        self._copies: dict[str, _Copy] = {}

    def outcomes(self) -> list[Outcome]:
        absent = [
            name
            for prefix, world in self._worlds.items()
            if not prefix.startswith("m")
            for nodeset in world.nodesets
            for name in names(nodeset)
        ]
        # A node that is powered up before a job is on it would be used only when its slurmd
        # registers.
        self._slurm.call(protocol.update_nodes(absent, state=["DRAIN"], reason="absent"))
        self._submit(list(self._worlds))
        self._slurm.settle()
        found = {seed: self._begin(seed, world) for seed, world in self._drawn.items()}
        for _ in range(ROUNDS):
            if not self._round(found):
                break
        self._fewer(found)
        return list(found.values())

    def _submit(self, prefixes: Sequence[str]) -> None:
        run = self._slurm.daemons.run
        files = "".join(
            f"echo {self._worlds[it].nodesets[0].name}-0 > /tmp/nodes-{it}\n" for it in prefixes
        )
        script = f"cat > /tmp/job <<end\n#!/bin/sh\nexec sleep 600\nend\n{files}"
        run("slurmctld", "sh", "-euc", script, check=True)
        lines = "".join(f"{it} {words}\n" for it in prefixes for words in self._worlds[it].queue)
        done = run("slurmctld", "sh", "-uc", f"former= first=\n{_SUBMIT}", stdin=lines, check=True)
        answers = iter(done.stdout.splitlines())
        for prefix in prefixes:
            copy = self._copies[prefix] = _Copy(self._worlds[prefix], prefix, [], [])
            for _ in copy.world.queue:
                status, _, words = next(answers).partition(" ")
                copy.ids.append(int(words) if status == "0" else None)
                copy.words.append(words)

    def _begin(self, seed: int, world: World) -> Outcome:
        outcome = Outcome(seed, world.queue, world.conf)
        full = self._copies[f"m{seed}x"]
        outcome.startable = _counts(full.started(self._slurm.jobs()))
        copy = self._copies[f"z{seed}x"]
        for at, (there, here) in enumerate(zip(full.ids, copy.ids, strict=True)):
            if there is not None and here is None:
                outcome.refused[at] = copy.words[at]
        return outcome

    def _round(self, outcomes: Mapping[int, Outcome]) -> bool:
        """Add the nodes that the planner asks for. Whether it asks for some."""
        slurm = self._slurm
        jobs, nodes = slurm.jobs(), {it.name: it for it in slurm.nodes()}
        partitions = slurm.call(protocol.get_partitions())
        licenses = {it.name: it.free for it in slurm.call(protocol.get_licenses())}
        opened: list[str] = []
        plans: dict[int, Plan] = {}
        for seed, outcome in outcomes.items():
            copy = self._copies[f"z{seed}x"]
            plan = plans[seed] = self._plan(copy, outcome, jobs, nodes, partitions, licenses)
            for nodeset in copy.world.nodesets:
                size = plan.wanted[nodeset.name].replicas
                opened += names(nodeset, size)[outcome.sizes.get(nodeset.name, 0) :]
                outcome.sizes[nodeset.name] = size
        if opened:
            slurm.call(protocol.update_nodes(opened, state=["UNDRAIN"]))
            slurm.settle()
        after = slurm.jobs()
        for seed, outcome in outcomes.items():
            copy = self._copies[f"z{seed}x"]
            self._note(copy, outcome, plans[seed])
            outcome.places = copy.started(after)
            outcome.started = _counts(outcome.places)
            waiting = {it.job_id: it.pending.reason for it in after if it.pending is not None}
            outcome.slurms = {at: waiting[it] for at, it in enumerate(copy.ids) if it in waiting}
        return bool(opened)

    def _plan(
        self,
        copy: _Copy,
        outcome: Outcome,
        jobs: Sequence[QueuedJob],
        known: Mapping[str, Node],
        partitions: Sequence[Partition],
        licenses: Mapping[str, int],
    ) -> Plan:
        now = time.time()
        nodesets = [
            replace(it, replicas=outcome.sizes.get(it.name, 0)) for it in copy.world.nodesets
        ]
        here = {name: it.name for it in nodesets for name in names(it, it.replicas)}
        # The nodes are powered down, and so not usable for the planner, but can run jobs.
        nodes = [
            replace(
                present(known[name], of), usable=True, unsettled=False, weight=known[name].weight
            )
            for name, of in here.items()
        ]
        settings = Settings.of(it for it in partitions if it.name.startswith(copy.prefix))
        own = [it for it in jobs if it.name == copy.prefix]
        return Autoscaling(settings).plan(
            nodesets, Jobs(Queue(own, settings), now, licenses), Nodes(nodes, now), {}, now
        )

    def _note(self, copy: _Copy, outcome: Outcome, plan: Plan) -> None:
        of = {job_id: at for at, job_id in enumerate(copy.ids) if job_id is not None}
        for promise in plan.promises:
            for job in promise.jobs:
                if job in of:
                    outcome.promised[of[job]] += promise.count // len(promise.jobs)
        for excluded in plan.excluded:
            for job in excluded.jobs:
                if job in of:
                    outcome.reasons[of[job]] = f"{excluded.reason.value}: {excluded.detail}"

    def _fewer(self, outcomes: Mapping[int, Outcome]) -> None:
        """Look at what starts with one node fewer of each NodeSet."""
        opened: list[str] = []
        tried = []
        for seed, outcome in outcomes.items():
            for nodeset in self._drawn[seed].nodesets:
                kind = nodeset.name[-1]
                copy = self._copies[f"f{seed}{kind}x"]
                if not outcome.sizes[f"z{seed}x{kind}"]:
                    continue
                tried.append((outcome, kind, copy))
                for it in copy.world.nodesets:
                    size = outcome.sizes[f"z{seed}x{it.name[-1]}"] - (it.name[-1] == kind)
                    opened += names(it, size)
        if not opened:
            return
        self._slurm.call(protocol.update_nodes(opened, state=["UNDRAIN"]))
        self._slurm.settle()
        jobs = self._slurm.jobs()
        for outcome, kind, copy in tried:
            places = copy.started(jobs)
            if _counts(places) >= outcome.started:
                outcome.too_many[kind] = places


def _counts(places: Mapping[int, Sequence[str]]) -> Counter[int]:
    return Counter({at: len(found) for at, found in places.items()})


@dataclass(frozen=True)
class Figures:
    """All outcomes together. Tasks of arrays count one each."""

    refused: int
    """Lines that sbatch refuses only while nodes are absent."""
    startable: int
    """That start when all nodes exist."""
    promised_of_them: int
    named_of_them: int
    """That are not promised, for a reason that docs/autoscaling.md names."""
    kept: int
    """That are promised and start."""
    promised_or_started: int
    nodes: int
    too_many: int

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> "Figures":
        """Those of these outcomes."""
        return cls(
            sum(len(it.refused) for it in outcomes),
            sum(it.startable.total() for it in outcomes),
            sum((it.startable & it.promised).total() for it in outcomes),
            sum(it.named().total() for it in outcomes),
            sum((it.promised & it.started).total() for it in outcomes),
            sum((it.promised | it.started).total() for it in outcomes),
            sum(sum(it.sizes.values()) for it in outcomes),
            sum(len(it.too_many) for it in outcomes),
        )

    def misses(self) -> list[str]:
        """What is below the target."""
        found = {
            "some are refused": self.refused > 0,
            "too few are promised": self.promised_of_them < PROMISED * self.startable,
            "some are neither promised nor named": (
                self.promised_of_them + self.named_of_them < NAMED * self.startable
            ),
            "too few promises are kept": self.kept < KEPT * self.promised_or_started,
            "too many nodes": self.too_many > TOO_MANY * self.nodes,
        }
        return [what for what, missed in found.items() if missed]

    def __str__(self) -> str:
        return (
            f"{self.promised_of_them} of {self.startable} that can start are promised, "
            f"{self.named_of_them} are named, "
            f"{self.kept} of {self.promised_or_started} promised and started are both, "
            f"{self.too_many} of {self.nodes} nodes too many"
        )
