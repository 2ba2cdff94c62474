"""Benchmark `slurm`: decoding and polling of 5,000 nodes, hostlists of 10,000 names, and reading of
50,000 jobs.

The records are those that Slurm 26.05 was recorded to give, under other names. The ceilings do the
least that could be done with the same bytes, and know nothing of the fields.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from itertools import cycle
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
from aiohttp import web

from sidecars.kube import WorkQueue
from sidecars.slurm import protocol
from sidecars.slurm.client import Client, Decoder
from sidecars.slurm.hostlists import compress, expand
from sidecars.slurm.poller import Poller
from sidecars.slurm.tokens import TokenSource
from tests.bench import jobs
from tests.bench.figures import Figure, figure, median
from tests.bench.serving import served

NODES, CHANGED, NAMES = 5_000, 100, 10_000
ROOT = Path(__file__).parents[2]
RECORDING = ROOT / "tests" / "unit" / "slurm" / "fixtures" / "v0.0.45-nodes.json"
KEY = b"0123456789abcdef0123456789abcdef"
TIMES = 9


def answer(*, changed: bool = False) -> bytes:
    """slurmrestd's answer with all the nodes; `changed`: jobs have started on some of them."""
    recorded = json.loads(RECORDING.read_text())["body"]
    nodes = []
    for number in range(NODES):
        name = f"slinky-{number}"
        more: dict[str, Any] = {
            "name": name,
            "hostname": name,
            "address": f"10.0.{number // 250}.{number % 250}",
        }
        if changed and number < CHANGED:
            more |= {"state": ["MIXED", "DYNAMIC_NORM"], "alloc_cpus": 1, "alloc_memory": 1024}
        nodes.append(recorded["nodes"][0] | more)
    return json.dumps(recorded | {"nodes": nodes}, separators=(",", ":")).encode()


def slurmrestd() -> web.Application:
    """Below /unchanged nothing ever changes, below /changing each answer does."""
    before, after = answer(), answer(changed=True)
    answers = cycle((after, before))

    async def unchanged(request: web.Request) -> web.Response:
        if "update_time" in request.query:
            return web.Response(status=304)
        return web.Response(body=before, content_type="application/json")

    async def changing(request: web.Request) -> web.Response:
        return web.Response(body=next(answers), content_type="application/json")

    application = web.Application()
    application.router.add_get("/unchanged/{path:.*}", unchanged)
    application.router.add_get("/changing/{path:.*}", changing)
    return application


def bench() -> list[Figure]:
    """The figures."""
    with served(slurmrestd) as url:
        figures = [*_decoding(), *asyncio.run(_polling(url)), _hostlists()]
    with served(jobs.slurmrestd) as url:
        return [*figures, *_jobs(url)]


def _decoding() -> Iterator[Figure]:
    before, after = answer(), answer(changed=True)
    request = protocol.get_nodes()
    bare = "msgspec.json.decode", median(lambda: _cpu(lambda: msgspec.json.decode(before)), TIMES)
    stdlib = "json.loads", median(lambda: _cpu(lambda: json.loads(before)), TIMES)
    decoder = Decoder()
    first = median(lambda: _cpu(lambda: Decoder()(request, 200, before)), TIMES)
    same = median(lambda: _cpu(lambda: decoder(request, 200, before)), TIMES)
    answers = cycle((after, before))
    changed = median(lambda: _cpu(lambda: decoder(request, 200, next(answers))), TIMES)
    yield figure(
        f"decode {NODES} nodes, {len(before) / 1e6:.1f} MB: the first time",
        first,
        "ms",
        against=stdlib,
    )
    yield figure("decode: the same again", same, "ms", against=bare)
    yield figure(f"decode: {CHANGED} of them changed", changed, "ms", against=bare)


async def _polling(url: str) -> list[Figure]:
    unchanged = await _polls(f"{url}/unchanged", 50)
    changed = await _polls(f"{url}/changing", TIMES)
    async with aiohttp.ClientSession() as session:

        async def get(path: str, decode: Callable[[bytes], object]) -> None:
            async with session.get(f"{url}/{path}?update_time=1") as response:
                decode(await response.read())

        no_decode = await _median(lambda: get("unchanged/nodes", len), 50)
        decode = await _median(lambda: get("changing/nodes", msgspec.json.decode), TIMES)
    aiohttp_alone, with_msgspec = (
        ("aiohttp alone", no_decode),
        ("aiohttp and msgspec.json.decode", decode),
    )
    return [
        figure(f"poll of {NODES} unchanged nodes", unchanged, "ms", against=aiohttp_alone, most=5),
        figure(
            f"poll with {CHANGED} changed, to their keys in a queue",
            changed,
            "ms",
            against=with_msgspec,
            most=50,
        ),
    ]


async def _polls(url: str, times: int) -> float:
    """The median CPU of a poll after the first."""
    async with Client(url, TokenSource(lambda: KEY, clock=time.time)) as client:
        poller = Poller(client, time.monotonic)
        queue: WorkQueue[str] = WorkQueue()
        noticed: list[int] = []

        def enqueue(changed: frozenset[str], removed: frozenset[str]) -> None:
            noticed.append(len(changed))
            for name in changed | removed:
                queue.add(name)

        poller.subscribe(enqueue)
        await poller.poll()
        noticed.clear()
        cpu = await _median(poller.poll, times)
        if poller.trouble or set(noticed) - {CHANGED}:
            raise RuntimeError(f"the polls went wrong: {poller.trouble or noticed}")
        await poller.close()
        return cpu


def _hostlists() -> Figure:
    names = [f"slinky-{number}" for number in range(0, 2 * NAMES, 2)]
    expression = compress(names)
    if sorted(expand(expression)) != sorted(names):
        raise RuntimeError("compress and expand lost names")
    plain = median(
        lambda: _cpu(lambda: sorted([f"slinky-{number}" for number in range(NAMES)])), TIMES
    )
    spent = median(lambda: _cpu(lambda: expand(compress(names))), TIMES)
    name = f"compress and expand {NAMES} names, no two in a row"
    return figure(name, spent, "ms", against=("making and sorting the names", plain), most=20)


def _jobs(url: str) -> Iterator[Figure]:
    size = sum(map(len, jobs.records())) / 1e6
    ours, whole = _read("ours", url), _read("whole", url)
    name, other = f"read {jobs.JOBS} jobs, {size:.0f} MB", "aiohttp and msgspec, as a whole"
    yield figure(f"{name}: CPU", ours.cpu, "s", against=(other, whole.cpu))
    yield figure(f"{name}: peak RSS growth", ours.peak_rss, "MiB", against=(other, whole.peak_rss))
    stops = ours.longest_stop * 1e3, whole.longest_stop * 1e3
    yield figure(
        f"{name}: longest stop of the event loop", stops[0], "ms", against=(other, stops[1])
    )


def _read(reader: str, url: str) -> jobs.Spent:
    command = [sys.executable, "-m", "tests.bench.jobs", reader, url]
    output = subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, check=True, timeout=jobs.SECONDS
    ).stdout
    return jobs.Spent(**json.loads(output))


def _cpu(work: Callable[[], object]) -> float:
    """CPU milliseconds of one call."""
    start = time.process_time()
    work()
    return (time.process_time() - start) * 1e3


async def _median(work: Callable[[], Awaitable[None]], times: int) -> float:
    """Median CPU milliseconds of a coroutine, after a run that doesn't count."""
    spent = []
    for _ in range(times + 1):
        start = time.process_time()
        await work()
        spent.append((time.process_time() - start) * 1e3)
    return sorted(spent[1:])[times // 2]
