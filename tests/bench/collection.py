"""What a collection of the exporter costs a real slurmctld, beside the commands of vpenso's
exporter, in the same run.

The commands are those that prometheus-slurm-exporter runs for each scrape. The third way is a
scrape of slurmctld's own endpoints of metrics, by which it would have to be asked beside the REST
API for what they don't have. slurmctld has nodes that are only records and pending jobs. Its CPU
time is that of /proc, without what it uses anyway in the same time. Needs root and the images of
the local cluster. A part of the benchmark `exporter`; `python -m tests.bench.collection` takes
other sizes.
"""

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict
from pathlib import Path

from sidecars.exporter.collector import Collector
from sidecars.exporter.settings import Settings
from sidecars.slurm.client import Client
from sidecars.slurm.tokens import TokenSource
from sidecars.workloads.controller import METRICS_PATHS
from tests.bench.figures import Figure, figure, table
from tests.support.real import ports, simulated_nodes
from tests.support.real.daemons import ADDRESS
from tests.support.real.simulated_nodes import Slurmctld

COMMANDS = (
    ("squeue", "-a", "-r", "-h", "-o", "%A|%a|%T|%c|%u|%P|%r"),
    ("squeue", "-h", "-o", "%P|%T|%C|%b"),
    ("sinfo", "-h", "-o", "%C"),
    ("sinfo", "-h", "-o", "%D|%T"),
    ("sinfo", "-h", "-N", "-O", "NodeList,AllocMem,Memory,CPUsState,StateLong"),
    ("sinfo", "-h", "-o", "%R,%C"),
    ("sdiag",),
)
NODES, JOBS, TIMES = 5_000, 10_000, 2
"""Not more jobs: slurmrestd needs about half a MiB of memory for each."""
SUBMITTERS = 16
PORT = ports.SIMULATED + 18
IDLE_SECONDS = 10.0
_TICKS = os.sysconf("SC_CLK_TCK")


def pid_of(program: str) -> int:
    """The process of this name that this one has started."""
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                if (folder / "comm").read_text().strip() == program and os.getpid() in _ancestors(
                    int(folder.name)
                ):
                    return int(folder.name)
            except OSError:
                continue
    raise RuntimeError(f"no process {program} was started")


def _ancestors(pid: int) -> list[int]:
    found = []
    while pid > 1:
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        found.append(pid)
    return found


