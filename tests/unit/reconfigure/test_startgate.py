"""The start gate: the shell command of slurmctld's container against the sidecar's end of the
FIFO.
"""

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from sidecars.contract.status import StartGatePhase
from sidecars.reconfigure import main
from sidecars.reconfigure.dryrun import Host
from sidecars.reconfigure.startgate import ASK, GONE, PASSED, Server, State, looked
from sidecars.workloads import controller as render
from sidecars.workloads.assembly import find
from tests.support import builders
from tests.support.builders import controller, part
from tests.unit.reconfigure.test_handover import Slurm

SECONDS = 60.0


class Pod(Slurm):
    """A pod whose standby leads. `meanwhile` happens when that is asked to end."""

    def __init__(self, folder: Path, meanwhile: Callable[[], object] = lambda: None) -> None:
        super().__init__({"ctl-1": True})
        self.meanwhile = meanwhile
        self.published: list[State] = []
        self.changed = threading.Condition()
        self.gate = Server(folder, self, self.publish)

    def publish(self, state: State) -> None:
        with self.changed:
            self.published.append(state)
            self.changed.notify_all()

    def until(self, count: int) -> None:
        """Wait until so many states were published."""
        with self.changed:
            assert self.changed.wait_for(lambda: len(self.published) >= count, SECONDS)

    def serve(self) -> None:
        """Serve the gate in a thread."""
        threading.Thread(target=self.gate.serve, daemon=True).start()

    def ask_to_end(self, standby: Host) -> str:
        self.meanwhile()
        return super().ask_to_end(standby)

    def phases(self) -> list[StartGatePhase]:
        """Those that were published, in order."""
        return [state.phase for state in self.published]


def command(folder: Path, **slurmctld: Any) -> list[str]:
    """What the kubelet runs as slurmctld's container, with the gate's volume elsewhere."""
    of = controller(
        ha={"enabled": True},
        persistence={"enabled": True, "existingClaim": "shared"},
        slurmctld=slurmctld,
    )
    container = part(find(render.objects(of, (), builders.facts()), "StatefulSet"), "slurmctld")
    words = [*container["command"], *container["args"]]
    assert sum("/run/start-gate/ask" in word for word in words) == 1
    return [word.replace("/run/start-gate", str(folder)) for word in words]


