"""The loop around the state machine, what the pod template configures, and the start gate beside
the loop.
"""

import http.server
import queue
import threading
from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import pytest

from sidecars.contract.status import PORT, StartGatePhase
from sidecars.reconfigure import main, startgate
from sidecars.reconfigure.actions import (
    Action,
    Alive,
    Answer,
    Check,
    Install,
    Passed,
    Probe,
    Reconfigure,
    Taken,
)
from sidecars.reconfigure.dryrun import Host
from sidecars.reconfigure.edge import Edge, Places
from sidecars.reconfigure.fileset import Id
from sidecars.reconfigure.firststart import NEEDED, FirstStart
from sidecars.reconfigure.main import run
from sidecars.reconfigure.refusals import Refusal
from sidecars.reconfigure.states import Settings, State
from sidecars.slurm import health
from tests.unit.reconfigure.simulation import config


class Pod(Edge):
    """A slurmctld that takes everything, and a kubelet that brings the next files while it takes
    the ones before.
    """

    def __init__(self, first: Id, during: dict[type[Action], Id]) -> None:
        self.sets, self.problem = {}, ""
        self.lies, self.during = first, during
        self.installed: list[Id] = []
        self.reads = 0

    def version(self) -> tuple[str, ...]:
        return self.lies.config, self.lies.keys

    def candidate(self) -> Id | None:
        self.reads += 1
        return self.lies

    def good(self) -> Id | None:
        return None

    def refused(self) -> Refusal | None:
        return None

    def present(self) -> Id | None:
        return None

    def interrupted(self) -> bool:
        return False

    def forget(self, needed: set[Id]) -> None:
        pass

    def perform(self, action: Action, installed: Id | None) -> Answer | None:
        if isinstance(action, Install):
            self.installed.append(action.id)
        if len(self.installed) > 1:
            self.lies = self.during.pop(type(action), self.lies)
        answers: dict[type[Action], Answer] = {
            Check: Passed(),
            Reconfigure: Taken(),
            Probe: Alive(yes=True),
        }
        return answers.get(type(action))


class Time:
    """A clock that runs on while it is waited for, and SIGTERM after a minute; the second
    configuration at `at`.
    """

    def __init__(self, pod: Pod, second: Id, at: float = 10.0) -> None:
        self.pod, self.second, self.at = pod, second, at
        self.time = 0.0

    def now(self) -> float:
        return self.time

    def wait(self, seconds: float) -> bool:
        before, self.time = self.time, self.time + seconds
        if before < self.at <= self.time:
            self.pod.lies = self.second
        return self.time > 60

    def log_line(self, text: str) -> None:
        pass

    def publish(self, state: State, candidate: Id | None, problem: str) -> None:
        pass


@pytest.mark.parametrize("action", [Install, Reconfigure, Probe])
def test_a_configuration_that_comes_while_another_is_brought_in_is_next(
    action: type[Action],
) -> None:
    pod = Pod(config("a"), {action: config("c")})
    run(Settings(), pod, Time(pod, config("b")))
    assert pod.installed == [config("a"), config("b"), config("c")]


def test_files_are_read_again_only_when_they_have_changed() -> None:
    pod = Pod(config("a"), {})
    run(Settings(), pod, Time(pod, config("b")))
    assert pod.installed == [config("a"), config("b")]
    assert pod.reads == 2


SECONDS = 60.0
"""For what comes, at any speed of the host."""


@pytest.fixture
def slurmctld(monkeypatch: pytest.MonkeyPatch) -> Iterator[int]:
    """The port of a standby slurmctld, which answers /livez and not /readyz, and is waited for."""
    for ask in (health.answers, health.leads):
        monkeypatch.setattr(
            health, ask.__name__, lambda host, port, _, ask=ask: ask(host, port, SECONDS)
        )

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response_only(
                HTTPStatus.OK if self.path == "/livez" else HTTPStatus.SERVICE_UNAVAILABLE
            )
            self.end_headers()

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield server.server_address[1]
        server.shutdown()
        thread.join()


