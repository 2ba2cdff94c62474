"""The scripts of the images that start daemons, run with programs that stand in for those."""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import pytest

from tests.cluster.images import REPOSITORY

START = REPOSITORY / "images/slurmd/rootfs/usr/local/bin/slurmd-start"
ALIVE = REPOSITORY / "images/slurmd/rootfs/usr/local/bin/slurmd-alive"
MEMORY = REPOSITORY / "images/mariadb/rootfs/usr/local/bin/mariadb-memory"
SUPERVISE = REPOSITORY / "images/ssh/rootfs/usr/local/lib/supervise.bash"
SLURMD = """#!/bin/sh
if [ "$1" = -C ]; then
  cores="Boards=1 SocketsPerBoard=2 CoresPerSocket=4 ThreadsPerCore=2"
  echo NodeName=n CPUs=16 $cores RealMemory=64000
  echo UpTime=0-00:00:01
else
  printf '%s\\n' "$@"
fi
"""


def program(path: Path, text: str) -> None:
    """Write a file that can be executed."""
    path.write_text(text)
    path.chmod(0o755)


def started(folder: Path, options: str, **environment: str) -> list[str]:
    """The arguments that slurmd gets on a host with 8 cores, 16 threads and 64000 MiB."""
    slurmd = folder / "slurmd"
    program(slurmd, SLURMD)
    script = START.read_text().replace("/usr/sbin/slurmd", str(slurmd))
    env = {"PATH": os.environ["PATH"], "SLURMD_OPTIONS": options, **environment}
    done = subprocess.run(
        ["bash", "-c", script], env=env, cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.splitlines()


def test_arguments_are_expanded_as_a_shell_would(tmp_path: Path) -> None:
    (tmp_path / "conf").write_text("Features=a Weight=10\n")
    (tmp_path / "extra").write_text('{"podUid": "1 2"}\n')
    options = """-Z --conf "$(cat conf)" --extra "$(cat extra)" -N 'a'"$NAME" """
    assert started(tmp_path, options, NAME="b") == [
        *("-D", "-Z", "--conf", "Features=a Weight=10", "--extra", '{"podUid": "1 2"}', "-N", "ab")
    ]


def test_without_limits_nothing_is_added(tmp_path: Path) -> None:
    assert started(tmp_path, "-Z", POD_CPUS="0", POD_MEMORY="0") == ["-D", "-Z"]


def test_the_limits_of_the_pod_reserve_the_rest_of_the_host(tmp_path: Path) -> None:
    arguments = started(tmp_path, "-Z --conf 'Features=a'", POD_CPUS="4", POD_MEMORY="16000")
    assert arguments[-1] == "Features=a CoreSpecCount=6 MemSpecLimit=48000"


def test_limits_beyond_the_host_reserve_nothing(tmp_path: Path) -> None:
    assert started(tmp_path, "-Z", POD_CPUS="64", POD_MEMORY="64000") == ["-D", "-Z"]


def test_the_topology_is_added_to_a_conf_of_its_own_where_there_is_none(tmp_path: Path) -> None:
    assert started(tmp_path, "-Z", POD_TOPOLOGY="default:s1") == [
        "-D",
        "-Z",
        "--conf",
        "Topology=default:s1",
    ]


def test_what_the_conf_names_itself_is_left(tmp_path: Path) -> None:
    arguments = started(
        tmp_path, "--conf='Weight=1 corespeccount=2'", POD_CPUS="4", POD_TOPOLOGY="t"
    )
    assert arguments == ["-D", "--conf=Weight=1 corespeccount=2 Topology=t"]


@contextmanager
def session(
    words: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> Iterator[subprocess.Popen[str]]:
    """A program in a session of its own, all of which ends with the block."""
    pipe = subprocess.PIPE
    with subprocess.Popen(
        words, cwd=cwd, env=env, stdout=pipe, stderr=pipe, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            with contextlib.suppress(ProcessLookupError):  # all have ended
                os.killpg(process.pid, signal.SIGKILL)


@contextmanager
def supervisor(folder: Path, script: str) -> Iterator[subprocess.Popen[str]]:
    """A shell that runs the script with supervise.bash in the folder. It and all that it started
    end with the block.
    """
    # Tests in the background of a shell have SIGINT ignored, and bash can't trap what it was
    # started to ignore.
    words = ["env", "--default-signal=INT", "bash", "-c", f". {SUPERVISE}; {script}"]
    with session(words, cwd=folder) as process:
        yield process


def lines(stream: IO[str] | None, count: int) -> list[str]:
    """The next lines of what a supervisor prints."""
    assert stream is not None
    return [stream.readline().strip() for _ in range(count)]


def supervised(folder: Path, check: str, count: int) -> list[str]:
    """What daemons print at their start, each until the check has failed 3 times in a row; so many
    lines of it.

    A daemon never ends without being killed, and no check begins before it has printed its line.
    """
    program(folder / "daemon", "#!/bin/sh\necho run\n: >run; exec sleep infinity\n")
    begun = "until [ -e run ]; do sleep 0.01; done"
    program(folder / "check", f"#!/bin/sh\n{begun}\necho check\n{check}\n")
    script = (
        # The pause of a second is that between two daemons.
        'sleep() { [ "$1" != 1 ] || rm run; command sleep "$1"; }; '
        "check_seconds=0.05 check_failures=3; supervise --check ./check daemon ./daemon; "
        "run_until_term"
    )
    with supervisor(folder, script) as process:
        return lines(process.stdout, count)


def test_a_daemon_that_answers_no_more_is_started_again(tmp_path: Path) -> None:
    answers_twice = "test $(ls | grep -c answer) -lt 2 && : >answer$$"
    assert supervised(tmp_path, answers_twice, 7) == ["run", *["check"] * 5, "run"]


def test_a_daemon_that_answers_now_and_then_is_left_alone(tmp_path: Path) -> None:
    two_of_three_fail = "echo >>count; test $(($(wc -l <count) % 3)) = 1"
    assert supervised(tmp_path, two_of_three_fail, 20) == ["run", *["check"] * 19]


def test_a_daemon_that_has_never_answered_is_still_starting(tmp_path: Path) -> None:
    assert supervised(tmp_path, "false", 20) == ["run", *["check"] * 19]


@pytest.mark.parametrize(
    ("answer", "alive"),
    [("HTTP/1.1 204 NO CONTENT", True), ("HTTP/1.1 503 Service Unavailable", False), (None, False)],
)
def test_slurmd_is_alive_when_it_answers_at_livez(answer: str | None, alive: bool) -> None:
    asked: list[bytes] = []

    def serve(server: socket.socket) -> None:
        connection, _ = server.accept()
        with connection, connection.makefile("rb") as request:
            asked.extend(iter(request.readline, b"\r\n"))
            if answer:
                connection.sendall(f"{answer}\r\n\r\n".encode())

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, args=(server,))
        thread.start()
        port = server.getsockname()[1]
        script = ALIVE.read_text().replace("6818", str(port))
        done = subprocess.run(["bash", "-c", script], check=False, capture_output=True)
        thread.join()
    assert (done.returncode == 0) == alive
    assert asked[0] == b"GET /livez HTTP/1.1\r\n"


@pytest.mark.parametrize("received", [signal.SIGTERM, signal.SIGINT])
def test_a_daemon_that_dies_is_started_again_and_is_asked_to_end(
    tmp_path: Path, received: signal.Signals
) -> None:
    daemon = """#!/bin/bash
        trap 'echo notified; exit' TERM
        echo run
        [ -e died ] || { : >died; exit 3; }
        sleep 60 & wait
        """
    program(tmp_path / "daemon", daemon)
    with supervisor(tmp_path, "supervise daemon ./daemon; run_until_term; echo over") as process:
        assert lines(process.stdout, 2) == ["run", "run"]
        process.send_signal(received)
        assert lines(process.stdout, 2) == ["notified", "over"]


ENDING = """#!{python}
import pathlib, signal, subprocess, time

def end(*_):
    pathlib.Path("ending").touch()
    {end}
    pathlib.Path("begun").touch()

signal.signal(signal.SIGTERM, end)
while not pathlib.Path("answered").exists():
    time.sleep(0.01)
print("run", flush=True)
while True:
    signal.pause()
"""
"""A daemon that answers until TERM, and then does what {end} contains, but doesn't end."""


@pytest.mark.parametrize(
    ("end", "printed"),
    [
        ('print("notified", flush=True)', "notified"),
        (
            'subprocess.run(["sh", "-c", ": >begun; sleep 2; echo its script has ended"])',
            "its script has ended",
        ),
    ],
    ids=["at once", "when its script has ended"],
)
def test_a_daemon_that_does_not_end_when_asked_to_is_killed(
    tmp_path: Path, end: str, printed: str
) -> None:
    program(tmp_path / "daemon", ENDING.format(python=sys.executable, end=end))
    program(tmp_path / "check", "#!/bin/sh\ntouch answered\ntest ! -e ending\n")
    limits = "check_seconds=0.05 check_failures=3 stop_seconds=1"
    # The daemon's time to end begins when it is at that.
    waits = 'sleep() { [ "$1" != 1 ] || until [ -e begun ]; do command sleep 0.01; done; '
    waits += 'command sleep "$1"; }'
    script = f"{waits}; {limits}; supervise --check ./check daemon ./daemon; run_until_term"
    script += "; echo over"
    with supervisor(tmp_path, script) as process:
        assert lines(process.stdout, 1) == ["run"]
        process.terminate()
        assert lines(process.stdout, 2) == [printed, "over"]
        assert lines(process.stderr, 1) == ["daemon didn't end within 1 s of TERM; killing it"]


USERS = REPOSITORY / "images/ssh/rootfs/usr/local/lib/users.bash"


@pytest.mark.parametrize(("mounted", "added"), [("true", 1), ("false", 0)])
def test_sshd_creates_home_directories_only_where_declared_users_are_mounted(
    tmp_path: Path, mounted: str, added: int
) -> None:
    pam = tmp_path / "pam"
    pam.write_text("session required pam_limits.so\n")
    script = USERS.read_text().replace("/etc/pam.d/sshd", str(pam))
    # A container that is restarted has the line already.
    words = f"mountpoint() {{ {mounted}; }}; {script}\ncreate_homes_at_login; create_homes_at_login"
    subprocess.run(["bash", "-uc", words], check=False)
    lines = pam.read_text().splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["session", "optional", "pam_mkhomedir.so", "umask=0077"]
    ] * added


MIB = 2**20


@pytest.mark.parametrize(
    ("request_mib", "files", "cache", "log"),
    [
        (256, {}, 64, 48),
        (0, {}, 64, 48),
        (1024, {}, 448, 112),
        (256, {"memory.max": "max"}, 64, 48),
        (256, {"memory.max": str(16384 * MIB)}, 8128, 256),
        (256, {"memory/memory.limit_in_bytes": str(2048 * MIB)}, 960, 240),
        (1024, {"memory/memory.limit_in_bytes": "9223372036854771712"}, 448, 112),
    ],
)
def test_the_cache_of_mariadb_is_about_half_of_its_limit_or_request(
    request_mib: int, files: dict[str, str], cache: int, log: int, tmp_path: Path
) -> None:
    for name, content in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(f"{content}\n")
    words = ["bash", str(MEMORY), str(request_mib * MIB), str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    assert re.findall(r"=(\d+)M", done.stdout) == [str(cache), str(log)]
    assert "--innodb-log-file-size=" in done.stdout
