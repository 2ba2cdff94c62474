"""A NodeSet with spec.autoscaling follows the queue from zero and back, while what that needs is
killed.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.support.real.following import (
    IDLE_SECONDS,
    MOST,
    REST,
    TARGET,
    Way,
    follow_from_zero_and_back,
    replicas,
    until_none,
)
from tests.support.real.harness import (
    Slurm,
    condition,
    until,
)
from tests.support.real.kills import OPERATOR, SLURMCTLD, SLURMRESTD

QUICK = {"max": MOST, "idleSeconds": IDLE_SECONDS, "coolDownSeconds": 5, "stepSeconds": 1}


def patch(slurm: Slurm, autoscaling: Any) -> None:
    text = json.dumps({"spec": {"autoscaling": autoscaling}})
    slurm.kubernetes.kubectl("patch", *TARGET, "--type=merge", "-p", text)


@contextmanager
def by_operator(slurm: Slurm) -> Iterator[Way]:
    """spec.autoscaling, without workers."""

    def missed() -> bool:
        return condition(slurm.kubernetes.get(*TARGET), "Autoscaled").get("reason") == "NoData"

    patch(slurm, QUICK)
    try:
        until_none(slurm)
        yield Way(REST, missed)
        slurm.login("scancel", "--user=root")
    finally:
        patch(slurm, None)


@pytest.fixture(scope="module")
def workers(slurm: Slurm) -> Iterator[Slurm]:
    """Two workers at the end, as at the beginning."""
    slurm.until_idle(2)
    yield slurm
    slurm.login("scancel", "--user=root")
    # A worker that is left has the ordinal of the job that ended last; other tests know slinky-0
    # and slinky-1.
    slurm.scale(0)
    until("no worker to be left", lambda: not slurm.pods() and not slurm.nodes())
    slurm.scale(2)
    slurm.until_idle(2)
    # The record of the numbers that autoscaling set, by which others differ.
    slurm.kubernetes.kubectl("annotate", *TARGET, "slinky.slurm.net/autoscaling-")


def test_a_nodeset_follows_the_queue_and_keeps_its_size_without_data_whatever_is_killed(
    workers: Slurm, capsys: pytest.CaptureFixture[str]
) -> None:
    with by_operator(workers) as way:
        first = follow_from_zero_and_back(workers, way, (SLURMCTLD, SLURMRESTD, OPERATOR))
    with capsys.disabled():
        print(f"\nanother worker pod {first:.2f} s after sbatch")


def test_a_number_that_a_user_sets_stays_for_a_while_and_is_named(workers: Slurm) -> None:
    with by_operator(workers):
        patch(workers, QUICK | {"coolDownSeconds": 3600, "idleSeconds": 3600})
        until(
            "the number to be recorded",
            lambda: workers.kubernetes.get(*TARGET)["metadata"]["annotations"].get(
                "slinky.slurm.net/autoscaling"
            ),
        )
        workers.scale(1)

        def named() -> dict[str, Any]:
            found = condition(workers.kubernetes.get(*TARGET), "Autoscaled")
            return (
                found if found.get("reason") == "OtherOwner" and "to 1" in found["message"] else {}
            )

        found = until("kubectl to be named", named)
        assert "'kubectl' has set replicas to 1" in found["message"]
        assert replicas(workers) == 1
