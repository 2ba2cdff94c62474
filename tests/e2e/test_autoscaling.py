"""A NodeSet that follows the queue by spec.autoscaling: from workers to none, to as many as its jobs need, to none."""

import json
import time
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.support.real.harness import Slurm, condition, until

pytestmark = pytest.mark.timeout(600)

NODESET = ("-n", "slurm", "nodesets.slinky.slurm.net", "slurm-worker-slinky")
QUICK = {"max": 3, "idleSeconds": 10, "coolDownSeconds": 10, "stepSeconds": 1}


def patch(slurm: Slurm, autoscaling: Any) -> None:
    text = json.dumps({"spec": {"autoscaling": autoscaling}})
    slurm.kubernetes.kubectl("patch", *NODESET, "--type=merge", "-p", text)


def replicas(slurm: Slurm) -> int:
    return int(slurm.kubernetes.get(*NODESET)["spec"]["replicas"])


@pytest.fixture
def _scaled(slurm: Slurm) -> Iterator[None]:
    slurm.until_idle(2)
    patch(slurm, QUICK)
    yield
    slurm.login("scancel", "--user=root")
    patch(slurm, None)
    slurm.scale(2)
    slurm.until_idle(2)


@pytest.mark.usefixtures("_scaled")
def test_a_nodeset_follows_the_queue_from_nothing_and_back(slurm: Slurm, capsys: pytest.CaptureFixture[str]) -> None:
    until("idle workers to be removed", lambda: not slurm.pods() or None, 180)
    until("no replica to be wanted", lambda: replicas(slurm) == 0 or None, 60)

    began = time.monotonic()
    jobs = [slurm.submit("#!/bin/sh\nsrun sleep 5\n", "-N2", "--exclusive")]
    submitted = time.monotonic()
    until("the first worker pod", lambda: slurm.pods() or None, 60, 0.05)
    first = time.monotonic()
    with capsys.disabled():
        print(f"\nfirst worker pod {first - submitted:.2f} s after sbatch, {first - began:.2f} s with it")
    assert first - submitted < 30

    jobs.append(slurm.submit("#!/bin/sh\nsleep 5\n", "-N1", "--exclusive"))
    jobs.append(slurm.submit("#!/bin/sh\nsleep 1\n", "--array=1-4"))
    sizes: list[int] = []

    def completed() -> bool | None:
        sizes.append(replicas(slurm))
        states = slurm.login("squeue", "-h", "-r", "-t", "all", "-j", ",".join(map(str, jobs)), "-o", "%T").split()
        return states == ["COMPLETED"] * 6 or None

    until("all jobs to complete", completed, 240)
    assert max(sizes) >= 2

    def empty() -> bool | None:
        sizes.append(replicas(slurm))
        return True if not slurm.pods() and not sizes[-1] else None

    until("nothing to be left", empty, 240)
    until("no record to be left", lambda: not slurm.nodes() or None, 60)
    changes = [after > before for before, after in pairwise(sizes) if after != before]
    assert sum(one != other for one, other in pairwise(changes)) <= 2
    found = condition(slurm.kubernetes.get(*NODESET), "Autoscaled")
    assert found["status"] == "True"


@pytest.mark.usefixtures("_scaled")
def test_a_number_that_a_user_sets_stays_for_a_while_and_is_named(slurm: Slurm) -> None:
    patch(slurm, QUICK | {"coolDownSeconds": 3600, "idleSeconds": 3600})
    until(
        "the number to be recorded",
        lambda: slurm.kubernetes.get(*NODESET)["metadata"]["annotations"].get("slinky.slurm.net/autoscaling"),
        60,
    )
    slurm.scale(1)
    found = until(
        "kubectl to be named",
        lambda: (
            it
            if "to 1" in (it := condition(slurm.kubernetes.get(*NODESET), "Autoscaled")).get("message", "")
            and it["reason"] == "OtherOwner"
            else None
        ),
        60,
    )
    assert "'kubectl' has set replicas to 1" in found["message"]
    assert replicas(slurm) == 1
