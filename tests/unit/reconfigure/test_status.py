"""What `reconfigure` serves, and to whom: `sidecars.reconfigure.status`."""

import dataclasses
import http.client
import json
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus

import pytest

from sidecars.contract.signature import Request, authorization
from sidecars.contract.status import Rejection, Stage, decode
from sidecars.reconfigure.fileset import Id
from sidecars.reconfigure.states import Phase, Rejected, State
from sidecars.reconfigure.status import CONNECTIONS, Server, ask_to_yield, status_of
from sidecars.slurm import tokens
from sidecars.slurm.diagnosis import Culprit

NOW = 1_700_000_000.0
KEY = b"k" * 32
POD = "slurm-controller-1"
SECONDS = 60.0
"""For an answer that comes, at any speed of the host."""

A, B = Id("a" * 64, "k"), Id("b" * 64, "k")
STATE = State(
    phase=Phase.SETTLED,
    installed=A,
    running=A,
    accepted=A,
    rejected=Rejected(B, Stage.DRY_RUN, Culprit("no such key", "slurm.conf", 3), 5.0),
    since=5.0,
)


@dataclass
class Slurmctld:
    """One that can be ended. `why_not`: why it won't end."""

    why_not: str = ""
    ended: int = 0

    def end(self) -> str:
        self.ended += not self.why_not
        return self.why_not


@pytest.fixture
def slurmctld() -> Slurmctld:
    """The slurmctld of the server's pod."""
    return Slurmctld()


@pytest.fixture
def server(slurmctld: Slurmctld) -> Iterator[Server]:
    """A server on loopback."""
    found = Server("127.0.0.1", 0, POD, lambda: KEY, lambda: NOW, slurmctld.end)
    yield found
    found.close()


def test_it_is_served_at_an_address_of_ipv6(slurmctld: Slurmctld) -> None:
    server = Server("::1", 0, POD, lambda: KEY, lambda: NOW, slurmctld.end)
    try:
        with socket.create_connection(("::1", server.port), timeout=SECONDS) as client:
            client.sendall(b"GET /started HTTP/1.0\r\n\r\n")
            assert client.recv(100).startswith(b"HTTP/1.0 503")
    finally:
        server.close()


