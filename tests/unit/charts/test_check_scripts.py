"""Scripts of checks for what the host lacks: GPUs, NCCL and containers are stand-ins, as
programs in PATH.
"""

import contextlib
import os
import re
import socket
import subprocess
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cluster.control_plane import free_ports

SCRIPTS = Path(__file__).parents[3] / "charts" / "slurm" / "files" / "checks"
SRUN = '#!/bin/sh\nwhile [ "${1#-}" != "$1" ]; do shift; done\nexec "$@"\n'


def run(
    folder: Path, name: str, programs: dict[str, str], scripts: Path = SCRIPTS, **environment: str
) -> tuple[int, list[str]]:
    """The exit status and the lines of a script with only these programs besides the system's."""
    for program, text in programs.items():
        (folder / program).write_text(text)
        (folder / program).chmod(0o755)
    path = {
        "PATH": f"{folder}:{os.environ['PATH']}",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURMD_NODENAME": "n",
    }
    words = ["/bin/sh", str(scripts / f"{name}.sh")]
    done = subprocess.run(
        words, env={**path, **environment}, capture_output=True, text=True, timeout=100, check=False
    )
    return done.returncode, done.stdout.splitlines()


GPUS = "#!/bin/sh\necho 'GPU 0: H100'\necho 'GPU 1: H100'\n"


@pytest.mark.parametrize(
    ("programs", "gpus", "want"),
    [
        ({"nvidia-smi": GPUS}, "2", (0, ["2 GPUs answer"])),
        ({"nvidia-smi": GPUS}, "8", (1, ["2 of 8 GPUs answer"])),
        ({"nvidia-smi": "#!/bin/sh\necho lost >&2\nexit 9\n"}, "2", (1, ["nvidia-smi: lost"])),
        (
            {"nvidia-smi": GPUS, "dcgmi": "#!/bin/sh\necho x\necho PCIe: Fail\nexit 1\n"},
            "2",
            (1, ["dcgmi diag: PCIe: Fail"]),
        ),
        ({"nvidia-smi": GPUS, "dcgmi": "#!/bin/sh\n"}, "2", (0, ["2 GPUs answer"])),
    ],
)
def test_gpus_that_do_not_answer_fail(
    programs: dict[str, str], gpus: str, want: tuple[int, list[str]], tmp_path: Path
) -> None:
    assert run(tmp_path, "gpu", programs, SLURM_GPUS_ON_NODE=gpus) == want


def test_the_bandwidth_of_an_all_reduce_is_that_of_its_last_line(tmp_path: Path) -> None:
    perf = (
        "#!/bin/sh\necho '# Avg bus bandwidth    : 1.5'\necho '# Avg bus bandwidth    : 371.25'\n"
    )
    found = run(
        tmp_path, "allreduce", {"srun": SRUN, "all_reduce_perf": perf}, SLURM_GPUS_ON_NODE="8"
    )
    assert found == (0, ["measure bus_bandwidth 371.25GB/s"])


def test_an_all_reduce_that_ends_with_an_error_or_without_a_bandwidth_fails(tmp_path: Path) -> None:
    aborted = {
        "srun": SRUN,
        "own_reduce": "#!/bin/sh\necho begin\necho NCCL error: timeout\nexit 3\n",
    }
    assert run(tmp_path, "allreduce", aborted, CHECK_COMMAND="own_reduce -n 2") == (
        1,
        ["own_reduce: NCCL error: timeout"],
    )
    silent = {"own_reduce": "#!/bin/sh\necho done\n"}
    found = run(tmp_path, "allreduce", silent, CHECK_COMMAND="own_reduce")
    assert found == (1, ["own_reduce printed no average bus bandwidth"])


def test_the_start_of_a_container_is_measured(tmp_path: Path) -> None:
    status, lines = run(tmp_path, "container", {"srun": SRUN}, CHECK_IMAGE="ubuntu:24.04")
    assert status == 0
    assert lines[0].startswith("measure start_time ")
    assert lines[0].endswith("ms")
    failing = {"srun": "#!/bin/sh\necho 'no such image' >&2\nexit 1\n"}
    found = run(tmp_path, "container", failing, CHECK_IMAGE="ubuntu:24.04")
    assert found == (1, ["no container of ubuntu:24.04 starts: no such image"])


def test_what_a_folder_cannot_store_fails(tmp_path: Path) -> None:
    for name in ("disk", "filesystem"):
        status, lines = run(tmp_path, name, {}, CHECK_FOLDERS="/proc", SLURM_JOB_ID="1")
        assert (status, lines) == (1, ["/proc can't be written to"])


