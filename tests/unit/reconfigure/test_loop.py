"""The loop around the machine: what it looks at, and when."""

import pytest

from sidecars.reconfigure.edge import Edge
from sidecars.reconfigure.fileset import Id
from sidecars.reconfigure.machine import (
    Action,
    Alive,
    Answer,
    Check,
    Install,
    Passed,
    Probe,
    Reconfigure,
    Settings,
    State,
    Taken,
)
from sidecars.reconfigure.main import run
from tests.unit.reconfigure.simulation import config


class Pod(Edge):
    """A slurmctld that takes everything, and a kubelet that brings the next files while it takes the ones before."""

    def __init__(self, first: Id, during: dict[type[Action], Id]) -> None:
        self.sets, self.problem = {}, ""
        self.lies, self.during = first, during
        self.installed: list[Id] = []

    def version(self) -> tuple[str, str]:
        return self.lies.config, self.lies.keys

    def candidate(self) -> Id | None:
        return self.lies

    def good(self) -> Id | None:
        return None

    def present(self) -> Id | None:
        return None

    def forget(self, needed: set[Id]) -> None:
        pass

    def perform(self, action: Action, installed: Id | None) -> Answer | None:
        if isinstance(action, Install):
            self.installed.append(action.id)
        if len(self.installed) > 1:
            self.lies = self.during.pop(type(action), self.lies)
        answers: dict[type[Action], Answer] = {Check: Passed(), Reconfigure: Taken(), Probe: Alive(yes=True)}
        return answers.get(type(action))


class Time:
    """A clock that goes on while it is waited for, and SIGTERM after a minute; the second configuration at `at`."""

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

    def say(self, text: str) -> None:
        pass

    def publish(self, state: State, candidate: Id | None, problem: str) -> None:
        pass


@pytest.mark.parametrize("action", [Install, Reconfigure, Probe])
def test_a_configuration_that_comes_while_another_is_brought_in_is_next(action: type[Action]) -> None:
    pod = Pod(config("a"), {action: config("c")})
    run(Settings(), pod, Time(pod, config("b")))
    assert pod.installed == [config("a"), config("b"), config("c")]
