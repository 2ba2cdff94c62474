"""A real slurmctld keeps the contract of external jobs that the simulator keeps in the unit tests.

slurmctld and slurmrestd run alone, outside of the Kubernetes cluster: external nodes need no slurmd.
"""

import asyncio
import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecars.slurm import protocol
from sidecars.slurm.errors import SlurmError
from tests.contract.external import EXTERNAL, Placeholder
from tests.contract.simulated import ModelJobs
from tests.contract.target import Target
from tests.support.real import ports
from tests.support.real.external_slurm import ExternalSlurm


@contextlib.contextmanager
def daemons(home: Path, port: int, lines: str = "") -> Iterator[Target]:
    """slurmctld at this port with these lines more in slurm.conf, and slurmrestd at the next one."""
    with running(home, port, lines) as slurm:
        yield target(slurm)


@contextlib.contextmanager
def running(home: Path, port: int, lines: str) -> Iterator[ExternalSlurm]:
    """The daemons."""
    slurm = ExternalSlurm(home, port, lines)
    with contextlib.closing(slurm):
        for name in ("slurmctld", "slurmrestd"):
            slurm.start(name)
        yield slurm


def target(slurm: ExternalSlurm) -> Target:
    """For scenarios."""
    return Target(slurm.url, slurm.key, ("external-1", "external-2"), NoJobs())


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ExternalSlurm]:
    """slurmctld and slurmrestd."""
    # Only the backfill scheduler starts heterogeneous jobs, by default each 30 s. The end of external jobs wakes none.
    lines = "SchedulerParameters=bf_interval=1,sched_interval=2\nGresTypes=gpu,mig\n"
    with running(tmp_path_factory.mktemp("slurm"), ports.EXTERNAL_JOBS, lines) as daemons:
        asyncio.run(answers(target(daemons)))
        yield daemons


class NoJobs(ModelJobs):
    """The scenarios submit their jobs themselves."""

    def __init__(self) -> None:
        """Without a model."""


async def answers(target: Target) -> None:
    """Wait until slurmctld does."""

    async def look() -> bool:
        with contextlib.suppress(SlurmError):
            await target.call(protocol.get_job_states())
            return True
        return False

    await target.until("slurmctld to answer", look)


@pytest.mark.parametrize("scenario", EXTERNAL, ids=lambda scenario: scenario.__name__)
async def test_slurm_does_as_the_simulator_with_external_jobs(scenario: Placeholder, slurm: ExternalSlurm) -> None:
    await scenario(target(slurm), Scontrol(slurm))


class Scontrol:
    """slurmctld runs started jobs itself."""

    def __init__(self, slurm: ExternalSlurm) -> None:
        self._slurm = slurm

    async def __call__(self, job_id: int, tasks: int, node: int = 0, gres: str = "") -> None:
        """Nothing."""

    async def scontrol(self, *words: str) -> bool:
        """As `Run.scontrol`."""
        return not (await asyncio.to_thread(self._slurm.scontrol, *words)).returncode

    async def alias(self, name: str, user: str) -> None:
        """As `Run.alias`."""
        line = f'getent passwd {user} | sed "s/^{user}:/{name}:/" >>/etc/passwd'
        for daemon in ("slurmctld", "slurmrestd"):
            await asyncio.to_thread(self._slurm.inside, daemon, "sh", "-c", line)
