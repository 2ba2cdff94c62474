"""`python -m tests.bench.slurmctld`: what reading many pending jobs costs a real slurmctld,
slurmrestd and the reader.

Starts a slurmctld of its own, without nodes, and a slurmrestd that answers compact JSON as this
product has it do, from the images of the local cluster; needs root, as that does. slurmrestd
submits them as held jobs. Not a part of `make bench`, because it takes minutes and gigabytes.
Results also go to build/bench/slurmctld.json.
"""

import argparse
import asyncio
import contextlib
import os
import secrets
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiohttp

from sidecars.explain import commands
from sidecars.explain.core import job
from sidecars.explain.core.records import Seen
from sidecars.slurm.protocol import TOKEN_HEADER, VERSIONS
from sidecars.slurm.tokens import sign
from tests.bench.figures import Figure, figure, show, table
from tests.support.real import daemons, outside

AT_ONCE = 16
ADDRESS, PORT, COMPACT, PLAIN = "127.0.0.1", 7819, 7820, 7821
START_SECONDS = 60.0
BETWEEN_SUBMISSIONS = 0.5
MOST_MEMORY = 14 * 2**30
"""Bytes of slurmrestd, which would otherwise end other processes of this machine."""
JOB = {
    "script": "#!/bin/sh\nsleep 60\n",
    "job": {
        "name": "bench",
        "hold": True,
        "tasks": 1,
        "current_working_directory": "/",
        "environment": ["PATH=/usr/bin:/bin"],
    },
}


class Slurmrestd:
    """Plain calls, because the figures are about Slurm and not about our client."""

    def __init__(self, session: aiohttp.ClientSession, port: int, key: bytes) -> None:
        self._session = session
        self._base = f"http://{ADDRESS}:{port}/slurm/{VERSIONS[0]}/"
        self._key = key

    async def call(self, method: str, path: str, body: Any = None) -> int:
        """The size of a good answer, which isn't kept; raises RuntimeError for any other."""
        headers = {TOKEN_HEADER: sign(self._key, "root", 900, time.time())}
        async with self._session.request(
            method, self._base + path, json=body, headers=headers
        ) as response:
            size = 0
            async for chunk in response.content.iter_any():
                size += len(chunk)
            if response.status not in (200, 304):
                raise RuntimeError(f"{method} {path}: {response.status}")
            return size

    async def submit(self, count: int) -> None:
        """So many jobs, a few at a time."""
        numbers = iter(range(count))

        async def work() -> None:
            for _ in numbers:
                await self.call("POST", "job/submit", JOB)

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))

    async def answers(self) -> None:
        """Wait until it and slurmctld do."""
        async with asyncio.timeout(START_SECONDS):
            while True:
                with contextlib.suppress(aiohttp.ClientError, RuntimeError):
                    await self.call("GET", "diag/")
                    return
                await asyncio.sleep(0.2)


