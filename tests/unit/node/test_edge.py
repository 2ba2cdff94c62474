"""How the state machine's calls reach Slurm and what becomes of the answers; and what is read of
the `stop` file.
"""

import json
import os
import socket
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from sidecars.contract import extra, shape
from sidecars.node import edge
from sidecars.node.records import (
    INVALID_STOP,
    Absent,
    Call,
    Claim,
    Delete,
    Done,
    Down,
    Drain,
    Fault,
    Listening,
    Named,
    Names,
    Probe,
    Read,
    Record,
    Stop,
    Undrain,
)
from sidecars.slurm import protocol
from sidecars.slurm.errors import (
    AuthenticationError,
    ErrorEntry,
    NotFound,
    Rejected,
    ServerFault,
    Unreachable,
)
from tests.unit.node.simulation import node

T = TypeVar("T")


BODIES = {
    "node": '{"nodes": [{"name": "w-0", "state": ["IDLE"], "extra": "{\\"podUid\\": '
    '\\"uid-1\\"}"}]}',
    "nodes": "{}",
    "jobs": '{"jobs": [{"job_id": 17, "job_state": ["PENDING"], "required_nodes": "w-[0,3]"}], '
    '"last_update": 1}',
    "reservations": '{"reservations": [{"name": "course", "node_list": "w-[5-6]"}]}',
}


class Carrier:
    """Takes requests; reads answer with `record`, and everything fails with `fault` if it has
    one.
    """

    def __init__(self, fault: Exception | None = None) -> None:
        self.fault = fault
        self.requests: list[object] = []

    def call(self, request: protocol.Request[T], *, timeout: float | None = None) -> T:
        assert timeout is not None
        self.requests.append(request)
        if self.fault is not None:
            raise self.fault
        body = BODIES[request.path.partition("/")[0]] if request.method == "GET" else "{}"
        return protocol.decode(request, 200, body.encode())


class Forgotten:
    """Counts how often the token was dropped."""

    times = 0

    def __call__(self) -> None:
        self.times += 1


def slurm(carrier: Carrier, forget: Forgotten | None = None) -> edge.Slurm:
    return edge.Slurm(
        carrier, "w-0", lambda: extra.PodFacts("uid-1", "pod-1"), forget or Forgotten()
    )


@pytest.mark.parametrize(
    ("call", "request_"),
    [
        (Claim(), protocol.update_nodes(["w-0"], extra='{"podUid":"uid-1","pod":"pod-1"}')),
        (Drain("why"), protocol.update_nodes(["w-0"], state=["DRAIN"], reason="why")),
        (Undrain(), protocol.update_nodes(["w-0"], state=["UNDRAIN"])),
        (Down("why"), protocol.update_nodes(["w-0"], state=["DOWN"], reason="why")),
        (Down(None), protocol.update_nodes(["w-0"], state=["DOWN"])),
        (Delete(), protocol.delete_node("w-0")),
    ],
    ids=lambda value: type(value).__name__,
)
def test_each_call_is_one_request_about_this_node(
    call: Call, request_: protocol.Request[None]
) -> None:
    carrier = Carrier()
    assert slurm(carrier).perform(call) == Done(call)
    assert carrier.requests == [request_]


def test_reading_gives_the_record() -> None:
    answer = slurm(Carrier()).perform(Read())
    assert isinstance(answer, Record)
    assert (answer.node.name, answer.node.states) == ("w-0", node("IDLE").states)


@pytest.mark.parametrize(
    ("former", "retained"),
    [
        (extra.PodFacts("", "", "slurm", "set-1", "ns-1"), "ns-1"),
        (extra.PodFacts("uid-0", "pod-0", "slurm", "set-1", "ns-1"), "ns-1"),
        (extra.PodFacts("", "", "slurm", "set-1"), ""),
        (extra.PodFacts("", "", "slurm", "set-2", "ns-1"), ""),
        (extra.PodFacts("", "", "other", "set-1", "ns-1"), ""),
        (None, ""),
    ],
)
def test_a_claim_retains_what_proves_the_origin_of_a_record_of_the_same_nodeset(
    monkeypatch: pytest.MonkeyPatch, former: extra.PodFacts | None, retained: str
) -> None:
    found = json.loads(BODIES["node"])
    found["nodes"][0]["extra"] = "garbage" if former is None else extra.encode(former)
    monkeypatch.setitem(BODIES, "node", json.dumps(found))
    own = extra.PodFacts("uid-1", "pod-1", "slurm", "set-1")
    carrier = Carrier()
    it = edge.Slurm(carrier, "w-0", lambda: own, Forgotten())
    it.perform(Read())
    it.perform(Claim())
    text = extra.encode(replace(own, namespace_uid=retained))
    assert carrier.requests[-1] == protocol.update_nodes(["w-0"], extra=text)


@pytest.mark.parametrize(
    ("node_name", "by"),
    [("w-0", "job 17"), ("w-5", "reservation course"), ("w-1", "")],
    ids=["job", "reservation", ""],
)
def test_who_names_a_node_is_read_from_all_jobs_and_reservations(node_name: str, by: str) -> None:
    it = edge.Slurm(Carrier(), node_name, lambda: extra.PodFacts("uid-1", "pod-1"), Forgotten())
    assert it.perform(Names()) == Named(by)


