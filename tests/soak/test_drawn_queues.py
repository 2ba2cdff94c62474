"""300 random queues of random clusters on a real slurmctld: what tests/slurm/test_drawn_queues.py
does with a few.
"""

import os
from pathlib import Path

from tests.support.real import ports
from tests.support.real.queue_proof import Figures, prove

COUNT = int(os.environ.get("QUEUES", "300"))
FIRST = int(os.environ.get("SEED", "1000"))
TOGETHER = 15
"""So many queues in one slurmctld."""


def test_slurm_starts_the_promised_jobs_of_many_queues_drawn_from_all_options(
    tmp_path: Path,
) -> None:
    outcomes = [
        outcome
        for first in range(FIRST, FIRST + COUNT, TOGETHER)
        for outcome in prove(
            tmp_path / str(first),
            ports.DRAWN_QUEUES,
            range(first, min(first + TOGETHER, FIRST + COUNT)),
        )
    ]
    figures = Figures.of(outcomes)
    print(figures)
    assert not figures.misses(), "\n".join([str(figures), *figures.misses(), *map(str, outcomes)])
