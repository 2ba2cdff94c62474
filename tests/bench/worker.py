"""Benchmark `worker`: what the sidecars of a worker pod cost as processes. The ceiling is an
interpreter without work.

`register` finds the record's file there, so its wait for `node` isn't in the figures. `node` has
its pod's slurmd registered and waits for the pod's end, as it does almost all its life.
"""

import asyncio
import os
import re
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

from sidecars.contract import podfiles
from sidecars.simulate import SlurmModel, serve
from tests.bench.figures import Figure, figure

ROOT = Path(__file__).parents[2]
RUNS = 15
IDLE_SECONDS = 20.0
START_SECONDS = 15.0
ROLE = (
    f"import sys; sys.path.insert(0, {str(ROOT)!r}); from sidecars.__main__ import main; status = "
    "main()"
)
NO_ROLE = "status = 0"
PRINT_MEMORY = "; print(open('/proc/self/status').read())"
LEAVE = "; raise SystemExit(status)"


def bench() -> list[Figure]:
    """The figures."""
    with TemporaryDirectory() as folder:
        return [*_register(Path(folder)), *asyncio.run(_node(Path(folder))), *_health(Path(folder))]


def _register(folder: Path) -> list[Figure]:
    (folder / podfiles.RECORD).write_text("none before\n")
    (folder / podfiles.LOG).parent.mkdir()
    environment = {
        "SLURM_NODE_DIR": str(folder),
        "POD_IP": "10.0.0.9",
        "POD_UID": "uid-0",
        "POD_NAME": "slurm-worker-slinky-0",
        "POD_NAMESPACE": "slurm",
        "KUBE_NODE_NAME": "kube-0",
        "NODESET_CONF": "Features=slinky Weight=10",
        "REGISTER_CPUS": "1",
        "REGISTER_MEMORY_MIB": "64",
    }
    role, bare = _python(folder, ROLE + LEAVE, "register"), _python(folder, NO_ROLE)
    (wall, cpu), (bare_wall, bare_cpu) = _run(role, environment), _run(bare, environment)
    memory = _peak(_python(folder, ROLE + PRINT_MEMORY, "register"), environment)
    bare_memory = _peak(_python(folder, NO_ROLE + PRINT_MEMORY), environment)
    name = "python -c pass"
    with_gpus = environment | {
        "REGISTER_GPUS": "nvidia",
        "REGISTER_GPUS_EXPECTED": "8",
        "PATH": _stub_driver(folder),
    }
    (gpu_wall, _), driver = _run(role, with_gpus), _answer_of_the_driver(with_gpus)
    gpu_memory = _peak(_python(folder, ROLE + PRINT_MEMORY, "register"), with_gpus)
    return [
        figure("register: from start to end", wall, "ms", against=(name, bare_wall), most=500),
        figure("register: CPU", cpu, "ms", against=(name, bare_cpu)),
        figure("register: peak RSS", memory, "MiB", against=(name, bare_memory), most=40),
        figure(
            "register with 8 GPUs: from start to end",
            gpu_wall,
            "ms",
            against=("the driver alone", driver),
            most=500,
        ),
        figure(
            "register with 8 GPUs: peak RSS",
            gpu_memory,
            "MiB",
            against=(name, bare_memory),
            most=40,
        ),
    ]


def _stub_driver(folder: Path) -> str:
    """A PATH with an nvidia-smi that lists eight GPUs: a driver that needs no time."""
    programs = folder / "bin"
    programs.mkdir()
    (programs / "nvidia-smi").write_text(
        f"#!/bin/sh\nexec cat {ROOT}/tests/fixtures/gpu/nvidia-smi/h100.txt\n"
    )
    (programs / "nvidia-smi").chmod(0o755)
    return f"{programs}:{os.environ['PATH']}"


def _answer_of_the_driver(environment: dict[str, str]) -> float:
    """Milliseconds of nvidia-smi alone."""
    return _run(["nvidia-smi", "-L"], environment)[0]


def _health(folder: Path) -> list[Figure]:
    """The checks of a healthy node, one run, as slurmd starts one every 30 s."""
    program = folder / "health"
    program.mkdir()
    for script in sorted((ROOT / "charts/slurm-operator/workloads").glob("health-*.sh")):
        copy = program / script.stem.removeprefix("health-")
        copy.write_text(script.read_text())
        copy.chmod(0o755)
    # Only checks that work on a host without GPUs and with any mounts.
    settings = "CHECKS='disk memory'\nDISKS='/'\nDISK_FREE_PERCENT=0\nMEMORY_FREE_PERCENT=0\n"
    (program / "settings").write_text(settings)
    environment = {
        "PATH": f"{_no_slurm(folder)}:{os.environ['PATH']}",
        "SLURM_HEALTH_STATE": str(folder / "state"),
    }
    wall, cpu = _run([str(program / "run")], environment)
    return [
        figure("health: one run of two checks", wall, "ms"),
        figure("health: CPU of one run", cpu, "ms"),
    ]