def first_of_two(folder: Path, port: int) -> Edge:
    """The first pod of two, whose slurmctld both listen at this port."""
    (folder / "live").mkdir()
    lines = "SlurmctldHost=ctl-0(127.0.0.1)\nSlurmctldHost=ctl-1(127.0.0.1)\n"
    (folder / "live" / "slurm.conf").write_text(lines)
    names = ("candidate", "keys", "live", "good", "check", "state")
    return Edge(Places(**{name: folder / name for name in names}, host="ctl-0", port=port))


class Quiet(main.RealSystem):
    """A system without a log and a server."""

    def __init__(self) -> None:
        pass

    def log_line(self, text: str) -> None:
        pass


def test_a_slurmctld_that_runs_beside_the_start_gate_is_published(
    tmp_path: Path, slurmctld: int
) -> None:
    peers = main.Peers(first_of_two(tmp_path, slurmctld), PORT, Quiet())
    peers.pause = lambda _: threading.Event().wait()  # type: ignore[assignment] # One look is enough.
    published: queue.Queue[startgate.State] = queue.Queue()
    main.open_start_gate(tmp_path, slurmctld, peers, published.put)
    phases = [published.get(timeout=SECONDS).phase for _ in range(2)]
    assert phases == [StartGatePhase.CLOSED, StartGatePhase.NOT_ASKED]


def test_the_peers_of_the_first_slurmctld_are_its_standbys(tmp_path: Path, slurmctld: int) -> None:
    peers = main.Peers(first_of_two(tmp_path, slurmctld), slurmctld, Quiet())
    assert list(peers.standbys()) == [Host("ctl-1", "127.0.0.1")]
    assert peers.leads(Host("ctl-1", "127.0.0.1")) is False
    assert "jwt.key" in peers.ask_to_end(Host("ctl-1", "127.0.0.1"))


def test_the_environment_of_the_pod_template_configures_it() -> None:
    environment = {"STATE_SAVE_LOCATION": "/state", "POD_NAME": "ctl-0", "POD_IP": "10.0.0.1"}
    settings, edge, host, port = main.configure(environment)
    assert (settings.live, edge.places.state, host, port) == (
        True,
        Path("/state"),
        "10.0.0.1",
        6816,
    )
    assert not main.configure(environment | {"CONFIG_UPDATE": "Recreate"})[0].live
    with pytest.raises(ValueError, match="CONFIG_UPDATE is 'Sometimes'"):
        main.configure(environment | {"CONFIG_UPDATE": "Sometimes"})


def test_a_wrong_environment_or_an_argument_ends_it(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(environment={}) == 2
    assert main.main(["--verbose"], environment={}) == 2
    assert "unexpected argument '--verbose'" in capsys.readouterr().err


def test_a_slurmctld_that_ended_in_its_first_minutes_is_looked_after_until_it_has_saved_all(
    tmp_path: Path,
) -> None:
    live, state = tmp_path / "live", tmp_path / "state"
    for folder in (live, state):
        folder.mkdir()
    (live / "slurm.conf").write_text("AccountingStorageType=accounting_storage/slurmdbd\n")
    places = Places(
        tmp_path, tmp_path, live, tmp_path, tmp_path, state, "slurm-controller-0", port=1
    )
    first_start, now = FirstStart(state, print), iter(range(10))
    looks: list[str] = []
    first_start.begin()
    (state / "clustername").write_text("slurm_slurm|4711")

    def pause(seconds: float) -> None:
        looks.append((state / "clustername").read_text())
        if len(looks) == 3:
            for name in NEEDED:
                (state / name).touch()

    main.look_after_first_start(first_start, Edge(places), lambda: next(now), pause)
    assert looks == ["slurm_slurm|4711", "slurm_slurm", "slurm_slurm", "slurm_slurm|4711"]
