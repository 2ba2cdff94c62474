"""The role `node` as a whole: its loop over real files, its configuration, and the process under
SIGTERM.
"""

import http.server
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from sidecars.contract import podfiles, shape
from sidecars.contract.extra import PodFacts
from sidecars.node import main, records
from tests.cluster.waiting import until
from tests.unit.node.simulation import UID, Slurm, node

ROOT = Path(__file__).parents[3]


class VirtualSystem:
    """Virtual time over a real folder; `at` has what happens when."""

    def __init__(self, slurm: Slurm) -> None:
        self.slurm = slurm
        self.time = 0.0
        self.at: dict[float, Callable[[], None]] = {}
        self.terminated = False
        self.lines: list[str] = []

    def now(self) -> float:
        return self.time

    def wait(self, seconds: float) -> bool:
        assert seconds > 0, "the loop spins"
        assert self.time < 1000, "the loop doesn't end"
        self.time += seconds
        for moment in [moment for moment in self.at if moment <= self.time]:
            self.at.pop(moment)()
        terminated, self.terminated = self.terminated, False
        return terminated

    def perform(self, call: records.Call) -> records.Answer:
        return self.slurm.perform(call)

    def log(self, text: str) -> None:
        self.lines.append(text)

    def sigterm(self) -> None:
        self.terminated = True


def test_the_loop_takes_a_pod_from_its_start_to_its_end(tmp_path: Path) -> None:
    system = VirtualSystem(Slurm())

    def registered() -> None:
        system.slurm.record = node("MIXED")
        (tmp_path / "conf").write_text("NodeAddr=10.0.0.9")

    def hook(steps: int) -> None:
        (tmp_path / "hook").mkdir(exist_ok=True)
        (tmp_path / "hook" / "stop").write_text(f"812.31 {steps}\n")

    def last_job_ends() -> None:
        assert not (tmp_path / "released").exists()
        system.slurm.end_jobs()
        hook(0)

    system.at = {2: registered, 100: lambda: hook(1), 200: last_job_ends, 210: system.sigterm}
    settings = records.Settings(pod_uid=UID, grace=3600, hook_user=os.getuid())
    main.run(settings, tmp_path, system, lambda: 0.5)
    assert (tmp_path / "record").read_text() == "none before\n"
    assert (tmp_path / "released").read_text() == "812.31\n"
    assert system.slurm.record is None
    assert system.time < 212


def test_a_stop_file_of_another_user_than_the_hooks_drains_nothing(tmp_path: Path) -> None:
    system = VirtualSystem(Slurm(node("MIXED")))
    (tmp_path / "hook").mkdir()
    (tmp_path / "conf").write_text("NodeAddr=10.0.0.9")
    system.at = {
        2: lambda: podfiles.write(tmp_path / podfiles.STOP, "812.31 0\n"),
        100: system.sigterm,
    }
    main.run(
        records.Settings(pod_uid=UID, grace=3600, hook_user=os.getuid() + 1),
        tmp_path,
        system,
        lambda: 0.5,
    )
    assert records.Drain() not in system.slurm.calls
    assert not (tmp_path / "released").exists()


@pytest.mark.parametrize("missing", ["SLURM_NODE_NAME", "POD_UID", "SLURMRESTD_URL"])
def test_a_missing_variable_is_named(missing: str, capsys: pytest.CaptureFixture[str]) -> None:
    environment = {
        "SLURM_NODE_NAME": "w-0",
        "POD_UID": UID,
        "SLURMRESTD_URL": "http://slurm-restapi:6820",
    }
    del environment[missing]
    assert main.main((), environment=environment) == 2
    assert missing in capsys.readouterr().err