@pytest.mark.parametrize("name", ["disk", "filesystem"])
def test_files_that_a_user_has_put_in_a_shared_folder_are_neither_followed_nor_a_fault(
    name: str, tmp_path: Path
) -> None:
    folder, victim = tmp_path / "shared", tmp_path / "victim"
    folder.mkdir()
    victim.write_text("data")
    # The ids of jobs are easy to guess.
    (folder / ".check-7").symlink_to(victim)
    status, lines = run(tmp_path, name, {}, CHECK_FOLDERS=str(folder), SLURM_JOB_ID="7")
    assert (status, len(lines)) == (0, 1)
    assert victim.read_text() == "data"
    assert [it.name for it in folder.iterdir()] == [".check-7"]


PAIR = """#!/bin/sh
# Runs the program on both nodes of the pair, the sender after someone else has been served.
while [ "${1#-}" != "$1" ]; do shift; done
SLURMD_NODENAME=$5 "$@" &
until [ -e "$BEGIN" ]; do sleep 0.02; done
SLURMD_NODENAME=sender "$@"
wait
"""
NAMES = """#!/bin/sh
case "$*" in
  "show hostnames "*) echo a; echo b ;;
  *) echo "NodeName=$4 NodeAddr=127.0.0.1 NodeHostName=$4" ;;
esac
"""
SILENT = 100
"""More than a receiver listens to at a time."""


def ports_of(job: int) -> range:
    """The ports of a job's network check, in both directions."""
    return range(20000 + job * 20, 20000 + job * 20 + 20)


@pytest.fixture
def job() -> int:
    """The number of a job whose ports are this test's."""
    while True:
        # All of some job, unless one of them is in use.
        free = set(free_ports(2 * len(ports_of(0)) - 1))
        for number in range(500):
            if free.issuperset(ports_of(number)):
                return number


PATIENCE = {"alarm(20 ": "alarm(80 ", "now() + 10": "now() + 60", "readable(2,": "readable(20,"}
"""For the other side of a network check, which gets no CPU for a while on a busy host."""


def network(folder: Path, begin: Path, job: int) -> tuple[int, list[str]]:
    programs = {"srun": PAIR, "scontrol": NAMES}
    script = (SCRIPTS / "network.sh").read_text()
    for former, seconds in PATIENCE.items():
        assert script.count(former) == 1
        script = script.replace(former, seconds)
    (folder / "network.sh").write_text(script)
    environment = {
        "SLURM_JOB_ID": str(job),
        "SLURM_JOB_NODELIST": "a,b",
        "CHECK_SECONDS": "1",
        "BEGIN": str(begin),
    }
    return run(folder, "network", programs, folder, **environment)


def answers_to_a_stranger(port: int, begin: Path, done: threading.Event) -> list[bytes]:
    """What the receiver of a check sends to clients that come first: a wrong one, a slow one, and
    many silent ones.
    """
    while not done.is_set():
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            clients = []
            for words in (b"\0" * 32, b"x", *(SILENT * [b""])):
                clients.append(
                    stack.enter_context(socket.create_connection(("127.0.0.1", port), 60))
                )
                clients[-1].sendall(words)
            begin.touch()
            done.wait(60)
            return [it.recv(100) for it in clients]
    return []


def test_the_bandwidth_between_two_nodes_is_measured(tmp_path: Path, job: int) -> None:
    begin = tmp_path / "begin"
    begin.touch()
    status, lines = network(tmp_path, begin, job)
    assert (status, len(lines)) == (0, 1), lines
    assert re.fullmatch(r"measure bandwidth [1-9]\d*Mbit/s", lines[0])


def test_who_connects_to_a_network_check_without_its_token_is_not_taken_for_the_partner(
    tmp_path: Path, job: int
) -> None:
    begin, done = tmp_path / "begin", threading.Event()
    with ThreadPoolExecutor(1) as threads:
        stranger = threads.submit(answers_to_a_stranger, ports_of(job)[0], begin, done)
        try:
            status, lines = network(tmp_path, begin, job)
        finally:
            done.set()
        assert stranger.result() == (2 + SILENT) * [b""]
    assert (status, len(lines)) == (0, 1), lines


def test_who_listens_on_the_port_of_a_network_check_gets_neither_its_data_nor_its_place(
    tmp_path: Path, job: int
) -> None:
    begin = tmp_path / "begin"
    begin.touch()
    received: list[bytes] = []
    with (
        ThreadPoolExecutor(1) as threads,
        socket.create_server(("127.0.0.1", ports_of(job)[0])) as listener,
    ):

        def echo() -> None:
            """Answer with what was sent."""
            while True:
                try:
                    client, _ = listener.accept()
                except OSError:
                    return
                with client, contextlib.suppress(OSError):
                    received.append(client.recv(1 << 20))
                    client.sendall(received[-1])
                    received[-1] += client.recv(1 << 20)

        answers = threads.submit(echo)
        try:
            status, lines = network(tmp_path, begin, job)
        finally:
            listener.shutdown(socket.SHUT_RDWR)
        answers.result()
    assert (status, len(lines)) == (0, 1), lines
    assert received
    assert {len(it) for it in received} == {32}
