"""A NodeSet that follows its queue while what it needs for that is killed, whatever scales it."""

import json
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from tests.support.real.configuration import until_saved
from tests.support.real.harness import (
    CHARTS,
    NODESET,
    Kubernetes,
    Slurm,
    condition,
    until,
    until_equal,
    watched,
)
from tests.support.real.kills import SLURMRESTD, kill

TARGET = ("-n", "slurm", "nodesets.slinky.slurm.net", NODESET)
EXPORTER = "slurm-exporter"
MOST = 3
"""The highest number of workers."""
IDLE_SECONDS = 5
"""How long a worker is idle before it is removed."""


@dataclass(frozen=True)
class Source:
    """What has the data, and can be scaled to zero, so that no data is left."""

    kind: str
    name: str
    pods: tuple[str, str]
    """As in `kills`."""


REST = Source("restapis.slinky.slurm.net", "slurm", SLURMRESTD)


@contextmanager
def autoscaled(
    kubernetes: Kubernetes, values: dict[str, Any], autoscaler: dict[str, Any]
) -> Iterator[None]:
    """The exporter with these values, and a HorizontalPodAutoscaler that follows at once."""
    autoscaler["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] = 0
    exporter = values["exporter"]
    exporter["cacheFrequency"] = "1s"
    exporter["autoscaling"]["nodeSets"]["slinky"]["idleSeconds"] = IDLE_SECONDS
    install = ("install", EXPORTER, str(CHARTS / EXPORTER), "-n", "slurm", "--wait")
    try:
        kubernetes.helm(*install, "--timeout=3m", "-f", "-", stdin=json.dumps(values))
        kubernetes.kubectl("apply", "-f", "-", stdin=json.dumps(autoscaler))
        yield
    finally:
        kubernetes.kubectl("-n", "slurm", "delete", "hpa", NODESET, "--ignore-not-found")
        kubernetes.helm("uninstall", EXPORTER, "-n", "slurm", "--ignore-not-found")


@dataclass(frozen=True)
class Way:
    """How a NodeSet is scaled, ready to begin."""

    missing: Source
    missed: Callable[[], bool]
    """Whether a condition reports that data is missing."""
    forgetful: tuple[str, str] | None = None
    """What is started again while no data is left, so that it remembers none: as in `kills`."""


class Sizes:
    """Each number of replicas that the NodeSet has had, in the order of the API server."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def all(self) -> list[int]:
        return [int(line) for line in self._path.read_text(encoding="utf-8").split("\n")[:-1]]

    def since(self, position: int) -> set[int]:
        """Those of the time since `all` had that length, the present one included."""
        return set(self.all()[position - 1 :])


@contextmanager
def recorded(kubernetes: Kubernetes) -> Iterator[Sizes]:
    """A watch, so that no size is missed between two looks."""
    with watched(kubernetes, *TARGET, "-o", 'jsonpath={.spec.replicas}{"\\n"}') as path:
        yield Sizes(path)


def turns(sizes: Iterable[int]) -> int:
    """How often a size that grew shrinks, or one that shrank grows."""
    changes = [after > one for one, after in pairwise(sizes) if after != one]
    return sum(one != other for one, other in pairwise(changes))


def replicas(slurm: Slurm) -> int:
    """The number of workers that the NodeSet is to have."""
    return int(slurm.kubernetes.get(*TARGET)["spec"]["replicas"])


def until_none(slurm: Slurm) -> None:
    """Until no worker is left, and no record of one."""
    until("no worker to be left", lambda: not (replicas(slurm) or slurm.pods() or slurm.nodes()))


def has_no_number(kubernetes: Kubernetes) -> bool:
    """Whether the NodeSet's HorizontalPodAutoscaler got none at its last look."""
    autoscaler = kubernetes.get("-n", "slurm", "hpa", NODESET)
    return condition(autoscaler, "ScalingActive").get("reason") == "FailedGetExternalMetric"


def kill_each(slurm: Slurm, victims: Iterable[tuple[str, str]], *jobs: int) -> None:
    """Kill these in turn while the jobs run: they run on each time."""
    # A slurmctld that is killed forgets what it has not saved.
    until_saved(slurm, jobs[-1])
    for namespace, name in victims:
        kill(slurm.kubernetes, namespace, name)
        until_equal("slurmctld to answer", lambda: slurm.states(*jobs), ["RUNNING"] * len(jobs))


@contextmanager
def without(kubernetes: Kubernetes, missing: Source, missed: Callable[[], bool]) -> Iterator[None]:
    """While the block runs the source has no pods, and a condition reports it."""
    namespace, label = missing.pods
    scale = ("-n", namespace, "patch", missing.kind, missing.name, "--type=merge", "-p")
    pods = ("-n", namespace, "pods", "-l", f"app.kubernetes.io/name={label}")
    until("all data to be known", lambda: not missed())
    kubernetes.kubectl(*scale, '{"spec":{"replicas":0}}')
    try:
        # One that is ending still answers.
        until(f"{label} to be gone", lambda: not kubernetes.items(*pods))
        until("the data to be missed", missed)
        yield
        assert missed(), "the data was known again before the end"
    finally:
        kubernetes.kubectl(*scale, '{"spec":{"replicas":1}}')


def keep_size_without_data(
    slurm: Slurm, way: Way, sizes: Sizes, size: int, finish: Callable[[], None]
) -> None:
    """Without data the size stays, though after `finish` a worker is idle for longer than one stays
    otherwise.
    """
    kubernetes, before = slurm.kubernetes, len(sizes.all())
    with without(kubernetes, way.missing, way.missed):
        if way.forgetful is not None:
            namespace, name = way.forgetful
            chosen = ("-l", f"app.kubernetes.io/name={name}")
            kubernetes.kubectl(
                "-n", namespace, "delete", "pod", *chosen, "--force", "--grace-period=0"
            )
        finish()
        idle = time.monotonic()
        until(
            "a worker to be idle for longer than it would be left",
            lambda: time.monotonic() - idle > 2 * IDLE_SECONDS,
        )
        assert sizes.since(before) == {size}, sizes.all()


def follow_to_two_and_back(slurm: Slurm, way: Way) -> None:
    """Two workers for a job, and none after it; no size changes without data. Begins and ends
    without workers.
    """
    with recorded(slurm.kubernetes) as sizes:
        job = slurm.submit_until_ended("-N2", "--exclusive", "--no-requeue")
        slurm.until_running(job)
        until_equal("the watch to have shown the size for it", lambda: sizes.all()[-1], 2)
        keep_size_without_data(slurm, way, sizes, 2, lambda: slurm.end(job))
        until_none(slurm)
        found = sizes.all()
    # The recorded sizes begin and end with zero: up, and down.
    assert turns(found) <= 2, found


def follow_from_zero_and_back(slurm: Slurm, way: Way, victims: Iterable[tuple[str, str]]) -> float:
    """A queue of mixed jobs; no job is lost, and no size changes without data, whatever is killed.

    `victims`: as for `kill_each`. Begins and ends without workers. The seconds until the first
    worker pod exists.
    """
    with recorded(slurm.kubernetes) as sizes:
        submitted = time.monotonic()
        wide = slurm.submit_until_ended("-N2", "--exclusive", "--no-requeue")
        until("a worker", slurm.pods, pause=0.05)
        first = time.monotonic() - submitted
        narrow = slurm.submit_until_ended("-N1", "--exclusive", "--no-requeue")
        until_equal("both jobs to run", lambda: slurm.states(wide, narrow), ["RUNNING"] * 2)
        array = slurm.submit("#!/bin/sh\nsleep 1\n", "--array=1-4")
        until_equal("the watch to have shown the size for both", lambda: sizes.all()[-1], MOST)
        full = len(sizes.all())

        kill_each(slurm, victims, wide, narrow)
        assert sizes.since(full) == {MOST}, sizes.all()

        def finish() -> None:
            slurm.end(narrow)
            until_equal("the array to complete", lambda: slurm.states(array), ["COMPLETED"] * 4)

        keep_size_without_data(slurm, way, sizes, MOST, finish)
        until_equal("the idle worker to be removed", lambda: sizes.all()[-1], MOST - 1)
        assert slurm.states(wide) == ["RUNNING"], "the job ended with a worker"
        slurm.end(wide)
        until_none(slurm)
        found = sizes.all()
    # The recorded sizes begin and end with zero: up, and down.
    assert turns(found) <= 2, found
    return first