def _no_slurm(folder: Path) -> Path:
    """A scontrol that knows a healthy node: only the second run asks it."""
    programs = folder / "slurm-bin"
    programs.mkdir()
    (programs / "scontrol").write_text("#!/bin/sh\necho '   State=IDLE+DYNAMIC_NORM'\n")
    (programs / "scontrol").chmod(0o755)
    return programs


async def _node(folder: Path) -> list[Figure]:
    bare = _peak(_python(folder, NO_ROLE + PRINT_MEMORY), {})
    (folder / podfiles.RECORD).unlink()
    key = folder / "jwt.key"
    key.write_text("0123456789abcdef0123456789abcdef")
    model = SlurmModel()
    async with serve(model) as url:
        environment = {
            "SLURM_NODE_DIR": str(folder),
            "SLURM_NODE_NAME": "w-0",
            "POD_UID": "uid-0",
            "SLURMRESTD_URL": url,
            "SLURM_JWT_KEY_FILE": str(key),
            "SLURMD_PORT": "1",
        }
        command = _python(folder, ROLE + LEAVE, "node")
        process = await asyncio.create_subprocess_exec(
            *command, env=environment, stdout=subprocess.DEVNULL
        )
        try:
            deadline = time.monotonic() + START_SECONDS
            while not (folder / podfiles.RECORD).exists():
                if process.returncode is not None or time.monotonic() > deadline:
                    raise RuntimeError(
                        f"node wrote nothing about the record within {START_SECONDS:g} s, or ended"
                    )
                await asyncio.sleep(0.05)
            (folder / podfiles.CONF).write_text("NodeAddr=10.0.0.9")
            model.node_register("w-0", extra='{"podUid": "uid-0"}')
            await asyncio.sleep(2)  # what follows the start isn't idleness yet
            asked, before = len(model.calls), _cpu(process.pid)
            await asyncio.sleep(IDLE_SECONDS)
            cpu, asked = _cpu(process.pid) - before, len(model.calls) - asked
            memory = _memory(_proc(process.pid, "status"), "VmRSS")
        finally:
            if process.returncode is None:
                process.send_signal(signal.SIGKILL)
            await process.wait()
    return [
        figure("node: RSS", memory, "MiB", against=("python -c pass, peak", bare), most=40),
        figure(
            f"node: CPU while idle for {IDLE_SECONDS:g} s",
            100 * cpu / IDLE_SECONDS,
            "% of a core",
            most=0.2,
        ),
        figure("node: requests to slurmrestd while idle", asked, "requests", most=0),
    ]


def _python(folder: Path, program: str, *arguments: str) -> list[str]:
    """As in the image: isolated, and with byte code that exists already (from the second run
    on).
    """
    return [
        sys.executable,
        "-I",
        "-X",
        f"pycache_prefix={folder / 'pycache'}",
        "-c",
        program,
        *arguments,
    ]


def _run(command: list[str], environment: dict[str, str]) -> tuple[float, float]:
    """Milliseconds of wall time and of CPU of the whole process: medians, after a run that doesn't
    count.
    """
    walls, cpus = [], []
    for _ in range(RUNS + 1):
        start = time.perf_counter()
        process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        walls.append((time.perf_counter() - start) * 1e3)
        cpus.append((usage.ru_utime + usage.ru_stime) * 1e3)
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, command)
    return statistics.median(walls[1:]), statistics.median(cpus[1:])


def _peak(command: list[str], environment: dict[str, str]) -> float:
    """As the process itself reports it: wait4 includes the memory of the parent."""
    output = subprocess.run(
        command, env=environment, stdout=subprocess.PIPE, text=True, check=True
    ).stdout
    return _memory(output, "VmHWM")


def _memory(status: str, field: str) -> float:
    """MiB of a field of /proc/PID/status."""
    found = re.search(rf"^{field}:\s+([0-9]+) kB$", status, re.MULTILINE)
    if found is None:
        raise RuntimeError(f"/proc/PID/status has no {field}")
    return int(found[1]) / 1024


def _cpu(pid: int) -> float:
    """CPU seconds of a process with one thread, to the nanosecond; see proc(5)."""
    return int(_proc(pid, "schedstat").split()[0]) / 1e9


def _proc(pid: int, name: str) -> str:
    return Path(f"/proc/{pid}/{name}").read_text()
