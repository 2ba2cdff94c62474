"""Which slurmctld pods are asked for their status, and when, in virtual time."""

import asyncio
from collections.abc import Mapping
from typing import Any

from sidecars.contract.status import StartGate, StartGatePhase, Status, encode
from sidecars.operator.controller.statuses import Statuses
from sidecars.policy import gate
from sidecars.policy.gate import Pod, Published
from tests.support.virtual_time import run

KEY = ("slurm", "slurm")
OLD, NEW = Published("a" * 64, "old"), Published("b" * 64, "new")
POD = Pod("ctl-0", "uid/0/True", "10.0.0.1", askable=True, nudge="")


def settled(published: Published, phase: StartGatePhase | None = None) -> Status:
    """What a pod reports when nothing is outstanding; `phase`: of its start gate, None for a pod without one."""
    sha256, start_gate = published.sha256, StartGate(phase) if phase is not None else None
    return Status(candidate=sha256, accepted=sha256, running=sha256, start_gate=start_gate)


class Sidecar:
    """Answers for `reconfigure`, in the loop's time."""

    def __init__(self, status: Status) -> None:
        self.status = status
        self.asked: list[float] = []
        self.changes = 0
        clock = asyncio.get_running_loop().time
        self.statuses = Statuses(lambda _: b"j" * 32, self.changed, clock, clock, self.fetch)

    def changed(self, key: tuple[str, str]) -> None:
        assert key == KEY
        self.changes += 1

    async def fetch(self, _address: str, _token: str) -> Mapping[str, Any]:
        self.asked.append(asyncio.get_running_loop().time())
        return encode(self.status)

    def reported(self) -> Status | None:
        """What is known of the pod."""
        return self.statuses.known(KEY)[POD.name].report


def test_a_pod_without_a_start_gate_is_asked_until_nothing_is_outstanding() -> None:
    async def scenario() -> None:
        sidecar = Sidecar(settled(OLD))
        sidecar.statuses.want(KEY, NEW, [POD])
        await asyncio.sleep(5)
        sidecar.status = settled(NEW)
        await asyncio.sleep(5)
        asked = len(sidecar.asked)
        assert sidecar.reported() == sidecar.status
        await asyncio.sleep(3600)
        assert len(sidecar.asked) == asked

    run(scenario())


def test_a_slurmctld_that_is_started_again_past_its_start_gate_is_noticed() -> None:
    async def scenario() -> None:
        sidecar = Sidecar(settled(NEW, StartGatePhase.PASSED))
        sidecar.statuses.want(KEY, NEW, [POD])
        await asyncio.sleep(3600)
        assert len(sidecar.asked) <= 3600 / gate.WATCH_SECONDS + 1
        changes = sidecar.changes
        sidecar.status = settled(NEW, StartGatePhase.NOT_ASKED)
        await asyncio.sleep(gate.WATCH_SECONDS)
        assert sidecar.reported() == sidecar.status
        assert sidecar.changes == changes + 1
        await sidecar.statuses.aclose()

    run(scenario())


def test_a_slurmctld_that_waits_at_its_start_gate_is_asked_often() -> None:
    async def scenario() -> None:
        sidecar = Sidecar(settled(NEW, StartGatePhase.ASKED))
        sidecar.statuses.want(KEY, NEW, [POD])
        await asyncio.sleep(5)
        sidecar.status = settled(NEW, StartGatePhase.PASSED)
        await asyncio.sleep(1)
        assert sidecar.reported() == sidecar.status
        await sidecar.statuses.aclose()

    run(scenario())


def test_a_change_is_asked_about_at_once_while_a_pod_is_only_watched() -> None:
    async def scenario() -> None:
        sidecar = Sidecar(settled(OLD, StartGatePhase.PASSED))
        sidecar.statuses.want(KEY, OLD, [POD])
        await asyncio.sleep(60 + gate.WATCH_SECONDS / 2)
        sidecar.status = settled(NEW, StartGatePhase.PASSED)
        sidecar.statuses.want(KEY, NEW, [POD])
        await asyncio.sleep(0.1)
        assert sidecar.reported() == sidecar.status
        await sidecar.statuses.aclose()

    run(scenario())


def test_a_controller_that_is_deleted_is_asked_about_no_more() -> None:
    async def scenario() -> None:
        sidecar = Sidecar(settled(NEW, StartGatePhase.PASSED))
        sidecar.statuses.want(KEY, NEW, [POD])
        await asyncio.sleep(60)
        sidecar.statuses.want(KEY, None, [])
        asked = len(sidecar.asked)
        await asyncio.sleep(3600)
        assert len(sidecar.asked) == asked
        assert not asyncio.all_tasks() - {asyncio.current_task()}

    run(scenario())
