"""Jobs by Slurm's own commands, wherever they can be run."""

import asyncio
from collections.abc import Callable

Run = Callable[..., str]
"""Runs a command with the standard input `stdin` and gives its standard output."""

SCRIPT = "#!/bin/sh\nexec sleep 300\n"


class CommandJobs:
    """Jobs of a real Slurm, as root."""

    def __init__(self, run: Run) -> None:
        self._run = run

    async def start(self, node: str) -> int:
        """As `Jobs.start`."""
        return await self._submit("--nodelist", node, "--ntasks=1", "--time=5")

    async def submit_pending(
        self, *, exclusive: bool = False, named: str = "", excluded: str = ""
    ) -> int:
        """As `Jobs.submit_pending`."""
        options = {
            "--exclusive": exclusive,
            f"--nodelist={named}": named,
            f"--exclude={excluded}": excluded,
        }
        return await self._submit(
            "--hold", *(option for option, wanted in options.items() if wanted)
        )

    async def suspend(self, job_id: int) -> None:
        """As `Jobs.suspend`."""
        await asyncio.to_thread(self._run, "scontrol", "suspend", str(job_id))

    async def _submit(self, *options: str) -> int:
        command = ("sbatch", "--parsable", "--output=/dev/null", "--chdir=/", *options)
        return int((await asyncio.to_thread(self._run, *command, stdin=SCRIPT)).strip())
