"""Benchmark `checks`: by how much a running check delays a user's job that needs all of its nodes.

Real Slurm as plain processes with two slurmds. The same job beside no check, in turns with it;
needs root.
"""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from sidecars.checks.run import POLL_SECONDS, Run
from sidecars.checks.slurm import Slurm
from sidecars.policy.checks.declared import Check
from tests.bench.figures import Figure, figure
from tests.support.real import plain, ports
from tests.support.real.daemons import Daemons

ROUNDS = 12
NODES = ("c1", "c2")
USER = "daemon"
CHECK = Check("slow", "#!/bin/sh\nsleep 300\n", timeout=300, window=300, drain=False)

Job = Callable[[], Awaitable[float]]


def bench() -> list[Figure]:
    """The figures."""
    lines = "PartitionName=all Nodes=ALL Default=YES\n"
    with (
        TemporaryDirectory() as folder,
        plain.running(Path(folder), ports.CHECK_JOBS, NODES, lines) as slurm,
    ):
        srun = _measure(slurm, lambda: plain.seconds_of_srun(slurm, NODES))
        batch = _measure(slurm, lambda: plain.seconds_to_start(slurm, NODES))
    usual, name = statistics.median(srun[0]), "srun of a user on all nodes of a check"
    more = max(srun[1]) - usual
    return [
        figure(
            f"{name}, median", statistics.median(srun[1]), "s", against=("beside no check", usual)
        ),
        figure(f"the same, slowest of {ROUNDS}, more than beside no check", more, "s", most=1),
        figure(
            "batch job: start, median",
            statistics.median(batch[1]),
            "s",
            against=("beside no check", statistics.median(batch[0])),
        ),
    ]


def _measure(slurm: Daemons, job: Job) -> tuple[list[float], list[float]]:
    """Seconds of a user's job beside no check, and beside one."""
    # The first one takes longer.
    asyncio.run(_round(slurm, job, 0))
    times = [asyncio.run(_round(slurm, job, number)) for number in range(ROUNDS)]
    return [it[0] for it in times], [it[1] for it in times]


async def _round(slurm: Daemons, job: Job, number: int) -> tuple[float, float]:
    await plain.until_idle(slurm)
    alone = await job()
    await plain.until_idle(slurm)
    async with slurm.client() as admin, slurm.client(USER) as submitter:
        run = Run(CHECK, Slurm(CHECK, admin, submitter, USER, now=time.time), clock=time.monotonic)
        task = asyncio.create_task(run.run())
        await plain.until_jobs(slurm, f"check-{CHECK.name}", "RUNNING", len(NODES))
        # The job comes at any time between two looks of the check.
        await asyncio.sleep(POLL_SECONDS * number / ROUNDS)
        beside = await job()
        run.stop()
        await task
    return alone, beside
