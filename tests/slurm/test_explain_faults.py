"""A running cluster is broken in one way at a time. `explain` is asked about the job that waits:
the fault is the first finding, and what it would start with does start the job. `doctor` is asked
about the cluster: what it reports is true, needs a person where it reports that, and ends by its
commands.
"""

import os
import random
import time
from collections.abc import Iterator

import pytest

from tests.support.real import doctor_proof, ports, queue_faults
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
def test_explain_names_the_fault_first_and_nothing_that_explain_or_doctor_reports_is_refuted(
    cluster: Cluster,
) -> None:
    healthy = cluster.doctor({})
    assert (healthy.state, healthy.findings, healthy.missing) == ("all is well", (), ())
    wrong, refuted = [], []
    of_doctor: list[tuple[int, str, list[str]]] = []
    seeds = drawn()
    for seed in seeds:
        name, situation = queue_faults.situation(cluster, seed)
        answer, of_all = cluster.explain(situation), cluster.doctor(situation.kube)
        untrue = doctor_proof.refuted(cluster, situation, of_all)
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
        untrue += doctor_proof.left(cluster, situation, of_all)
        if untrue:
            of_doctor.append((seed, name, untrue))
        cluster.mend()
    assert len(wrong) <= (1 - RIGHT) * len(seeds), wrong
    assert refuted == []
    assert of_doctor == []