def ask(server: Server, path: str, signed: str = "", method: str = "GET") -> tuple[int, bytes]:
    """Status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=SECONDS)
    try:
        connection.request(method, path, headers={"Authorization": signed} if signed else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def signed(method: str, path: str, pod: str = POD) -> str:
    """The header of such a request."""
    return authorization(Request(method, path, pod), KEY, NOW)


def test_the_operator_gets_everything(server: Server) -> None:
    server.publish(status_of(STATE, B, "", lambda at: at + NOW))
    status, body = ask(server, "/status", signed("GET", "/status"))
    assert status == HTTPStatus.OK
    report = decode(json.loads(body))
    assert (report.candidate, report.accepted, report.running) == (B.config, A.config, A.config)
    assert report.rejected == Rejection(
        B.config, Stage.DRY_RUN, "slurm.conf", 3, "no such key", final=True
    )


def test_nobody_else_is(server: Server) -> None:
    server.publish(status_of(STATE, B, "", lambda at: at))
    refused = (
        "",
        "nonsense",
        f"Bearer {tokens.sign(KEY, 'slurm', 60, NOW)}",
        authorization(Request("GET", "/status", POD), b"other", NOW),
        signed("POST", "/yield"),
        signed("GET", "/status", "slurm-controller-0"),
    )
    assert [ask(server, "/status", header) for header in refused] == [
        (HTTPStatus.UNAUTHORIZED, b"")
    ] * len(refused)


def test_a_request_that_was_overheard_is_refused(server: Server, slurmctld: Slurmctld) -> None:
    server.publish(status_of(STATE, A, "", lambda at: at))
    for method, path in (("GET", "/status"), ("POST", "/yield")):
        header = signed(method, path)
        assert [ask(server, path, header, method)[0] for _ in range(2)] == [
            HTTPStatus.OK,
            HTTPStatus.UNAUTHORIZED,
        ]
    assert slurmctld.ended == 1


def test_idle_connections_take_a_bounded_number_of_threads_and_keep_nobody_out(
    server: Server,
) -> None:
    server.publish(status_of(STATE, A, "", lambda at: at))
    before = threading.active_count()
    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(3 * CONNECTIONS)]
    try:
        assert ask(server, "/started") == (HTTPStatus.OK, b"")
        assert threading.active_count() - before <= CONNECTIONS
        idle[0].settimeout(5)
        assert idle[0].recv(1) == b"", "the oldest connection was not ended"
    finally:
        for connection in idle:
            connection.close()


def test_the_primarys_sidecar_has_slurmctld_end(server: Server, slurmctld: Slurmctld) -> None:
    server.publish(status_of(STATE, A, "", lambda at: at))
    assert ask_to_yield("127.0.0.1", server.port, POD, KEY, NOW) == ""
    assert slurmctld.ended == 1


def test_the_primarys_sidecar_gets_the_reason_why_slurmctld_does_not_end(
    server: Server, slurmctld: Slurmctld
) -> None:
    server.publish(status_of(STATE, A, "", lambda at: at))
    slurmctld.why_not = "the container check took no request for 20 s"
    assert slurmctld.why_not in ask_to_yield("127.0.0.1", server.port, POD, KEY, NOW)
    assert "refused" in ask_to_yield("127.0.0.1", 1, POD, KEY, NOW)
    assert "the JWT key is empty" in ask_to_yield("127.0.0.1", server.port, POD, b"", NOW)


def test_the_primarys_sidecar_need_not_wait_while_slurmds_are_watched(
    server: Server, slurmctld: Slurmctld
) -> None:
    server.publish(status_of(dataclasses.replace(STATE, phase=Phase.WATCH), A, "", lambda at: at))
    assert ask_to_yield("127.0.0.1", server.port, POD, KEY, NOW) == ""
    assert slurmctld.ended == 1


@pytest.mark.parametrize(
    "phase", [phase for phase in Phase if phase not in (Phase.SETTLED, Phase.WATCH)]
)
def test_slurmctld_does_not_end_while_a_configuration_is_brought_in(
    server: Server, slurmctld: Slurmctld, phase: Phase
) -> None:
    server.publish(status_of(dataclasses.replace(STATE, phase=phase), A, "", lambda at: at))
    assert "a configuration is being applied" in ask_to_yield(
        "127.0.0.1", server.port, POD, KEY, NOW
    )
    assert slurmctld.ended == 0


def test_nobody_else_has_slurmctld_end(server: Server, slurmctld: Slurmctld) -> None:
    for header in ("", signed("GET", "/status"), f"Bearer {tokens.sign(KEY, 'slurm', 60, NOW)}"):
        assert ask(server, "/yield", header, "POST") == (HTTPStatus.UNAUTHORIZED, b"")
    assert "401" in ask_to_yield("127.0.0.1", server.port, POD, b"other" * 8, NOW)
    assert ask(server, "/yield", signed("GET", "/yield"))[0] == HTTPStatus.NOT_FOUND
    assert ask(server, "/status", signed("POST", "/status"), "POST")[0] == HTTPStatus.NOT_FOUND
    assert slurmctld.ended == 0


def test_it_has_started_once_slurmctlds_folder_is_filled(server: Server) -> None:
    assert ask(server, "/started")[0] == HTTPStatus.SERVICE_UNAVAILABLE
    server.publish(status_of(State(), None, "manifest.json is not there yet", lambda at: at))
    assert ask(server, "/started")[0] == HTTPStatus.SERVICE_UNAVAILABLE
    server.publish(status_of(STATE, A, "", lambda at: at))
    assert ask(server, "/started") == (HTTPStatus.OK, b"")
    assert ask(server, "/other")[0] == HTTPStatus.NOT_FOUND


def test_slurmds_are_watched_of_a_new_configuration_and_not_of_one_that_is_restored() -> None:
    state = State(phase=Phase.WATCH, installed=B, running=B, trying=B, former=A)
    found = status_of(state, B, "", lambda at: at)
    assert (found.running, found.watching) == (B.config, True)
    assert not status_of(dataclasses.replace(state, restoring=True), B, "", lambda at: at).watching
    assert not status_of(STATE, B, "", lambda at: at).watching


def test_slurmds_that_ended_are_named_with_their_nodes() -> None:
    rejected = Rejected(
        B, Stage.SLURMD, Culprit("slurmd ended"), 5.0, daemon="slurmd", nodes=("w-0",)
    )
    found = status_of(dataclasses.replace(STATE, rejected=rejected), B, "", lambda at: at).rejected
    assert found is not None
    assert (found.stage, found.daemon, found.nodes) == (Stage.SLURMD, "slurmd", ("w-0",))


def test_what_is_installed_but_not_verified_does_not_count_as_running() -> None:
    state = State(phase=Phase.APPLY, installed=B, running=A, trying=B, former=A)
    assert status_of(state, B, "", lambda at: at).running is None
