"""Benchmark `logs`: what job logs cost, and whether each byte of fast output is printed or counted.

A thread reads what the container prints, as a container runtime does. `register`'s interpreter
without work is the ceiling of memory; a job without the container beside it that of time.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench.figures import Figure, figure
from tests.bench.worker import (
    LEAVE,
    NO_ROLE,
    PRINT_MEMORY,
    ROLE,
    ROOT,
    _cpu,
    _memory,
    _peak,
    _proc,
    _python,
)

LINE = (
    b"epoch 12 step 4711: loss 0.4132 accuracy 0.9871, 812 samples/s, 71 % of GPU memory used, "
    b"all is well\n"
)
RATE = 100_000_000
SECONDS = 8.0
IDLE_SECONDS = 20.0
JOBS = 40
START_SECONDS = 15.0
SCRIPT = ROOT / "charts/slurm-operator/workloads/job-logs.sh"


class Printed:
    """What a process prints, counted by a thread."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.bytes = 0
        self.last = b""
        self._process = process
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        while data := os.read(self._process.stdout.fileno(), 1 << 20):
            self.bytes += len(data)
            self.last = (self.last + data)[-4096:]

    def join(self) -> None:
        self._thread.join(timeout=60)


def bench() -> list[Figure]:
    """The figures."""
    with TemporaryDirectory() as folder:
        root = Path(folder)
        bare = _peak(_python(root, NO_ROLE + PRINT_MEMORY), {})
        return [*_fast(root, bare), *_limited(root), *_idle(root, bare), *_job(root)]


@contextmanager
def _running(
    root: Path, name: str, **more: str
) -> Iterator[tuple[Path, Path, "subprocess.Popen[bytes]", Printed]]:
    inbox, home = root / name / "inbox", root / name / "home"
    home.mkdir(parents=True)
    environment = {
        "SLURM_NODE_NAME": "w-0",
        "SLURM_LOGS_DIR": str(inbox),
        "LOGS_FOLDERS": str(home),
    } | more
    process = subprocess.Popen(
        _python(root, ROLE + LEAVE, "logs"), env=environment, stdout=subprocess.PIPE
    )
    printed = Printed(process)
    try:
        deadline = time.monotonic() + START_SECONDS
        while not printed.bytes:
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"logs printed nothing within {START_SECONDS:g} s, or ended")
            time.sleep(0.02)
        yield inbox, home, process, printed
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=30)
        printed.join()


def _announce(inbox: Path, path: Path) -> None:
    items = [
        "job=7",
        f"uid={os.getuid()}",
        "gid=0",
        "user=ada",
        "partition=all",
        "restarts=0",
        "workDir=/",
    ]
    (inbox / "new").write_bytes(
        b"".join(item.encode() + b"\0" for item in [*items, f"stdout={path}"])
    )
    (inbox / "new").rename(inbox / "7-0.job")


