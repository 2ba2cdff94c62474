"""Random queues of random clusters on a real slurmctld: what the planner promises starts, and it
promises what Slurm would start if all nodes existed.
"""

from pathlib import Path

from tests.support.real import ports
from tests.support.real.queue_proof import Figures, prove

SEEDS = range(8)
"""Of the queues."""


def test_slurm_starts_the_promised_jobs_of_queues_drawn_from_all_options(tmp_path: Path) -> None:
    outcomes = prove(tmp_path, ports.DRAWN_QUEUES, SEEDS)
    figures = Figures.of(outcomes)
    assert not figures.misses(), "\n".join([str(figures), *figures.misses(), *map(str, outcomes)])
