"""A real slurmctld keeps the contract of external jobs that the simulator keeps in the unit tests.

slurmctld and slurmrestd run alone, outside of the Kubernetes cluster: external nodes need no
slurmd.
"""

import asyncio
from collections.abc import Iterator

import pytest

from tests.contract.external import EXTERNAL, Placeholder
from tests.support.real import ports
from tests.support.real.daemons import Daemons
from tests.support.real.external_slurm import running, target


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemons]:
    """slurmctld and slurmrestd."""
    # Only the backfill scheduler starts heterogeneous jobs, by default each 30 s. The end of
    # external jobs wakes none.
    lines = "SchedulerParameters=bf_interval=1,sched_interval=2\nGresTypes=gpu,mig\n"
    with running(tmp_path_factory.mktemp("slurm"), ports.EXTERNAL_JOBS, lines) as daemons:
        yield daemons


@pytest.mark.parametrize("scenario", EXTERNAL, ids=lambda scenario: scenario.__name__)
async def test_slurm_does_as_the_simulator_with_external_jobs(
    scenario: Placeholder, slurm: Daemons
) -> None:
    await scenario(target(slurm), Scontrol(slurm))


class Scontrol:
    """slurmctld runs started jobs itself."""

    def __init__(self, slurm: Daemons) -> None:
        self._slurm = slurm

    async def __call__(self, job_id: int, tasks: int, node: int = 0, gres: str = "") -> None:
        """Nothing."""

    async def misfit(self, job_id: int) -> None:
        """Nothing."""

    async def scontrol(self, *words: str) -> bool:
        """As `Run.scontrol`."""
        return not (await asyncio.to_thread(self._slurm.scontrol, *words)).returncode

    async def alias(self, name: str, user: str) -> None:
        """As `Run.alias`."""
        line = f'getent passwd {user} | sed "s/^{user}:/{name}:/" >>/etc/passwd'
        for daemon in ("slurmctld", "slurmrestd"):
            await asyncio.to_thread(self._slurm.run, daemon, "sh", "-c", line)
