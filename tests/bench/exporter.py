"""Benchmark `exporter`: collection, scrapes and memory of the role at 5,000 nodes and 50,000 jobs.

The exporter runs in a process of its own, as in its pod, against a server with recorded records
under other names: a tenth of the jobs run, the others wait, of 500 users in 50 accounts and 10
partitions.

For root, also what a collection costs a real slurmctld (`collection`).
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families

from tests.bench import collection
from tests.bench.figures import Figure, figure
from tests.bench.serving import served

NODES, JOBS = 5_000, 50_000
ROOT = Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "unit" / "slurm" / "fixtures"
KEY = b"0123456789abcdef0123456789abcdef"
TIMES = 9
SECONDS = 240.0
NAME_SETS = "own,reference,vpenso"
TEXT, OPENMETRICS = "text/plain", "application/openmetrics-text; version=1.0.0"


def nodes() -> bytes:
    """slurmrestd's answer with all nodes."""
    recorded = json.loads((FIXTURES / "v0.0.45-nodes.json").read_text())["body"]
    found = []
    for number in range(NODES):
        name = f"slinky-{number}"
        busy = number % 10 == 0
        more = {
            "name": name,
            "hostname": name,
            "partitions": ["all", f"p{number % 10}"],
            "gres": "gpu:h100:8(S:0-1)",
            "gres_used": f"gpu:h100:{4 if busy else 0}(IDX:0-3)",
            "state": ["MIXED" if busy else "IDLE", "DYNAMIC_NORM"],
        }
        found.append(recorded["nodes"][0] | more)
    return json.dumps(recorded | {"nodes": found}, separators=(",", ":")).encode()


def jobs() -> Iterator[bytes]:
    """The records of all jobs, compact."""
    record = json.loads((FIXTURES / "v0.0.45-job_pending.json").read_text())
    for number in range(1, JOBS + 1):
        more: dict[str, Any] = {
            "job_id": number,
            "user_name": f"user{number % 500}",
            "account": f"account{number % 50}",
            "partition": f"p{number % 10}",
            "priority": {"set": True, "infinite": False, "number": 1},
            "state_reason": "Priority",
        }
        if number % 10 == 0:
            more |= {
                "job_state": ["RUNNING"],
                "state_reason": "None",
                "tres_alloc_str": "cpu=8,mem=64G,node=1",
            }
            more["gres_detail"] = [f"gpu:h100:{number // 10 % 4 + 1}(IDX:0-3)"]
        yield json.dumps(record | more, separators=(",", ":")).encode()


def slurmrestd() -> web.Application:
    """Answers with everything, whatever has changed since."""
    all_nodes, all_jobs = nodes(), b",".join(jobs())
    end = b'],"last_update":{"set":true,"infinite":false,"number":7},"errors":[],"warnings":[]}'
    answers = {
        "nodes/": all_nodes,
        "jobs/": b'{"jobs":[' + all_jobs + end,
        "diag/": json.dumps(
            json.loads((FIXTURES / "v0.0.45-diag.json").read_text())["body"]
        ).encode(),
        "partitions/": json.dumps(
            json.loads((FIXTURES / "v0.0.45-partitions.json").read_text())["body"]
        ).encode(),
        "reservations/": json.dumps(
            json.loads((FIXTURES / "v0.0.45-reservations.json").read_text())["body"]
        ).encode(),
        "licenses/": b'{"licenses":[],"errors":[],"warnings":[]}',
    }

    async def answer(request: web.Request) -> web.Response:
        return web.Response(
            body=answers[request.match_info["path"]], content_type="application/json"
        )

    application = web.Application()
    application.router.add_get("/slurm/{version}/{path:.*}", answer)
    return application


class Measured(NamedTuple):
    """Seconds of wall time and of CPU, and MiB."""

    collection: float
    collection_cpu: float
    plain: float
    openmetrics: float
    compressed: float
    first: float
    busiest: float
    series: float
    megabytes: float
    rss: float
    peak_rss: float


def bench() -> list[Figure]:
    """The figures."""
    with served(slurmrestd) as url:
        bare = asyncio.run(_bare(url))
        found = asyncio.run(_exporter(url))
    with served(page_server) as url:
        copied = asyncio.run(_median(f"{url}/{int(found.megabytes * 1e6)}", TEXT))
    size = f"{found.series:.0f} series, {found.megabytes:.1f} MB"
    ceiling, copy = (
        ("aiohttp and msgspec.json.decode of nodes and jobs", bare),
        ("aiohttp, as many bytes", copied * 1e3),
    )
    return [
        figure(
            f"collection of {NODES} nodes and {JOBS} jobs: wall",
            found.collection,
            "s",
            against=ceiling,
        ),
        figure("collection: CPU", found.collection_cpu, "s"),
        figure(f"scrape, text, {size}", found.plain * 1e3, "ms", against=copy, most=1000),
        figure("scrape, OpenMetrics", found.openmetrics * 1e3, "ms", most=1000),
        figure("scrape, compressed", found.compressed * 1e3, "ms", most=1000),
        figure("first scrape after a collection, compressed", found.first * 1e3, "ms", most=1000),
        figure("longest scrape during a collection", found.busiest * 1e3, "ms", most=1000),
        figure("RSS", found.rss, "MiB", most=256),
        figure("peak RSS", found.peak_rss, "MiB", most=256),
        *(collection.bench() if os.geteuid() == 0 else ()),
    ]