@dataclass(frozen=True)
class Process:
    """A daemon, by its parent's process id."""

    parent: int

    @property
    def _folder(self) -> Path:
        [child] = Path(f"/proc/{self.parent}/task/{self.parent}/children").read_text().split()
        return Path("/proc", child)

    def execute(self, words: Sequence[str]) -> tuple[str, str]:
        """Run a command in its files: what it prints on both outputs."""
        done = subprocess.run(
            ["chroot", str(self._folder / "root"), *words],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        return done.stdout, done.stderr

    def cpu(self) -> float:
        """Seconds that it has used so far, user and system."""
        fields = (self._folder / "stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def peak(self) -> float:
        """MiB of its largest RSS so far."""
        lines = (self._folder / "status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith("VmHWM")).split()[1]) / 1024


@dataclass(frozen=True)
class Slurm:
    """What runs."""

    slurmctld: Process
    slurmrestd: dict[int, Process]
    key: bytes


@contextlib.asynccontextmanager
async def running(home: Path, lines: str, *, plain: bool = False) -> AsyncIterator[Slurm]:
    """slurmctld with these lines more in slurm.conf, and slurmrestd once or twice."""
    keys = {"slurm.key": secrets.token_bytes(1024), "jwt.key": secrets.token_bytes(32)}
    conf = f"{outside.conf(ADDRESS, PORT)}{daemons.ALL}{lines}".encode()
    files = {"slurm.conf": conf, "cgroup.conf": b"CgroupPlugin=disabled\n", **keys}
    more: dict[int, list[str]] = {COMPACT: ["SLURMRESTD_JSON=compact"]}
    if plain:
        more[PLAIN] = []
    with contextlib.ExitStack() as stack:
        command = ["/usr/sbin/slurmctld", "-D"]
        slurmctld = stack.enter_context(
            outside.daemon(home / "slurmctld", "slurmctld", outside.SLURM, files, command)
        )
        rests: dict[int, Process] = {}
        for port, environment in more.items():
            environment += [
                "SLURM_JWT=daemon",
                "SLURMRESTD_SECURITY=disable_unshare_files,disable_unshare_sysv",
            ]
            command = ["prlimit", f"--as={MOST_MEMORY}", "env", *environment, "slurmrestd"]
            command += ["-s", "slurmctld", f"{ADDRESS}:{port}"]
            folder = home / f"slurmrestd-{port}"
            process = stack.enter_context(
                outside.daemon(folder, "slurmrestd", outside.NOBODY, files, command)
            )
            rests[port] = Process(process.pid)
        yield Slurm(Process(slurmctld.pid), rests, keys["jwt.key"])


def explained(slurm: Slurm, times: int) -> list[Figure]:
    """What `kubectl slurm explain job` takes, without kubectl."""
    commanded, walls, cpus = [], [], []
    for _ in range(times):
        start, cpu = time.monotonic(), slurm.slurmctld.cpu()
        out, err = slurm.slurmctld.execute(commands.script("job", "1"))
        commanded.append(time.monotonic() - start)
        found, missing = commands.read(commands.sections(out, err), "job")
        job.explain(Seen(time.time(), slurm=found, missing=missing), "1")
        walls.append(time.monotonic() - start)
        cpus.append(slurm.slurmctld.cpu() - cpu)
    return [
        figure("explain job: Slurm's commands", statistics.median(commanded), "s"),
        figure("explain job: as a whole", statistics.median(walls), "s", most=3),
        figure("explain job: CPU of slurmctld", statistics.median(cpus), "s"),
    ]


async def measure(slurm: Slurm, count: int, times: int) -> list[Figure]:
    """The figures."""
    timeout = aiohttp.ClientTimeout(total=300)
    async with aiohttp.ClientSession(
        timeout=timeout, connector=aiohttp.TCPConnector(limit=AT_ONCE + 1)
    ) as session:
        compact = Slurmrestd(session, COMPACT, slurm.key)
        await compact.answers()
        plain = Slurmrestd(session, PLAIN, slurm.key) if PLAIN in slurm.slurmrestd else None
        if plain is not None:
            await plain.answers()
        start = time.monotonic()
        await compact.submit(count)
        print(f"submitted {count} jobs in {time.monotonic() - start:.0f} s", flush=True)
        explain = await asyncio.to_thread(explained, slurm, 3)
        print(table(explain), flush=True)

        async def reading(
            name: str,
            port: int,
            path: Callable[[], str],
            before: Callable[[], Awaitable[object]] | None = None,
        ) -> list[Figure]:
            rest, walls, cpus, rest_cpus, size = slurm.slurmrestd[port], [], [], [], 0
            for _ in range(times):
                if before is not None:
                    await before()
                wall, cpu, rest_cpu = time.monotonic(), slurm.slurmctld.cpu(), rest.cpu()
                size = await Slurmrestd(session, port, slurm.key).call("GET", path())
                walls.append(time.monotonic() - wall)
                cpus.append(slurm.slurmctld.cpu() - cpu)
                rest_cpus.append(rest.cpu() - rest_cpu)
            found = [
                figure(f"{name}: size", size / 1e6, "MB"),
                figure(f"{name}: time", statistics.median(walls), "s"),
                figure(f"{name}: CPU of slurmctld, mean", statistics.mean(cpus), "s"),
                figure(f"{name}: CPU of slurmrestd, mean", statistics.mean(rest_cpus), "s"),
            ]
            print(table(found), flush=True)
            return found

        async def submitting() -> float:
            start = time.monotonic()
            await compact.call("POST", "job/submit", JOB)
            return time.monotonic() - start

        async def slowest_beside(reader: asyncio.Task[list[Figure]]) -> float:
            slowest = 0.0
            while not reader.done():
                await asyncio.sleep(BETWEEN_SUBMISSIONS)
                slowest = max(slowest, await submitting())
            return slowest

        everything = f"{count} jobs"
        alone = statistics.median([await submitting() for _ in range(20)])
        first = asyncio.create_task(reading(f"{everything}, compact", COMPACT, lambda: "jobs/"))
        slowest = await slowest_beside(first)
        figures = await first
        figures += explain
        figures += [
            figure(
                f"{everything}, compact: peak RSS of slurmrestd",
                slurm.slurmrestd[COMPACT].peak(),
                "MiB",
            )
        ]
        if plain is not None:
            figures += await reading(f"{everything}, as slurmrestd comes", PLAIN, lambda: "jobs/")
        figures += await reading(
            "after another job",
            COMPACT,
            lambda: f"jobs/?update_time={int(time.time()) - 1}",
            submitting,
        )
        figures += await reading(
            "unchanged", COMPACT, lambda: f"jobs/?update_time={int(time.time()) + 100}"
        )
        figures += [
            figure(
                "a submission while all jobs are read, slowest",
                slowest * 1e3,
                "ms",
                against=("alone, median", alone * 1e3),
            ),
            figure("peak RSS of slurmctld", slurm.slurmctld.peak(), "MiB"),
        ]
        return figures


async def bench(count: int, times: int, *, plain: bool) -> list[Figure]:
    """Start Slurm, measure, end it."""
    with tempfile.TemporaryDirectory() as home:
        async with running(Path(home), f"MaxJobCount={count + 50_000}\n", plain=plain) as slurm:
            return await measure(slurm, count, times)


def main() -> int:
    """Measure, print a table and write the file."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.slurmctld", description=__doc__)
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--times", type=int, default=1, help="of each reading")
    parser.add_argument(
        "--plain", action="store_true", help="also as slurmrestd answers when nobody sets it up"
    )
    given = parser.parse_args()
    figures = asyncio.run(bench(given.jobs, given.times, plain=given.plain))
    show(figures, "slurmctld")
    return 0


if __name__ == "__main__":
    sys.exit(main())
