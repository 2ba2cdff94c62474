"""The readers of 50,000 jobs that benchmark `slurm` compares: `python -m tests.bench.jobs READER
URL` prints a Spent.

Each reads the answer of `slurmrestd` once, in a process of its own. What it costs to import it
doesn't count.
"""

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import aiohttp
import msgspec
from aiohttp import web

from sidecars.slurm import protocol
from sidecars.slurm.client import Client
from sidecars.slurm.tokens import TokenSource
from tests.bench.watchers import memory

JOBS = 50_000
RECORDING = Path(__file__).parents[1] / "unit" / "slurm" / "fixtures" / "v0.0.45-job_pending.json"
KEY = b"0123456789abcdef0123456789abcdef"
SECONDS = 240.0


class Spent(NamedTuple):
    """What a reader used: seconds of CPU, MiB that its peak RSS grew by, and the longest time it
    blocked the loop.
    """

    cpu: float
    peak_rss: float
    longest_stop: float


def records() -> Iterator[bytes]:
    """All the jobs' records as slurmrestd gives them, compact."""
    text = json.dumps(json.loads(RECORDING.read_text()), separators=(",", ":"))
    before, after = text.split('"job_id":1,')
    for number in range(1, JOBS + 1):
        yield f'{before}"job_id":{number},{after}'.encode()


def slurmrestd() -> web.Application:
    """Answers any question with all jobs."""

    async def jobs(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "application/json"})
        await response.prepare(request)
        block = [b'{"jobs":[']
        for number, record in enumerate(records()):
            block.append(record if number == 0 else b"," + record)
            if len(block) >= 50:
                await response.write(b"".join(block))
                block.clear()
        block.append(
            b'],"last_update":{"set":true,"infinite":false,"number":7},"errors":[],"warnings":[]}'
        )
        await response.write(b"".join(block))
        return response

    application = web.Application()
    application.router.add_get("/{path:.*}", jobs)
    return application


async def ours(url: str) -> int:
    """This product's; the number of jobs."""
    async with Client(url, TokenSource(lambda: KEY, clock=time.time)) as client:
        answer = await client.call(protocol.get_jobs(), timeout=SECONDS)
    return len(answer.jobs) if answer is not None else 0


async def whole(url: str) -> int:
    """The same records from an answer that is decoded as a whole."""
    async with aiohttp.ClientSession() as session, session.get(url) as response:
        body = await response.read()
    answer = protocol.decode(protocol.get_jobs(), 200, body, parse=msgspec.json.decode)
    return len(answer.jobs) if answer is not None else 0


async def measured(reader: str, url: str) -> Spent:
    """What one of them spends."""
    (_, peak), cpu = memory(), time.process_time()
    longest = 0.0

    async def beat() -> None:
        nonlocal longest
        while True:
            before = time.monotonic()
            await asyncio.sleep(0.001)
            longest = max(longest, time.monotonic() - before)

    beating = asyncio.create_task(beat())
    found = await {"ours": ours, "whole": whole}[reader](url)
    await asyncio.sleep(0)
    beating.cancel()
    if found != JOBS:
        raise RuntimeError(f"{found} jobs instead of {JOBS}")
    return Spent(time.process_time() - cpu, memory()[1] - peak, longest)


if __name__ == "__main__":
    print(json.dumps(asyncio.run(measured(sys.argv[1], sys.argv[2]))._asdict()))