def session(leader: int) -> list[int]:
    """The processes of a session."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(ProcessLookupError, FileNotFoundError):
            state, _, _, of = stat.read_text().rpartition(")")[2].split()[:4]
            if int(of) == leader and state != "Z":
                found.append(int(stat.parent.name))
    return found


def kill_session(leader: int) -> None:
    """Kill what the end of a container kills: `timeout` has a process group of its own, and may be
    about to fork.
    """
    while left := session(leader):
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)


@contextmanager
def started(folder: Path, **slurmctld: Any) -> Iterator["subprocess.Popen[str]"]:
    """slurmctld's container, with a stand-in for slurmctld that prints its arguments."""
    program = folder / "sbin" / "slurmctld"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "started $0 $*"\n')
    program.chmod(0o755)
    environment = {
        "PATH": f"{program.parent}:{os.environ['PATH']}",
        "SLURMCTLD_OPTIONS": "-v -L '/tmp/a b'",
    }
    process = subprocess.Popen(
        command(folder, **slurmctld),
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with process:
        try:
            yield process
        finally:
            kill_session(process.pid)


def output(process: "subprocess.Popen[str]") -> list[str]:
    """What it printed, when it has ended."""
    return process.communicate(timeout=SECONDS)[0].splitlines()


WAITING = "start gate: waiting until no standby leads"


@pytest.mark.parametrize(
    ("override", "wanted"),
    [
        ({}, "slurmctld -D -v -L /tmp/a b"),
        ({"args": ["-c", "'x  y'"]}, "slurmctld -D -v -L /tmp/a b -c x  y"),
        ({"command": ["slurmctld", "-D"], "args": ["x  y"]}, "slurmctld -D x  y"),
        (
            {"command": ["sh", "-c", "supervise() { slurmctld --systemd; }; supervise"]},
            "slurmctld --systemd",
        ),
        ({"command": ["bash", "-xc", "exec slurmctld --systemd"]}, "slurmctld --systemd"),
        ({"command": ["env", "A=b", "slurmctld"]}, "slurmctld "),
    ],
)
def test_slurmctld_starts_only_when_it_leads_alone_however_it_is_started(
    tmp_path: Path, override: dict[str, Any], wanted: str
) -> None:
    with started(tmp_path, **override) as process:

        def waits() -> None:
            with pytest.raises(subprocess.TimeoutExpired):
                process.wait(0.3)

        pod = Pod(tmp_path, waits)
        pod.serve()
        assert output(process) == [WAITING, f"started {tmp_path / 'sbin'}/{wanted}"]
    assert [name for _, name in pod.asked] == ["ctl-1"]
    assert pod.phases() == [StartGatePhase.CLOSED, StartGatePhase.ASKED, StartGatePhase.PASSED]


def test_a_sidecar_that_ends_meanwhile_lets_nothing_through(tmp_path: Path) -> None:
    with started(tmp_path) as process:
        os.mkfifo(tmp_path / ASK)
        with (tmp_path / ASK).open("wb"):
            pass
        pod = Pod(tmp_path)
        pod.serve()
        assert output(process)[1].startswith("started ")
    assert pod.asked


def test_a_container_that_waits_ends_at_once_with_its_pod(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / ASK)
    with started(tmp_path) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{WAITING}\n"
        process.terminate()
        assert process.wait(SECONDS) == 143


def test_a_container_that_gets_no_answer_ends_and_reports_why(tmp_path: Path) -> None:
    words = [word.replace("timeout 50", "timeout 0.3") for word in command(tmp_path)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=False, timeout=SECONDS)
    assert done.returncode == 1
    assert (
        done.stdout.splitlines()[-1]
        == "start gate: the container reconfigure did not answer within 50 s"
    )


def test_a_gate_that_fails_ends_the_container(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    class Broken(Pod):
        def standbys(self) -> Sequence[Host]:
            raise RuntimeError("a fault of ours")

    statuses: list[int] = []
    with started(tmp_path), pytest.raises(RuntimeError):
        main.end_with_container(Broken(tmp_path).gate.serve, statuses.append)
    assert statuses == [1]
    assert "a fault of ours" in capsys.readouterr().err


def test_while_the_standbys_are_unknown_slurmctld_waits_and_the_reason_is_reported(
    tmp_path: Path,
) -> None:
    class Unknown(Pod):
        def standbys(self) -> Sequence[Host]:
            if len(self.published) < 3:
                raise FileNotFoundError("no slurm.conf yet")
            return super().standbys()

    pod = Unknown(tmp_path)
    with started(tmp_path) as process:
        pod.serve()
        assert output(process)[1].startswith("started ")
    assert pod.published[2] == State(StartGatePhase.ASKED, "no slurm.conf yet")
    assert pod.phases() == [
        StartGatePhase.CLOSED,
        StartGatePhase.ASKED,
        StartGatePhase.ASKED,
        StartGatePhase.PASSED,
    ]


def test_a_container_that_ends_while_the_standbys_are_unknown_has_not_passed(
    tmp_path: Path,
) -> None:
    class Unknown(Pod):
        def standbys(self) -> Sequence[Host]:
            kill_session(process.pid)
            raise FileNotFoundError("no slurm.conf yet")

    with started(tmp_path) as process:
        pod = Unknown(tmp_path)
        pod.serve()
        pod.until(4)
    assert pod.phases() == [
        StartGatePhase.CLOSED,
        StartGatePhase.ASKED,
        StartGatePhase.ASKED,
        StartGatePhase.CLOSED,
    ]


def test_a_standby_that_does_not_end_is_reported_with_the_start(tmp_path: Path) -> None:
    pod = Pod(tmp_path)
    pod.stubborn = True
    with started(tmp_path) as process:
        pod.serve()
        assert output(process)[1].startswith("started ")
    assert pod.published[-1] == State(StartGatePhase.PASSED, "ctl-1 led for 20 s")


def test_a_slurmctld_that_runs_without_having_asked_is_reported(tmp_path: Path) -> None:
    pod = Pod(tmp_path)
    pod.gate.look(lambda: True)
    assert pod.phases() == [StartGatePhase.CLOSED, StartGatePhase.NOT_ASKED]
    assert "without having asked the start gate" in pod.log[-1]


def test_a_restarted_sidecar_remembers_that_the_running_slurmctld_has_asked(tmp_path: Path) -> None:
    with started(tmp_path) as process:
        Pod(tmp_path).serve()
        output(process)
    after = Pod(tmp_path)
    after.gate.look(lambda: True)
    assert after.phases() == [StartGatePhase.PASSED]


def test_a_restarted_sidecar_does_not_remember_a_slurmctld_that_had_ended(tmp_path: Path) -> None:
    (tmp_path / PASSED).touch()
    before = Pod(tmp_path)
    for answer in (True, False):
        before.gate.look(lambda answer=answer: answer)  # type: ignore[misc]
    before.time += GONE
    before.gate.look(lambda: False)
    after = Pod(tmp_path)
    after.gate.look(lambda: True)
    assert after.phases() == [StartGatePhase.CLOSED, StartGatePhase.NOT_ASKED]


def test_an_answer_of_the_slurmctld_before_does_not_count_for_the_one_that_asks(
    tmp_path: Path,
) -> None:
    pod = Pod(tmp_path)

    def late() -> bool:
        with started(tmp_path) as process:
            pod.serve()
            output(process)
        return True

    pod.gate.look(late)
    # It has not come up yet, which is no end.
    for _ in range(3):
        pod.gate.look(lambda: False)
        pod.time += GONE
    assert pod.phases() == [StartGatePhase.CLOSED, StartGatePhase.ASKED, StartGatePhase.PASSED]


def after(state: State, *answers: bool | None, apart: float = GONE) -> State:
    """The state after looks with these answers."""
    for index, answer in enumerate(answers):
        state = looked(state, answer, index * apart)
    return state


PASSED_UNANSWERED = State(StartGatePhase.PASSED)


def test_what_has_passed_stays_so_while_it_runs() -> None:
    assert (
        after(PASSED_UNANSWERED, False, False, False, True, None, True).phase
        is StartGatePhase.PASSED
    )


def test_a_slurmctld_that_ends_closes_the_gate_for_the_next() -> None:
    assert after(PASSED_UNANSWERED, True, False, False) == State()
    assert after(PASSED_UNANSWERED, True, False, False, True).phase is StartGatePhase.NOT_ASKED


def test_a_port_that_is_closed_for_an_instant_is_no_end() -> None:
    assert (
        after(PASSED_UNANSWERED, True, False, True, apart=GONE / 2).phase is StartGatePhase.PASSED
    )
    assert (
        after(PASSED_UNANSWERED, True, False, True, False, apart=GONE / 2).phase
        is StartGatePhase.PASSED
    )


def test_one_that_has_not_asked_counts_as_such_until_it_ends() -> None:
    assert after(State(), True, None, False, True, apart=GONE / 2).phase is StartGatePhase.NOT_ASKED
    assert after(State(), True, False, False) == State()


def test_an_answer_while_slurmctld_waits_is_not_its_own() -> None:
    waiting = State(StartGatePhase.ASKED)
    assert after(waiting, True, False, False) == waiting
