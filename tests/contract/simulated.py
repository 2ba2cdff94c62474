"""The simulator as a target."""

import contextlib
from collections.abc import AsyncIterator, Sequence

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

    async def submit_pending(
        self, *, exclusive: bool = False, named: str = "", excluded: str = ""
    ) -> int:
        """As `Jobs.submit_pending`."""
        return self.model.job_submit(
            exclusive=exclusive,
            required=[named] if named else (),
            excluded=[excluded] if excluded else (),
        )

    async def suspend(self, job_id: int) -> None:
        """As `Jobs.suspend`."""
        self.model.job_suspend(job_id)


class ModelRun:
    """`tests.contract.external.Run` of a model."""

    def __init__(self, model: SlurmModel, nodes: Sequence[str]) -> None:
        self._model = model
        self._nodes = nodes

    async def __call__(self, job_id: int, tasks: int, node: int = 0, gres: str = "") -> None:
        """As `Run`."""
        name = self._nodes[node]
        self._model.job_run(job_id, {name: tasks}, {name: gres} if gres else None)

    async def misfit(self, job_id: int) -> None:
        """As `Run.misfit`."""
        self._model.job_block(job_id, True, "BadConstraints")

    async def scontrol(self, *words: str) -> bool:
        """As `Run.scontrol`."""
        command, job, *more = words
        job_id = int(job.removeprefix("jobid="))
        match command, *more:
            case ["suspend"]:
                self._model.job_suspend(job_id)
            case ["resume"]:
                self._model.job_resume(job_id)
            case ["hold" | "uhold" | "release"]:
                reason = "JobHeldAdmin" if command == "hold" else "JobHeldUser"
                self._model.job_block(job_id, command != "release", reason)
            case ["requeue" | "requeuehold"]:
                return self._model.job_requeue(job_id)
            case ["update", change]:
                name, number = change.split("=")
                return name == "numnodes" and self._model.job_shrink(job_id, int(number))
            case _:
                raise ValueError(words)
        return True

    async def alias(self, name: str, user: str) -> None:
        """As `Run.alias`."""
        self._model.names = {**self._model.names, name: user}


@contextlib.asynccontextmanager
async def simulated(version: str) -> AsyncIterator[Target]:
    """A simulated cluster behind a port."""
    model = SlurmModel()
    model.key = KEY
    for name in ("n1", "n2"):
        model.node_register(name)
    async with serve(model) as url:
        yield Target(url, KEY, ("n1", "n2"), ModelJobs(model), version, "slurm")
