"""Which changes are sent together."""

from typing import Any, cast

from sidecars.bridge.effects import MOST_AT_ONCE, MOST_SUBMISSIONS, REPORTS_SECONDS, Effects
from sidecars.bridge.memory import Memory
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

POD = Pod("u", "team", "p", GroupKey("team", "u"))
REPORT = Report(POD, Why.WAITING, "Slurm job 1 waits")
CANCEL = Cancel(1, "none of its pods exists")


class Recorded(Effects):
    """Sends nothing."""

    def __init__(self, clock: list[float]) -> None:
        nothing: Any = None
        super().__init__(*[nothing] * 7, now=lambda: clock[0], wall=lambda: 0.0, wake=lambda: None)
        self.sent: list[Action] = []

    async def _apply(self, action: Action) -> None:
        self.sent.append(action)


async def test_conditions_are_written_beside_other_changes_every_few_seconds_alone() -> None:
    clock = [100.0]
    effects = Recorded(clock)
    await effects.apply([REPORT, CANCEL])
    await effects.apply([REPORT, CANCEL])
    assert effects.sent == [CANCEL, REPORT, CANCEL]
    await effects.apply([REPORT])
    assert effects.sent[3:] == [REPORT]
    clock[0] += REPORTS_SECONDS
    await effects.apply([REPORT, CANCEL])
    assert effects.sent[4:] == [CANCEL, REPORT]


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
