"""A primary that comes back while a standby leads, in virtual time."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

import pytest

from sidecars.reconfigure import handover
from sidecars.reconfigure.dryrun import Host

FIRST, SECOND, THIRD = (Host(f"ctl-{i}", f"ctl-{i}.internal") for i in range(3))
SAVING = 0.5
"""Seconds that a slurmctld which was asked to end gives no answer for."""


@dataclass
class Slurm:
    """Others behind a primary. `leads`: what each reports of itself; a missing one doesn't exist. A
    standby that leads ends when it is asked to, unless it is `stubborn`.
    """

    reports: dict[str, bool | None]
    stubborn: bool = False
    why_not: str = ""
    time: float = 100.0
    asked: list[tuple[float, str]] = field(default_factory=list)
    log: list[str] = field(default_factory=list)
    began: float | None = None

    def standbys(self) -> Sequence[Host]:
        return (SECOND, THIRD)

    def leads(self, standby: Host) -> bool | None:
        if self.began is not None and not self.stubborn:
            return False if self.time >= self.began + SAVING else None
        return self.reports.get(standby.name, False)

    def ask_to_end(self, standby: Host) -> str:
        self.asked.append((self.time, standby.name))
        if not self.why_not:
            self.began = self.time
        return self.why_not

    def now(self) -> float:
        return self.time

    def pause(self, seconds: float) -> None:
        self.time += seconds

    def log_line(self, text: str) -> None:
        self.log.append(text)


def test_only_the_first_slurmctld_has_standbys_behind_it() -> None:
    hosts = [FIRST, SECOND, THIRD]
    assert list(handover.behind(hosts, "ctl-0")) == [SECOND, THIRD]
    assert list(handover.behind(hosts, "ctl-1")) == []
    assert list(handover.behind([], "ctl-0")) == []


def test_where_no_standby_leads_slurmctld_starts_at_once_and_none_is_ended() -> None:
    slurm = Slurm({"ctl-1": False})
    assert handover.lead_alone(slurm) == ""
    assert (slurm.time, slurm.asked, slurm.log) == (100.0, [], [])


@pytest.mark.parametrize("leader", ["ctl-1", "ctl-2"])
def test_a_standby_that_leads_ends_first(leader: str) -> None:
    slurm = Slurm({leader: True})
    assert handover.lead_alone(slurm) == ""
    assert slurm.asked == [(100.0, leader)]
    assert slurm.time >= 100.0 + SAVING
    assert slurm.log[0].startswith(f"{leader} leads: ")


def test_one_that_still_leads_is_asked_again_and_slurmctld_starts_after_a_while() -> None:
    slurm = Slurm({"ctl-1": True}, stubborn=True)
    assert handover.lead_alone(slurm) == "ctl-1 led for 20 s"
    times = [at for at, _ in slurm.asked]
    assert min(b - a for a, b in itertools.pairwise(times)) >= handover.AGAIN
    assert handover.LIMIT <= slurm.time - 100.0 < handover.LIMIT + 1
    assert slurm.log[-1].startswith("ctl-1 led for 20 s")


def test_why_it_does_not_end_is_reported() -> None:
    slurm = Slurm({"ctl-1": True}, why_not="ctl-1.internal: Connection refused")
    handover.lead_alone(slurm)
    assert "ctl-1.internal: Connection refused" in slurm.log[0]


def test_one_that_reports_nothing_is_waited_for_a_while_and_not_ended() -> None:
    slurm = Slurm({"ctl-1": None})
    assert handover.lead_alone(slurm) == "ctl-1 did not report whether it leads for 10 s"
    assert handover.SILENT <= slurm.time - 100.0 < handover.SILENT + 1
    assert slurm.asked == []
    assert slurm.log == [
        "ctl-1 did not report whether it leads for 10 s; slurmctld starts, and asks it for control"
    ]