@pytest.mark.parametrize("text", ["1h", "-1", "1.5"])
def test_a_grace_that_is_no_number_of_seconds_is_refused(
    text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = {
        "SLURM_NODE_NAME": "w-0",
        "POD_UID": UID,
        "SLURMRESTD_URL": "http://slurm-restapi:6820",
        "TERMINATION_GRACE_SECONDS": text,
    }
    assert main.main((), environment=environment) == 2
    assert f"TERMINATION_GRACE_SECONDS is '{text}'" in capsys.readouterr().err


def test_arguments_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--help"], environment={}) == 2
    assert "'--help'" in capsys.readouterr().err


def test_a_claim_repeats_what_register_wrote_of_this_pod(tmp_path: Path) -> None:
    environment = {
        "SLURM_NODE_NAME": "w-0",
        "POD_UID": UID,
        "SLURMRESTD_URL": "http://slurm-restapi:6820",
        "SLURM_NODE_DIR": str(tmp_path),
        "NODESET_UID": "ns-0",
    }
    _, slurm = main.configure(environment)
    assert slurm.facts() == PodFacts(UID, nodeset_uid="ns-0")
    (tmp_path / "extra").write_text(
        json.dumps({"podUid": UID, "pod": "pod-1", "nodeSetUid": "ns-1"})
    )
    assert slurm.facts() == PodFacts(UID, "pod-1", nodeset_uid="ns-1")
    (tmp_path / "extra").write_text(json.dumps({"podUid": "uid-0", "pod": "pod-0"}))
    assert slurm.facts() == PodFacts(UID, nodeset_uid="ns-0")


class Slurmrestd(http.server.ThreadingHTTPServer):
    """One node's record over HTTP; remembers what was asked and with which token."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[str] = []
        self.tokens: list[str] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(http.server.BaseHTTPRequestHandler):
    server: Slurmrestd

    def _answer(self) -> None:
        self.server.asked.append(f"{self.command} {self.path.rpartition('/')[2]}")
        self.server.tokens.append(self.headers["X-SLURM-USER-TOKEN"])
        self.rfile.read(int(self.headers["Content-Length"] or 0))
        nodes = [{"name": "w-0", "state": ["IDLE"], "extra": json.dumps({"podUid": UID})}]
        answer = {"nodes": nodes, "jobs": [], "reservations": [], "last_update": 1, "errors": []}
        body = json.dumps(answer).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815 - names that http.server calls

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
        pass


@pytest.fixture
def slurmrestd() -> Iterator[Slurmrestd]:
    with Slurmrestd() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


ROLE = """
import sys
from sidecars.__main__ import main
from sidecars.node import departing, edge

edge.CALL_SECONDS = edge.NAMES_SECONDS = departing._DEPART_SECONDS = 600.0
sys.exit(main(["node"]))
"""
"""The role, which waits for this process's answers at any speed of the host."""


def test_sigterm_ends_the_process_after_the_record_is_deleted(
    tmp_path: Path, slurmrestd: Slurmrestd
) -> None:
    key = tmp_path / "jwt.key"
    key.write_text("a-secret-key")
    (tmp_path / podfiles.SHAPE).write_text(shape.encode(shape.Shape()))
    environment = {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "SLURM_NODE_NAME": "w-0",
        "POD_UID": UID,
        "SLURMRESTD_URL": slurmrestd.url,
        "SLURM_NODE_DIR": str(tmp_path),
        "SLURM_JWT_KEY_FILE": str(key),
        "SLURMD_PORT": "1",
    }
    command = [sys.executable, "-c", ROLE]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as role:
        until(
            lambda: (tmp_path / "record").exists() or role.poll() is not None,
            "a word about the record",
            60,
        )
        role.send_signal(signal.SIGTERM)
        output, _ = role.communicate(timeout=60)
    assert role.returncode == 0, output
    assert output == "node: deleted the record\n"
    about_it = [asked for asked in slurmrestd.asked if asked.endswith("w-0")]
    assert about_it == ["GET w-0", "GET w-0", "DELETE w-0"]
    assert "a-secret-key" not in output
    assert slurmrestd.tokens[0] not in output
