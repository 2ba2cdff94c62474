"""slurmctld and slurmrestd alone, outside of the Kubernetes cluster: external nodes need no
slurmd.
"""

import asyncio
import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

from sidecars.slurm import protocol
from sidecars.slurm.errors import SlurmError
from tests.contract.simulated import ModelJobs
from tests.contract.target import Target
from tests.support.real import daemons
from tests.support.real.daemons import ALL, MEMORY, Daemons

SILENT = "MessageTimeout=20\n"
"""So long slurmctld waits for the answer of an external node, which never comes."""


@contextlib.contextmanager
def running(home: Path, port: int, lines: str = "") -> Iterator[Daemons]:
    """Both daemons with these lines more in slurm.conf, as soon as slurmctld answers, until the end
    of the block.
    """
    with daemons.started(home, port, f"{ALL}{MEMORY}{SILENT}{lines}") as found:
        asyncio.run(answers(target(found)))
        yield found


def target(slurm: Daemons) -> Target:
    """For scenarios, which submit their jobs themselves."""
    return Target(slurm.url, slurm.key, ("external-1", "external-2"), _NoJobs())


class _NoJobs(ModelJobs):
    def __init__(self) -> None:
        """Without a model."""


async def answers(slurm: Target) -> None:
    """Wait until slurmctld does."""

    async def look() -> bool:
        with contextlib.suppress(SlurmError):
            await slurm.call(protocol.get_job_states())
            return True
        return False

    await slurm.until("slurmctld to answer", look)


def lose_saved(slurm: Daemons) -> None:
    """Delete what slurmctld has saved. It must not run."""
    shutil.rmtree(slurm.home / "slurmctld" / "upper" / "state")
