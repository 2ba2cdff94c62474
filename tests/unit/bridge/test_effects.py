"""Which changes are sent together."""

from typing import Any, cast

import msgspec

from sidecars.bridge.effects import (
    EVENTS_SECONDS,
    MANY,
    MOST_AT_ONCE,
    MOST_SUBMISSIONS,
    REPORTS_SECONDS,
    Effects,
)
from sidecars.bridge.memory import Memory
from sidecars.policy.bridge.manifests import Pod as Manifest
from sidecars.policy.bridge.records import (
    Action,
    Cancel,
    DeletePod,
    GroupKey,
    Part,
    Pod,
    Report,
    Submit,
    Why,
)
from sidecars.policy.bridge.shape import Shape
from sidecars.policy.reasons.bridge import BridgeEvent

POD = Pod("u", "team", "p", GroupKey("team", "u"))
REPORT = Report(POD, Why.WAITING, "Slurm job 1 waits")
CANCEL = Cancel(1, "none of its pods exists")
MANIFEST = msgspec.convert({"metadata": {"namespace": "team", "name": "p", "uid": "u"}}, Manifest)


class Recorded(Effects):
    """Sends nothing."""

    def __init__(self, clock: list[float]) -> None:
        nothing: Any = None
        super().__init__(*[nothing] * 7, now=lambda: clock[0], wall=lambda: 0.0, wake=lambda: None)
        self.sent: list[Action] = []

    async def _apply(self, action: Action) -> None:
        self.sent.append(action)


async def test_conditions_that_are_due_for_a_while_are_written_beside_other_changes_every_few_seconds() -> None:
    clock = [100.0]
    effects = Recorded(clock)
    assert await effects.apply([REPORT, CANCEL])
    clock[0] += REPORTS_SECONDS
    await effects.apply([REPORT, CANCEL])
    await effects.apply([REPORT, CANCEL])
    assert effects.sent == [CANCEL, CANCEL, REPORT, CANCEL]
    clock[0] += REPORTS_SECONDS
    await effects.apply([REPORT, CANCEL])
    assert effects.sent[4:] == [CANCEL, REPORT]


async def test_a_pod_that_starts_beside_others_within_seconds_gets_no_condition_before() -> None:
    clock = [100.0]
    effects = Recorded(clock)
    await effects.apply([REPORT, CANCEL])
    clock[0] += REPORTS_SECONDS
    await effects.apply([CANCEL])
    await effects.apply([REPORT, CANCEL])
    assert effects.sent == [CANCEL] * 3


async def test_conditions_are_written_at_once_while_nothing_else_is_to_do() -> None:
    effects = Recorded([100.0])
    await effects.apply([REPORT])
    assert effects.sent == [REPORT]


async def test_of_many_changes_each_has_its_turn_and_no_kind_waits_for_another() -> None:
    effects = Recorded([100.0])
    cancels = [Cancel(number, "none of its pods exists") for number in range(2 * MOST_AT_ONCE)]
    delete = DeletePod(POD, "Slurm job 1 has ended (TIMEOUT)")
    assert not await effects.apply([*cancels, delete])
    assert effects.sent == [*cancels[:MOST_AT_ONCE], delete]
    effects.sent.clear()
    assert not await effects.apply(cancels)
    assert effects.sent == cancels[MOST_AT_ONCE:]
    effects.sent.clear()
    assert await effects.apply([delete])
    assert effects.sent == [delete]


async def test_only_some_submissions_are_under_way_in_their_order() -> None:
    effects = Recorded([100.0])
    part = (Part(Shape("ada", "p"), 1),)
    submits = [Submit(GroupKey("team", f"u{number}"), part) for number in range(MOST_SUBMISSIONS + 1)]
    assert not await effects.apply(submits)
    assert effects.sent == submits[:-1]
    effects._submissions = {cast("Any", number) for number in range(MOST_SUBMISSIONS)}
    effects.sent.clear()
    assert not await effects.apply(submits)
    assert effects.sent == []


class Cancelled:
    """Notes the jobs that are cancelled."""

    def __init__(self) -> None:
        self.jobs: list[int] = []

    async def cancel(self, job_id: int) -> None:
        self.jobs.append(job_id)


async def test_a_group_whose_job_requests_too_little_gets_no_other_one_at_once() -> None:
    memory, slurm, nothing = Memory(), Cancelled(), cast("Any", None)
    parts = (nothing, cast("Any", slurm), nothing, nothing, memory, nothing, nothing)
    effects = Effects(*parts, now=lambda: 100.0, wall=lambda: 0.0, wake=lambda: None)
    await effects.apply([Cancel(7, "job 7 requests 1 tasks, and its pods need 2", rest=(8,), refused=POD.key)])
    assert slurm.jobs == [7, 8]
    assert memory.open_groups(101.0) == {POD.key}
    assert memory.open_groups(110.0) == frozenset()


class Announced(Effects):
    """Sends nothing, and has a Normal Event for each cancellation, but a Warning for that of job 0."""

    def __init__(self, clock: list[float]) -> None:
        nothing: Any = None
        self.notes: list[str] = []
        events: Any = self
        parts = (nothing, nothing, nothing, events, nothing, nothing, nothing)
        super().__init__(*parts, now=lambda: clock[0], wall=lambda: 0.0, wake=lambda: None)

    def emit(self, about: object, kind: str, reason: str, action: str, note: str) -> None:
        self.notes.append(note)

    async def _apply(self, action: Action) -> None:
        assert isinstance(action, Cancel)
        if action.job:
            self._event(MANIFEST, "Normal", BridgeEvent.RELEASED, str(action.job))
        else:
            self._event(MANIFEST, "Warning", BridgeEvent.NOT_BOUND, "0")


def cancels(*numbers: int) -> list[Action]:
    return [Cancel(number, "") for number in numbers]


async def test_events_of_few_changes_are_written_with_them() -> None:
    effects = Announced([100.0])
    assert await effects.apply(cancels(*range(1, MANY + 1)))
    assert effects.notes == [str(number) for number in range(1, MANY + 1)]


async def test_events_wait_in_their_order_while_there_are_many_changes_but_for_warnings() -> None:
    effects = Announced([100.0])
    assert not await effects.apply(cancels(*range(MANY + 1)))
    assert effects.notes == ["0"]
    assert await effects.apply(cancels(MANY + 1))
    assert effects.notes == [str(number) for number in range(MANY + 2)]


async def test_no_event_waits_for_long() -> None:
    clock = [100.0]
    effects = Announced(clock)
    first, second = range(1, MANY + 2), range(MANY + 2, 2 * MANY + 3)
    await effects.apply(cancels(*first))
    clock[0] += EVENTS_SECONDS
    await effects.apply(cancels(*second))
    assert effects.notes == [str(number) for number in first]


async def test_events_that_waited_are_written_some_at_a_time_until_none_is_left() -> None:
    effects = Announced([100.0])
    await effects.apply(cancels(*range(1, MOST_AT_ONCE + 1)))
    assert effects.notes == []
    passes = 0
    while not await effects.apply([]):
        passes += 1
        assert passes < MOST_AT_ONCE
    assert passes
    assert effects.notes == [str(number) for number in range(1, MOST_AT_ONCE + 1)]
