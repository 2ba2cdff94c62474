"""A real slurmctld keeps the contract of external jobs that the simulator keeps in the unit tests.

slurmctld and slurmrestd run alone, outside of the Kubernetes cluster: external nodes need no slurmd.
"""

import asyncio
import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecars.slurm import protocol
from sidecars.slurm.errors import SlurmError
from tests.contract.external import EXTERNAL, Placeholder
from tests.contract.simulated import ModelJobs
from tests.contract.target import Target
from tests.support.real import outside

ADDRESS = "127.0.0.1"


@contextlib.contextmanager
def daemons(home: Path, port: int, lines: str = "") -> Iterator[Target]:
    """slurmctld at this port with these lines more in slurm.conf, and slurmrestd at the next one."""
    keys = {"slurm.key": secrets.token_bytes(1024), "jwt.key": secrets.token_bytes(32)}
    conf = outside.conf(ADDRESS, port).replace("CR_Core", "CR_Core_Memory") + lines
    files = {"slurm.conf": conf.encode(), "cgroup.conf": b"CgroupPlugin=disabled\n", **keys}
    environment = ["SLURM_JWT=daemon", "SLURMRESTD_SECURITY=disable_unshare_files,disable_unshare_sysv"]
    rest = ["env", *environment, "slurmrestd", "-s", "slurmctld", f"{ADDRESS}:{port + 1}"]
    with (
        outside.daemon(home / "slurmctld", "slurmctld", outside.SLURM, files, ["/usr/sbin/slurmctld", "-D"]),
        outside.daemon(home / "slurmrestd", "slurmrestd", outside.NOBODY, files, rest),
    ):
        yield Target(f"http://{ADDRESS}:{port + 1}", keys["jwt.key"], ("external-1", "external-2"), NoJobs())


@pytest.fixture(scope="module")
def slurm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """slurmctld and slurmrestd."""
    # Only the backfill scheduler starts heterogeneous jobs, by default each 30 s.
    with daemons(
        tmp_path_factory.mktemp("slurm"), 7827, "SchedulerParameters=bf_interval=1\nGresTypes=gpu,mig\n"
    ) as target:
        asyncio.run(answers(target))
        yield target


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
async def test_slurm_does_as_the_simulator_with_external_jobs(scenario: Placeholder, slurm: Target) -> None:
    async def run(job_id: int, tasks: int, node: int = 0, gres: str = "") -> None:
        """slurmctld does."""

    await scenario(slurm, run)
