"""The simulator as a target."""

import contextlib
from collections.abc import AsyncIterator

from sidecars.simulate import SlurmModel, serve
from tests.contract.target import Target

KEY = b"0123456789abcdef0123456789abcdef"


class ModelJobs:
    """Jobs of a model begin and stop at once."""

    def __init__(self, model: SlurmModel) -> None:
        self.model = model

    async def start(self, node: str) -> int:
        """As `Jobs.start`."""
        return self.model.job_start([node], time_limit=5)

    async def submit_pending(self, *, exclusive: bool = False) -> int:
        """As `Jobs.submit_pending`."""
        return self.model.job_submit(exclusive=exclusive)

    async def suspend(self, job_id: int) -> None:
        """As `Jobs.suspend`."""
        self.model.job_suspend(job_id)


@contextlib.asynccontextmanager
async def simulated(version: str) -> AsyncIterator[Target]:
    """A simulated cluster behind a port."""
    model = SlurmModel()
    model.key = KEY
    for name in ("n1", "n2"):
        model.node_register(name)
    async with serve(model) as url:
        yield Target(url, KEY, ("n1", "n2"), ModelJobs(model), version, "slurm")
