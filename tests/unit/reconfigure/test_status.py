"""What `reconfigure` serves, and to whom: `sidecars.reconfigure.status`."""

import dataclasses
import http.client
import json
from collections.abc import Iterator
from dataclasses import dataclass
from http import HTTPStatus

import pytest

from sidecars.contract.status import OPERATOR_USER, PRIMARY_USER, Rejection, decode
from sidecars.reconfigure.dryrun import Culprit
from sidecars.reconfigure.fileset import Id
from sidecars.reconfigure.machine import Phase, Rejected, State
from sidecars.reconfigure.status import Server, ask_to_yield, status_of
from sidecars.slurm import tokens

NOW = 1_700_000_000.0
KEY = b"k" * 32
A, B = Id("a" * 64, "k"), Id("b" * 64, "k")
STATE = State(
    phase=Phase.SETTLED,
    installed=A,
    running=A,
    accepted=A,
    rejected=Rejected(B, "DryRun", Culprit("no such key", "slurm.conf", 3), 5.0),
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
    found = Server("127.0.0.1", 0, lambda: KEY, lambda: NOW, slurmctld.end)
    yield found
    found.close()


def ask(server: Server, path: str, token: str = "", method: str = "GET") -> tuple[int, bytes]:
    """Status and body."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=5)
    try:
        connection.request(method, path, headers={"Authorization": f"Bearer {token}"} if token else {})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_the_operator_is_told_everything(server: Server) -> None:
    server.publish(status_of(STATE, B, "", lambda at: at + NOW))
    status, body = ask(server, "/status", tokens.sign(KEY, OPERATOR_USER, 60, NOW))
    assert status == HTTPStatus.OK
    report = decode(json.loads(body))
    assert (report.candidate, report.accepted, report.running) == (B.config, A.config, A.config)
    assert report.rejected == Rejection(B.config, "DryRun", "slurm.conf", 3, "no such key", final=True)


def test_nobody_else_is(server: Server) -> None:
    server.publish(status_of(STATE, B, "", lambda at: at))
    refused = (
        "",
        "nonsense",
        tokens.sign(KEY, "slurm", 60, NOW),
        tokens.sign(b"other", OPERATOR_USER, 60, NOW),
        tokens.sign(KEY, OPERATOR_USER, 60, NOW - 61),
        tokens.sign(KEY, OPERATOR_USER, 60, NOW).rsplit(".", 1)[0] + ".",
    )
    assert [ask(server, "/status", token) for token in refused] == [(HTTPStatus.UNAUTHORIZED, b"")] * len(refused)


def test_the_primarys_sidecar_has_slurmctld_end(server: Server, slurmctld: Slurmctld) -> None:
    server.publish(status_of(STATE, A, "", lambda at: at))
    assert ask_to_yield("127.0.0.1", server.port, KEY, NOW) == ""
    assert slurmctld.ended == 1


def test_the_primarys_sidecar_is_told_why_slurmctld_does_not_end(server: Server, slurmctld: Slurmctld) -> None:
    server.publish(status_of(STATE, A, "", lambda at: at))
    slurmctld.why_not = "the container check took no request for 20 s"
    assert slurmctld.why_not in ask_to_yield("127.0.0.1", server.port, KEY, NOW)
    assert "refused" in ask_to_yield("127.0.0.1", 1, KEY, NOW)
    assert "the JWT key is empty" in ask_to_yield("127.0.0.1", server.port, b"", NOW)


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.SETTLED])
def test_slurmctld_does_not_end_while_a_configuration_is_brought_in(
    server: Server, slurmctld: Slurmctld, phase: Phase
) -> None:
    server.publish(status_of(dataclasses.replace(STATE, phase=phase), A, "", lambda at: at))
    assert "a configuration is being brought in" in ask_to_yield("127.0.0.1", server.port, KEY, NOW)
    assert slurmctld.ended == 0


def test_nobody_else_has_slurmctld_end(server: Server, slurmctld: Slurmctld) -> None:
    for token in ("", tokens.sign(KEY, OPERATOR_USER, 60, NOW), tokens.sign(KEY, "slurm", 60, NOW)):
        assert ask(server, "/yield", token, "POST") == (HTTPStatus.UNAUTHORIZED, b"")
    assert "401" in ask_to_yield("127.0.0.1", server.port, b"other" * 8, NOW)
    assert ask(server, "/yield", tokens.sign(KEY, PRIMARY_USER, 60, NOW))[0] == HTTPStatus.NOT_FOUND
    assert ask(server, "/status", tokens.sign(KEY, PRIMARY_USER, 60, NOW), "POST")[0] == HTTPStatus.NOT_FOUND
    assert slurmctld.ended == 0


def test_it_has_started_once_slurmctlds_folder_is_filled(server: Server) -> None:
    assert ask(server, "/started")[0] == HTTPStatus.SERVICE_UNAVAILABLE
    server.publish(status_of(State(), None, "manifest.json is not there yet", lambda at: at))
    assert ask(server, "/started")[0] == HTTPStatus.SERVICE_UNAVAILABLE
    server.publish(status_of(STATE, A, "", lambda at: at))
    assert ask(server, "/started") == (HTTPStatus.OK, b"")
    assert ask(server, "/other")[0] == HTTPStatus.NOT_FOUND


def test_what_is_installed_but_not_verified_does_not_count_as_running() -> None:
    state = State(phase=Phase.APPLY, installed=B, running=A, trying=B, former=A)
    assert status_of(state, B, "", lambda at: at).running is None
