"""A running cluster is broken in one way at a time, and `explain` is asked about the job that
waits: the fault is the first finding, and what it would start with does start the job.
"""

import os
import random
import time
from collections.abc import Iterator

import pytest

from tests.support.real import ports, queue_faults
from tests.support.real.queue_faults import Cluster

SITUATIONS = 60
DRAWN = 20
RIGHT = 0.9
"""So many of the answers name the fault first, at least."""
DAY = 86_400


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One for all situations."""
    with queue_faults.running(tmp_path_factory.mktemp("queue"), ports.EXPLAIN_FAULTS) as found:
        yield found


def drawn() -> list[int]:
    """The seeds of this run: others on each day, or those of the environment variable FAULTS, as
    `0-59`.
    """
    first, _, last = os.environ.get("FAULTS", "").partition("-")
    if first:
        return list(range(int(first), int(last or first) + 1))
    random_ = random.Random(int(time.time()) // DAY)  # noqa: S311 - no secret
    return sorted(random_.sample(range(SITUATIONS), DRAWN))


@pytest.mark.timeout(1800)
def test_the_injected_fault_is_the_first_finding_and_what_would_start_the_job_starts_it(
    cluster: Cluster,
) -> None:
    wrong, refuted = [], []
    seeds = drawn()
    for seed in seeds:
        name, situation = queue_faults.situation(cluster, seed)
        answer = cluster.explain(situation)
        first = answer.findings[0]
        shown = " ".join((first.about, first.cause, first.remedy, *first.commands))
        if first.code not in situation.codes or any(it not in shown for it in situation.words):
            wrong.append((seed, name, answer.state, answer.findings))
        if answer.would_start:
            random_ = random.Random(seed)  # noqa: S311 - no secret
            change = random_.choice(answer.would_start)
            job = queue_faults.apply(cluster, situation, change)
            if job is not None and not cluster.begins(job):
                refuted.append((seed, name, change, cluster.state(job)))
        cluster.mend()
    assert len(wrong) <= (1 - RIGHT) * len(seeds), wrong
    assert refuted == []