def test_a_job_that_names_the_switch_of_the_node_names_the_node(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    node, jobs = json.loads(BODIES["node"]), json.loads(BODIES["jobs"])
    node["nodes"][0]["topology"] = "fabric:spine:r1"
    jobs["jobs"][0] |= {"required_nodes": "switch{r1}", "job_state": ["PENDING"], "job_id": 19}
    monkeypatch.setitem(BODIES, "node", json.dumps(node))
    monkeypatch.setitem(BODIES, "jobs", json.dumps(jobs))
    it = edge.Slurm(
        Carrier(), node["nodes"][0]["name"], lambda: extra.PodFacts("uid-1", "pod-1"), Forgotten()
    )
    it.perform(Read())
    assert it.perform(Names()) == Named("job 19")


def test_an_unknown_node_is_absent_to_every_call() -> None:
    fault = NotFound("DELETE node/w-0", 422, (ErrorEntry(2018),))
    assert slurm(Carrier(fault)).perform(Delete()) == Absent()


def test_a_refusal_by_slurmctld_differs_from_a_failure() -> None:
    refusal = Rejected("DELETE node/w-0", 422, (ErrorEntry(2016, "Requested nodes are busy"),))
    answer = slurm(Carrier(refusal)).perform(Delete())
    assert isinstance(answer, Fault)
    assert answer.refused
    assert "busy" in answer.text


@pytest.mark.parametrize(
    "fault",
    [
        Unreachable("GET node/w-0", "refused"),
        ServerFault("GET node/w-0", 502, ()),
        OSError("no key"),
        ValueError("x"),
    ],
    ids=lambda fault: type(fault).__name__,
)
def test_whatever_goes_wrong_is_an_answer(fault: Exception) -> None:
    answer = slurm(Carrier(fault)).perform(Read())
    assert isinstance(answer, Fault)
    assert not answer.refused


def test_a_refused_token_is_dropped_and_the_remedy_named() -> None:
    forget = Forgotten()
    answer = slurm(Carrier(AuthenticationError("GET node/w-0", 511, ())), forget).perform(Read())
    assert isinstance(answer, Fault)
    assert "jwtKeyRef" in answer.text
    assert forget.times == 1


def test_a_port_listens_while_its_socket_is_open() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        assert slurm(Carrier()).perform(Probe("127.0.0.1", port)) == Listening(True)
    assert slurm(Carrier()).perform(Probe("127.0.0.1", port)) == Listening(False)


ME = os.getuid()


@pytest.fixture
def stop(tmp_path: Path) -> Path:
    """The `stop` file of a hook that has counted 3 steps, written at 100 s."""
    path = tmp_path / "hook" / "stop"
    path.parent.mkdir()
    path.write_text("812.31 3\n")
    os.utime(path, (100, 100))
    return path


def test_the_stop_file_has_the_name_of_its_hook_and_the_number_of_steps(
    tmp_path: Path, stop: Path
) -> None:
    assert edge.read_stop(tmp_path, ME, now=107.5) == Stop("812.31", 3, 7.5)


@pytest.mark.parametrize(
    "text", ["", "3\n", "812.31 many\n", "812.31 -1\n", "812.31 3", "812.31 3\n" * 20]
)
def test_a_stop_file_that_can_not_be_read_has_an_unknown_number_of_steps(
    tmp_path: Path, stop: Path, text: str
) -> None:
    stop.write_text(text)
    os.utime(stop, (100, 100))
    assert edge.read_stop(tmp_path, ME, now=107.5) == Stop("", None, 7.5)


@pytest.mark.parametrize(
    "instead", ["symbolic link", "hard link", "FIFO", "folder", "loop", "other user"]
)
def test_what_the_hook_did_not_write_is_no_stop_file_of_the_hook(
    tmp_path: Path, stop: Path, instead: str
) -> None:
    other, owner = tmp_path / "other", ME
    stop.rename(other)
    match instead:
        case "symbolic link":
            stop.symlink_to(other)
        case "hard link":
            stop.hardlink_to(other)
        case "FIFO":
            os.mkfifo(stop)
        case "folder":
            stop.mkdir()
        case "loop":
            stop.symlink_to(stop)
        case _:
            other.rename(stop)
            owner = ME + 1
    assert edge.read_stop(tmp_path, owner, now=100) == INVALID_STOP


def test_the_age_of_a_file_from_the_future_is_negative(tmp_path: Path, stop: Path) -> None:
    assert edge.read_stop(tmp_path, ME, now=40) == Stop("812.31", 3, -60)


def test_no_stop_file_is_no_stop(tmp_path: Path) -> None:
    assert edge.read_stop(tmp_path) is None


def test_what_slurmd_will_register_is_unknown_until_register_has_written_it(tmp_path: Path) -> None:
    assert edge.read_shape(tmp_path) is None
    (tmp_path / "shape").write_bytes(b"\xff")
    assert edge.read_shape(tmp_path) is None
    (tmp_path / "shape").write_text(shape.encode(shape.Shape(8, 16000, "")))
    assert edge.read_shape(tmp_path) == shape.Shape(8, 16000, "")