def _write(path: Path) -> int:
    """Write at `RATE` for `SECONDS`. Returns the number of bytes."""
    chunk = LINE * (1_000_000 // len(LINE))
    written, start = 0, time.monotonic()
    with path.open("wb", buffering=0) as file:
        while (passed := time.monotonic() - start) < SECONDS:
            if written < passed * RATE:
                written += file.write(chunk)
            else:
                time.sleep(0.002)
    return written


def _fast(root: Path, bare: float) -> list[Figure]:
    """No limit but that of the host."""
    more = {"LOGS_BYTES_PER_SECOND": str(1 << 30), "LOGS_BACKLOG_BYTES": str(1 << 40)}
    with _running(root, "fast", **more) as (inbox, home, process, printed):
        _announce(inbox, home / "out")
        start = time.monotonic()
        written = _write(home / "out")
        (inbox / "7-0.end").touch()
        while (inbox / "7-0.job").exists() and time.monotonic() - start < 120:
            if printed.bytes >= written * 3 and not _waiting(process.pid):
                break
            time.sleep(0.05)
        took, cpu = time.monotonic() - start, _cpu(process.pid)
        memory = _memory(_proc(process.pid, "status"), "VmHWM")
    counted = json.loads(printed.last.splitlines()[-1])
    lost = written - counted["readBytes"] - counted["droppedBytes"]
    return [
        figure("100 MB/s for 8 s: bytes neither printed nor counted", abs(lost), "B", most=0),
        figure("100 MB/s: dropped", counted["droppedBytes"] / 1e6, "MB"),
        figure("100 MB/s: printed from start to end", counted["readBytes"] / took / 1e6, "MB/s"),
        figure("CPU for 1 GB of output", cpu / counted["readBytes"] * 1e9, "s"),
        figure(
            "peak RSS under load", memory, "MiB", against=("python -c pass, peak", bare), most=40
        ),
    ]


def _waiting(pid: int) -> bool:
    """Whether the process does more than look for changes: it used CPU within a moment."""
    before = _cpu(pid)
    time.sleep(0.3)
    return _cpu(pid) - before > 0.05


def _limited(root: Path) -> list[Figure]:
    """The default limits: 10 MiB/s, and 256 MiB of backlog."""
    with _running(root, "limited") as (inbox, home, process, printed):
        _announce(inbox, home / "out")
        before, start = _cpu(process.pid), time.monotonic()
        written = _write(home / "out")
        took = time.monotonic() - start
        cpu, rate = _cpu(process.pid) - before, printed.bytes / took
    counted = json.loads(printed.last.splitlines()[-1])
    lost = written - counted["readBytes"] - counted["droppedBytes"]
    return [
        figure(
            "default limits, 100 MB/s for 8 s, pod ends: bytes neither printed nor counted",
            abs(lost),
            "B",
            most=0,
        ),
        figure("default limits: printed", rate / 1e6, "MB/s", most=13),
        figure("default limits: CPU meanwhile", 100 * cpu / took, "% of a core"),
    ]


def _idle(root: Path, bare: float) -> list[Figure]:
    """A job runs and writes nothing."""
    with _running(root, "idle") as (inbox, home, process, _):
        (home / "out").touch()
        _announce(inbox, home / "out")
        time.sleep(2)  # what follows the start isn't idleness yet
        before = _cpu(process.pid)
        time.sleep(IDLE_SECONDS)
        cpu = _cpu(process.pid) - before
        memory = _memory(_proc(process.pid, "status"), "VmRSS")
    return [
        figure("RSS while idle", memory, "MiB", against=("python -c pass, peak", bare), most=40),
        figure(
            f"CPU while a silent job runs for {IDLE_SECONDS:g} s",
            100 * cpu / IDLE_SECONDS,
            "% of a core",
            most=0.2,
        ),
    ]


def _job(root: Path) -> list[Figure]:
    """A job that computes and prints, with and without the container beside it, in turns.

    The shortest of each count: whatever else runs on the host only adds to a job's time.
    """
    alone: list[float] = []
    beside: list[float] = []
    used: list[float] = []

    def job_alone(turn: int) -> None:
        out = root / f"alone-{turn}"
        alone.append(_run_job(out))
        out.unlink()

    def job_beside(turn: int) -> None:
        with _running(root, f"beside-{turn}") as (inbox, home, process, _):
            _announce(inbox, home / "out")
            before = _cpu(process.pid)
            beside.append(_run_job(home / "out"))
            used.append(_cpu(process.pid) - before)

    for turn in range(JOBS):
        # each runs first in half of the turns: a host that gets slower meanwhile favours neither
        for job in (job_alone, job_beside) if turn % 2 else (job_beside, job_alone):
            job(turn)
    prolog = _prolog(root)
    return [
        figure(
            "a job that computes and prints, beside job logs",
            min(beside) * 1e3,
            "ms",
            against=("alone", min(alone) * 1e3),
            most_times=1.02,
        ),
        figure("CPU of job logs beside this job", statistics.median(used) * 1e3, "ms"),
        figure("prolog: from start to end", prolog * 1e3, "ms"),
    ]


def _run_job(path: Path) -> float:
    """Seconds of a job with one process that computes and prints."""
    steps = (
        "import hashlib\nfor n in range(2500):\n"
        "    text = hashlib.sha256(b'x' * 300000).hexdigest()\n    print('step', n, text * 14)\n"
    )
    with path.open("wb") as out:
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", steps], stdout=out, check=True)
        return time.perf_counter() - start


def _prolog(root: Path) -> float:
    """Seconds of one run of the prolog: a median."""
    folder = root / "prolog"
    folder.mkdir()
    environment = {
        "PATH": os.environ["PATH"],
        "SLURM_LOGS_DIR": str(folder),
        "SLURM_SCRIPT_CONTEXT": "prolog_slurmd",
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_UID": "1",
        "SLURM_JOB_NODELIST": "w-0",
        "SLURM_JOB_STDOUT": "slurm-%j.out",
    }
    walls = []
    for _ in range(16):
        start = time.perf_counter()
        subprocess.run(["sh", str(SCRIPT)], env=environment, check=True)
        walls.append(time.perf_counter() - start)
    return statistics.median(walls)
