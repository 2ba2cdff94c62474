"""slurmctld, slurmrestd and slurmds as plain processes of this host: the cheapest real Slurm that
runs jobs.
"""

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from sidecars.slurm import protocol
from sidecars.slurm.checks import CheckRequest
from sidecars.slurm.records import Node
from tests.support.real import daemons
from tests.support.real.daemons import MEMORY, Daemons
from tests.support.real.harness import WILL_COME

GAMES = 5
"""The user `games` of the images."""
NODE = "CPUs=2 RealMemory=200"
JOB = "of-a-user"


@contextmanager
def running(
    home: Path,
    port: int,
    nodes: Sequence[str],
    lines: str,
    *,
    node_options: str = "",
    files: Mapping[str, bytes] | None = None,
    prepare: str = "true",
) -> Iterator[Daemons]:
    """The daemons from `port` on, with these nodes idle, until the end of the block.

    `lines` are those of slurm.conf with the partitions and more. slurmd gets these `files` in
    /etc/slurm, and runs the shell command `prepare` before it starts.
    """
    declared = daemons.nodes(port, nodes, f"{NODE} {node_options}")
    conf = f"{MEMORY}SlurmdParameters=config_overrides\n{declared}{lines}"
    with daemons.started(home, port, conf) as found:
        for name in nodes:
            found.slurmd(name, files=files, prepare=prepare)
        found.until_idle()
        yield found


async def read_nodes(cluster: Daemons) -> dict[str, Node]:
    """The nodes by name."""
    async with cluster.client() as client:
        found = await client.call(protocol.get_nodes())
    assert found is not None
    return {node.name: node for node in found.nodes}


async def until_idle(cluster: Daemons) -> None:
    """Wait until all nodes are idle, and neither drained nor reserved."""
    await asyncio.to_thread(cluster.until_idle)


async def seconds_to_start(
    cluster: Daemons, nodes: Sequence[str], user: str = "games", array: str = ""
) -> float:
    """Seconds from the submission of a user's job for these nodes of partition `all` until it
    starts.

    Of an array, until the last task starts.
    """
    request = CheckRequest(
        JOB, "#!/bin/sh\nexit 0\n", tuple(nodes), "all", 5, int(time.time()) + 600
    )
    submitted = protocol.submit_check(request)
    assert submitted.body is not None
    job = {**submitted.body["job"], **({"array": array} if array else {})}
    async with cluster.client() as admin, cluster.client(user) as submitter:
        began = time.monotonic()
        number = await submitter.call(replace(submitted, body={"job": job}))
        while True:
            found = await admin.call(protocol.get_waiting_job(number))
            if not found.waits or (
                array and number not in await admin.call(protocol.get_waiting_ids())
            ):
                return time.monotonic() - began
            assert time.monotonic() - began < WILL_COME, found
            await asyncio.sleep(0.02)


async def longest_wait(cluster: Daemons) -> int:
    """Seconds that one of the jobs of `seconds_to_start` has waited at most, by slurmctld's
    clock.
    """
    async with cluster.client() as client:
        found = await client.call(protocol.get_jobs())
    assert found is not None
    return max(job.start_time - job.submit_time for job in found.jobs if job.name == JOB)


async def seconds_of_srun(cluster: Daemons, nodes: Sequence[str]) -> float:
    """Seconds that a user's `srun true` on all these nodes takes. Raises AssertionError if it
    fails.
    """
    words = (
        "srun",
        f"--nodes={len(nodes)}",
        f"--nodelist={','.join(nodes)}",
        "--exclusive",
        "--chdir=/",
        "true",
    )
    began = time.monotonic()
    done = await asyncio.to_thread(cluster.run, nodes[0], *words, user=GAMES)
    assert done.returncode == 0, done
    return time.monotonic() - began


async def until_jobs(cluster: Daemons, name: str, state: str, count: int) -> None:
    """Wait until so many jobs of this name are in the state."""
    end = time.monotonic() + WILL_COME
    async with cluster.client() as client:
        while True:
            jobs = await client.call(protocol.get_jobs())
            assert jobs is not None
            if sum(it.name == name and state in it.states for it in jobs.jobs) == count:
                return
            assert time.monotonic() < end, jobs
            await asyncio.sleep(0.1)
