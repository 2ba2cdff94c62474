"""`python -m tests.bench.slurmctld URL KEYFILE PID`: what reading many pending jobs costs, by a real slurmctld.

URL and KEYFILE are of a slurmrestd and the cluster's JWT key, PID is its slurmctld on this machine; MaxJobCount must
allow for the jobs. They are submitted held, by way of slurmrestd, and cancelled at the end. Not a part of `make bench`,
because it takes minutes and needs a Slurm cluster of its own. Results also go to build/bench/slurmctld.json.
"""

import argparse
import asyncio
import json
import os
import statistics
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import aiohttp
import msgspec

from sidecars.slurm import protocol
from sidecars.slurm.client import Decoder
from sidecars.slurm.protocol import TOKEN_HEADER, VERSIONS
from sidecars.slurm.tokens import sign
from tests.bench.figures import Figure, figure, table

AT_ONCE = 16
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

    def __init__(self, session: aiohttp.ClientSession, url: str, key: bytes) -> None:
        self._session = session
        self._base = f"{url}/slurm/{VERSIONS[0]}/"
        self._key = key

    async def call(self, method: str, path: str, body: Any = None) -> bytes:
        """The body of a good answer; raises RuntimeError for any other."""
        headers = {TOKEN_HEADER: sign(self._key, "root", 900, time.time())}
        async with self._session.request(method, self._base + path, json=body, headers=headers) as response:
            content = await response.read()
            if response.status not in (200, 304):
                raise RuntimeError(f"{method} {path}: {response.status} {content[:300]!r}")
            return content

    async def many(self, count: int, call: Callable[[int], Awaitable[bytes]]) -> list[bytes]:
        """So many calls, a few at a time."""
        numbers = iter(range(count))
        answers: list[bytes] = []

        async def work() -> None:
            for number in numbers:
                answers.append(await call(number))  # noqa: PERF401 - several fill it

        await asyncio.gather(*(work() for _ in range(AT_ONCE)))
        return answers


def cpu_seconds(pid: int) -> float:
    """What the process has used so far, user and system."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(url: str, key: bytes, pid: int, count: int, times: int) -> list[Figure]:
    """The figures."""
    timeout = aiohttp.ClientTimeout(total=900)
    async with aiohttp.ClientSession(timeout=timeout, connector=aiohttp.TCPConnector(limit=AT_ONCE)) as session:
        slurm = Slurmrestd(session, url, key)
        start = time.monotonic()
        submitted = await slurm.many(count, lambda _: slurm.call("POST", "job/submit", JOB))
        took = time.monotonic() - start
        ids = [int(json.loads(answer)["job_id"]) for answer in submitted]
        print(f"submitted {count} jobs in {took:.0f} s", flush=True)

        async def reading(name: str, path: Callable[[], str], *, change: bool = False) -> list[Figure]:
            walls, cpus, size, body = [], [], 0, b""
            for turn in range(times):
                if change:
                    await slurm.call("POST", f"job/{ids[turn]}", {"comment": f"changed {time.time()}"})
                wall, cpu = time.monotonic(), cpu_seconds(pid)
                body = await slurm.call("GET", path())
                walls.append(time.monotonic() - wall)
                cpus.append(cpu_seconds(pid) - cpu)
                size = len(body)
            return [
                figure(f"{name}: size", size / 1e6, "MB"),
                figure(f"{name}: time", statistics.median(walls) * 1e3, "ms"),
                figure(f"{name}: CPU of slurmctld, mean", statistics.mean(cpus) * 1e3, "ms"),
            ]

        full = await slurm.call("GET", "jobs/")
        found = len(msgspec.json.decode(full)["jobs"])
        if found < count:
            raise RuntimeError(f"slurmctld lists {found} jobs of {count}: is MaxJobCount large enough?")
        figures = await reading(f"{found} jobs, full answer", lambda: "jobs/")
        figures += await reading(
            "after a change of one job", lambda: f"jobs/?update_time={int(time.time())}", change=True
        )
        figures += await reading("unchanged", lambda: f"jobs/?update_time={int(time.time()) + 100}")
        figures += [_decoding(full)]
        await slurm.many(count, lambda number: slurm.call("DELETE", f"job/{ids[number]}"))
        return figures


def _decoding(full: bytes) -> Figure:
    start = time.process_time()
    Decoder()(protocol.get_jobs(), 200, full)
    spent = time.process_time() - start
    start = time.process_time()
    msgspec.json.decode(full)
    return figure(
        "decode of the full answer, CPU of ours",
        spent * 1e3,
        "ms",
        against=("msgspec.json.decode", (time.process_time() - start) * 1e3),
    )


def main() -> int:
    """Measure, print a table and write the file."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.slurmctld", description=__doc__)
    parser.add_argument("url")
    parser.add_argument("key", type=Path)
    parser.add_argument("pid", type=int)
    parser.add_argument("--jobs", type=int, default=50_000)
    parser.add_argument("--times", type=int, default=3, help="of each reading")
    given = parser.parse_args()
    figures = asyncio.run(measure(given.url, given.key.read_bytes(), given.pid, given.jobs, given.times))
    path = Path(__file__).parents[2] / "build" / "bench" / "slurmctld.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps([asdict(f) for f in figures], indent=2, ensure_ascii=False) + "\n")
    print(table(figures))
    return 0


if __name__ == "__main__":
    sys.exit(main())