def page_server() -> web.Application:
    """Answers /N with N bytes."""

    async def page(request: web.Request) -> web.Response:
        return web.Response(body=b"x" * int(request.match_info["size"]), content_type="text/plain")

    application = web.Application()
    application.router.add_get("/{size}", page)
    return application


async def _bare(url: str) -> float:
    async with aiohttp.ClientSession() as session:
        start = time.monotonic()
        for path in ("nodes/", "jobs/"):
            async with session.get(f"{url}/slurm/v0.0.45/{path}") as response:
                msgspec.json.decode(await response.read())
        return time.monotonic() - start


@contextlib.asynccontextmanager
async def _running(url: str, interval: int) -> AsyncIterator[tuple[int, str]]:
    """The exporter as a process: its id, and the address of its metrics."""
    port = 18_080 + os.getpid() % 1000
    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder) / "jwt.key"
        key.write_bytes(KEY)
        environment = {
            **os.environ,
            "SLURMRESTD_URL": url,
            "SLURM_JWT_KEY_FILE": str(key),
            "EXPORTER_PORT": str(port),
        }
        environment |= {"EXPORTER_INTERVAL_SECONDS": str(interval), "EXPORTER_NAME_SETS": NAME_SETS}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "sidecars", "exporter"),
            cwd=ROOT,
            env=environment,
            stderr=subprocess.DEVNULL,
        )
        try:
            yield process.pid, f"http://127.0.0.1:{port}/metrics"
        finally:
            process.terminate()
            await process.wait()


async def _exporter(url: str) -> Measured:
    async with _running(url, interval=3600) as (pid, metrics):
        durations = await _collected(metrics)
        cpu = _cpu(pid)
        first = await _scrape(metrics, TEXT, gzip=True)
        plain, openmetrics = await _median(metrics, TEXT), await _median(metrics, OPENMETRICS)
        compressed = await _median(metrics, TEXT, gzip=True)
        body = await _get(metrics, TEXT)
    async with _running(url, interval=1) as (pid, metrics):
        await _collected(metrics)
        end, busiest = time.monotonic() + 3 * sum(durations.values()), 0.0
        while time.monotonic() < end:
            busiest = max(busiest, await _scrape(metrics, TEXT))
            await asyncio.sleep(0.05)
        rss, peak = _memory(pid)
    lines = body.count(b"\n") - body.count(b"\n# ")
    sizes = len(body) / 1e6
    return Measured(
        max(durations.values()),
        cpu,
        plain,
        openmetrics,
        compressed,
        first,
        busiest,
        lines,
        sizes,
        rss,
        peak,
    )


async def _collected(metrics: str) -> dict[str, float]:
    """Wait for the first collection; the duration of each source."""
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with contextlib.suppress(aiohttp.ClientError):
            found: dict[str, dict[str, float]] = {}
            for family in text_string_to_metric_families((await _get(metrics, TEXT)).decode()):
                if family.name.startswith("slurm_exporter_"):
                    found[family.name] = {
                        s.labels.get("source", ""): s.value for s in family.samples
                    }
            if found["slurm_exporter_up"][""] == 1:
                return found["slurm_exporter_collection_duration_seconds"]
        await asyncio.sleep(0.2)
    raise TimeoutError(f"no collection within {SECONDS:g} s")


async def _get(metrics: str, accept: str, *, gzip: bool = False) -> bytes:
    headers = {"Accept": accept, "Accept-Encoding": "gzip" if gzip else "identity"}
    async with (
        aiohttp.ClientSession(auto_decompress=False) as session,
        session.get(metrics, headers=headers) as answer,
    ):
        return await answer.read()


async def _scrape(metrics: str, accept: str, *, gzip: bool = False) -> float:
    start = time.monotonic()
    await _get(metrics, accept, gzip=gzip)
    return time.monotonic() - start


async def _median(metrics: str, accept: str, *, gzip: bool = False) -> float:
    spent = [await _scrape(metrics, accept, gzip=gzip) for _ in range(TIMES + 1)]
    return sorted(spent[1:])[TIMES // 2]


def _cpu(pid: int) -> float:
    """Seconds of CPU since the process began."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _memory(pid: int) -> tuple[float, float]:
    """MiB that the process has, and the most that it had."""
    lines = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return int(lines["VmRSS"].split()[0]) / 1024, int(lines["VmHWM"].split()[0]) / 1024
