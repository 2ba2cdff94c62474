"""The role `simulate`: its command line, the file that it starts from, and the control endpoint."""

import json
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import aiohttp
import pytest

from sidecars.simulate import SlurmModel
from sidecars.simulate.control import ControlError, apply
from sidecars.simulate.initial import InitialError, fill
from sidecars.simulate.main import Simulator, controlled, main, parse

ROOT = Path(__file__).parents[3]
FILE = b"""
nodes:
- {names: "n[0-1]", cpus: 8, features: [gpu]}
- {names: m0, reason: "broken fan"}
partitions:
- {name: all}
- {name: few, nodes: n0}
jobs:
- {nodes: n0, cpus: 2, time_limit: 60}
- {count: 3}
reservations:
- {name: maint, nodes: m0, minutes: 5, starts_in: 60}
"""


def test_a_file_declares_the_initial_state() -> None:
    model = SlurmModel(lambda: 1000.0)
    fill(model, FILE)
    assert set(model.nodes) == {"n0", "n1", "m0"}
    assert model.nodes["n1"].features == ["gpu"]
    assert model.states("m0") == {"IDLE", "DRAIN", "DYNAMIC_NORM"}
    assert "MIXED" in model.states("n0")
    assert len(model.jobs) == 4
    assert set(model.partitions) == {"all", "few"}
    assert model.reservations["maint"].start_time == 1060


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"nodes: [{names: 'n[0-', cpus: 1}]", r"n\[0-"),
        (b"nodes: [{name: n0}]", "name"),
        (b"nodes: [{names: n0, cpus: many}]", r"nodes\[0\]\.cpus"),
        (b"jobs: [{nodes: n7}]", "'n7'"),
        (b"a: [", "YAML|yaml|expected"),
        (b"\xff\xfe\x00", "."),
    ],
)
def test_a_bad_file_is_refused_with_the_place(text: bytes, message: str) -> None:
    with pytest.raises(InitialError, match=message):
        fill(SlurmModel(), text)


def test_an_action_changes_the_model() -> None:
    model = SlurmModel()
    apply(model, "register", b'{"nodes": "n[0-2]"}')
    job = apply(model, "start-job", b'{"nodes": "n0"}')["job"]
    apply(model, "suspend-job", json.dumps({"job": job}).encode())
    assert model.jobs[job].states == {"SUSPENDED"}
    apply(model, "end-job", json.dumps({"job": job}).encode())
    apply(model, "vanish", b'{"nodes": "n1"}')
    assert "DOWN" in model.states("n1")
    apply(model, "silence", b'{"nodes": "n2"}')
    assert "NOT_RESPONDING" in model.states("n2")
    apply(model, "lose", b'{"nodes": "n2"}')
    assert set(model.nodes) == {"n0", "n1"}
    assert len(apply(model, "submit-job", b'{"count": 2}')["jobs"]) == 2
    apply(model, "fault", b'{"fault": "server-error", "times": 1, "path": "nodes/"}')
    assert model.handle("GET", "/slurm/v0.0.45/nodes/").status == 500
    assert model.handle("GET", "/slurm/v0.0.45/nodes/").status == 200
    apply(model, "slurmdbd", b'{"up": false}')
    assert model.handle("GET", "/slurmdb/v0.0.45/accounts/").status == 502
    apply(model, "restart", b'{"lost_state": true}')
    assert not model.nodes
    assert len(apply(model, "calls", b"")["calls"]) == 3


@pytest.mark.parametrize(
    ("action", "body", "message"),
    [
        ("explode", b"", "'explode'"),
        ("fault", b'{"fault": "gremlin"}', "'gremlin'.*hang"),
        ("fault", b"{}", "fault"),
        ("register", b'{"nodes": "n[", "cpus": 1}', "n\\["),
        ("register", b"nonsense", "register"),
        ("vanish", b'{"nodes": "n9"}', "'n9'"),
        ("end-job", b'{"job": 9}', "9"),
    ],
)
def test_a_bad_action_is_refused_with_the_reason(action: str, body: bytes, message: str) -> None:
    with pytest.raises(ControlError, match=message):
        apply(SlurmModel(), action, body)


@pytest.mark.parametrize(
    "arguments",
    [["--listen", "nowhere"], ["--versions", "v0.0.1"], ["--control", "host:99999"], ["--what"]],
)
def test_a_bad_command_line_is_a_usage_error(arguments: list[str]) -> None:
    with pytest.raises(SystemExit):
        parse(arguments)


def test_a_file_that_isnt_there_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["--model", str(tmp_path / "none.yaml")]) == 1
    assert "none.yaml" in capsys.readouterr().err


def _post(url: str, action: str, body: object) -> None:
    request = urllib.request.Request(f"{url}/{action}", json.dumps(body).encode(), method="POST")  # noqa: S310
    with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310 - loopback
        assert response.status == 200


def test_a_fault_replaces_only_the_answers_to_its_method_below_its_path() -> None:
    model = SlurmModel()
    apply(model, "fault", b'{"fault": "server-error", "method": "GET", "path": "jobs/"}')
    statuses = [
        model.handle(method, f"/slurm/v0.0.45/{path}", body).status
        for method, path, body in (
            ("GET", "nodes/", None),
            ("POST", "jobs/", b"{}"),
            ("GET", "jobs/", None),
        )
    ]
    assert statuses[0] == 200
    assert statuses[1] != 500
    assert statuses[2] == 500


async def test_connections_are_refused_for_a_day_at_most() -> None:
    model, local = SlurmModel(), ("127.0.0.1", 0)
    simulator = Simulator(model, local)
    await simulator.open()
    async with controlled(model, simulator, local) as url, aiohttp.ClientSession() as session:
        statuses = [
            (await session.post(f"{url}/refuse", json={"seconds": seconds})).status
            for seconds in (86_401, -1, 86_400, 0)
        ]
    await simulator.stop()
    assert statuses == [400, 400, 200, 200]


def test_the_process_serves_until_it_is_asked_to_stop(tmp_path: Path) -> None:
    (tmp_path / "model.yaml").write_bytes(FILE)
    command = [
        sys.executable,
        "-m",
        "sidecars",
        "simulate",
        "--listen",
        "127.0.0.1:0",
        "--control",
        "127.0.0.1:0",
    ]
    with subprocess.Popen(
        [*command, "--model", str(tmp_path / "model.yaml")],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as role:
        assert role.stdout is not None
        urls = [re.findall(r"http://[0-9.:]+", role.stdout.readline())[0] for _ in range(2)]
        request = urllib.request.Request(  # noqa: S310
            f"{urls[0]}/slurm/v0.0.45/nodes/", headers={"X-SLURM-USER-TOKEN": "t"}
        )
        with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310 - loopback
            assert len(json.load(response)["nodes"]) == 3
        _post(urls[1], "lose", {"nodes": "n1"})
        with urllib.request.urlopen(request, timeout=60) as response:  # noqa: S310 - loopback
            assert len(json.load(response)["nodes"]) == 2
        _post(urls[1], "refuse", {"seconds": 600})
        with pytest.raises(urllib.error.URLError, match="refused"):
            urllib.request.urlopen(request, timeout=60)  # noqa: S310 - loopback
        role.send_signal(signal.SIGTERM)
        assert role.wait(timeout=60) == 0
