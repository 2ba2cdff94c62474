"""Which changes are sent together."""

from typing import Any

from sidecars.bridge.effects import REPORTS_SECONDS, Effects
from sidecars.policy.bridge.records import Action, Cancel, GroupKey, Pod, Report, Why

REPORT = Report(Pod("u", "team", "p", GroupKey("team", "u")), Why.WAITING, "Slurm job 1 waits")
CANCEL = Cancel(1, "none of its pods exists")


class Recorded(Effects):
    """Sends nothing."""

    def __init__(self, clock: list[float]) -> None:
        nothing: Any = None
        super().__init__(*[nothing] * 6, now=lambda: clock[0], wall=lambda: 0.0, wake=lambda: None)
        self.sent: list[Action] = []

    async def _apply(self, action: Action) -> None:
        self.sent.append(action)


async def test_conditions_are_written_beside_other_changes_every_few_seconds_alone() -> None:
    clock = [100.0]
    effects = Recorded(clock)
    await effects.apply([REPORT, CANCEL])
    await effects.apply([REPORT, CANCEL])
    assert effects.sent == [REPORT, CANCEL, CANCEL]
    await effects.apply([REPORT])
    assert effects.sent[3:] == [REPORT]
    clock[0] += REPORTS_SECONDS
    await effects.apply([REPORT, CANCEL])
    assert effects.sent[4:] == [REPORT, CANCEL]