def cpu(pid: int) -> float:
    """CPU seconds of a process."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def peak(pid: int | str, *, reset: bool = False) -> float:
    """MiB that a process had at most, since the last `reset`."""
    if reset:
        Path(f"/proc/{pid}/clear_refs").write_text("5")
    lines = dict(
        line.split(":", 1) for line in Path(f"/proc/{pid}/status").read_text().splitlines()
    )
    return int(lines["VmHWM"].split()[0]) / 1024


def rest_of(pid: int) -> float:
    """CPU seconds that pass in a second while nobody asks."""
    before = cpu(pid)
    time.sleep(IDLE_SECONDS)
    return (cpu(pid) - before) / IDLE_SECONDS


def spent(pid: int, work: Callable[[], None], times: int, idle: float) -> tuple[float, float]:
    """CPU and wall seconds for one of so many repetitions. `idle`: CPU seconds that pass without
    it in a second.
    """
    begin, before = time.monotonic(), cpu(pid)
    for _ in range(times):
        work()
    wall = time.monotonic() - begin
    return max(0.0, cpu(pid) - before - idle * wall) / times, wall / times


def measured(slurm: Slurmctld, times: int, size: str) -> list[Figure]:
    """The figures."""
    slurmctld, slurmrestd = pid_of("slurmctld"), pid_of("slurmrestd")
    idle = min(rest_of(slurmctld) for _ in range(3))

    def commands() -> None:
        for command in COMMANDS:
            inside = ["nsenter", f"--target={slurmctld}", "--mount", "--root", "--", *command]
            subprocess.run(inside, check=True, stdout=subprocess.DEVNULL)

    async def collected() -> None:
        tokens = TokenSource(lambda: slurm.key, clock=time.time, username="root")
        async with Client(slurm.url, tokens) as client:
            # One of its own each time: it asks for everything, and not for what has changed.
            collector = Collector(client, Settings(slurm.url), clock=time.monotonic, now=time.time)
            for source in collector.sources:
                await collector.collect(source)
            page = collector.page()[1]
        if b"slurm_exporter_up 1" not in page:
            raise RuntimeError("a collection failed")

    def own() -> None:
        for path in METRICS_PATHS:
            with urllib.request.urlopen(f"http://{ADDRESS}:{PORT}{path}") as answer:
                if b"slurm_" not in answer.read():
                    raise RuntimeError(f"{path}: no figures of slurmctld's own")

    before = peak("self", reset=True)
    exporter, wall = spent(slurmctld, lambda: asyncio.run(collected()), times, idle)
    grown = peak("self") - before
    rest, _ = spent(slurmrestd, lambda: asyncio.run(collected()), times, 0.0)
    theirs, their_wall = spent(slurmctld, commands, times, idle)
    native, native_wall = spent(slurmctld, own, times, idle)
    against = f"{len(COMMANDS)} commands of one scrape", theirs * 1e3
    return [
        figure(f"collection, {size}: CPU of slurmctld", exporter * 1e3, "ms", against=against),
        figure(
            f"collection: CPU of slurmctld, beside {len(METRICS_PATHS)} endpoints of its own",
            exporter * 1e3,
            "ms",
            against=("those endpoints", native * 1e3),
        ),
        figure("collection: CPU of slurmrestd", rest * 1e3, "ms"),
        figure("collection: wall", wall, "s", against=("the same commands", their_wall)),
        figure(
            "collection: wall, beside slurmctld's own endpoints",
            wall,
            "s",
            against=("those endpoints", native_wall),
        ),
        figure("collection: memory of the exporter beside its code, at most", grown, "MiB"),
        figure("memory of slurmrestd, at most", peak(slurmrestd), "MiB"),
        figure("memory of slurmctld, at most", peak(slurmctld), "MiB"),
        figure("slurmctld alone, in a second", idle * 1e3, "ms"),
    ]


def bench(nodes: int = NODES, jobs: int = JOBS, times: int = TIMES) -> list[Figure]:
    """The figures for so many nodes and pending jobs, of so many collections of each kind."""
    more = (
        f"NodeName=n[0-{nodes - 1}] NodeAddr=127.0.0.1 CPUs=64 RealMemory=256000 State=CLOUD\n"
        "MetricsType=metrics/openmetrics\n"
        f"MaxNodeCount={nodes}\nMaxJobCount={2 * jobs}\nPartitionName=all Nodes=ALL Default=YES "
        "State=UP\n"
    )
    with (
        tempfile.TemporaryDirectory() as home,
        simulated_nodes.running(Path(home), more, "", PORT) as slurm,
    ):
        with ThreadPoolExecutor(SUBMITTERS) as threads:
            for _ in threads.map(
                lambda _: slurm.submit({"tasks": 1, "hold": True, "partition": "all"}), range(jobs)
            ):
                pass
        return measured(slurm, times, f"{nodes} nodes, {jobs} pending jobs")


def main(arguments: list[str]) -> int:
    """Measure and print. 1 if it can't be measured."""
    parser = argparse.ArgumentParser(prog="python -m tests.bench.collection", description=__doc__)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--jobs", type=int, default=JOBS)
    parser.add_argument("--times", type=int, default=TIMES, help="collections of each kind")
    options = parser.parse_args(arguments)
    found = bench(options.nodes, options.jobs, options.times)
    print(table(found))
    folder = Path("build/bench")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "collection.json").write_text(json.dumps([asdict(it) for it in found], indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
