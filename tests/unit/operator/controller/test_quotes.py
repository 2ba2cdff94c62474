"""Why daemons ended, from the logs of their containers: `sidecars.operator.controller.quotes`."""

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from sidecars.contract.status import Rejection, Stage, Status
from sidecars.kube import Forbidden
from sidecars.operator.controller import quotes
from sidecars.operator.controller.quotes import Quotes
from sidecars.policy.conditions import timestamp
from sidecars.policy.gate import Known, Pod
from sidecars.slurm.diagnosis import Culprit
from sidecars.workloads.config import ConfigSet
from tests.support.operator_parts import CONTROLLER, EPOCH, Parts

pytestmark = pytest.mark.looptime

CONFIG = ConfigSet(
    files={"slurm.conf": "ClusterName=lab\nSlurmdSpoolDir=/proc/nope\n"},
    origins={},
    binary_files={},
)
SLURMCTLD = "slurm-controller-0"
POD = Pod(SLURMCTLD, "1", "10.0.0.1", askable=True, nudge="")
SLURMD_ENDED = Rejection(
    *(CONFIG.sha256, Stage.SLURMD, "", None, "slurmd ended"),
    final=True,
    since=EPOCH,
    daemon="slurmd",
    nodes=("gone", "w-0"),
)
SLURMCTLD_ENDED = replace(SLURMD_ENDED, stage=Stage.RECONFIGURE, daemon="slurmctld", nodes=())
FATAL = "slurmd: fatal: mkdir(/proc/nope): No such file or directory\n"
FOUND = Culprit("fatal: mkdir(/proc/nope): No such file or directory", "slurm.conf", 2)


class Scene:
    """A slurmctld pod that has refused a configuration, and a worker."""

    def __init__(self, rejected: Rejection | None = SLURMD_ENDED) -> None:
        self.parts = Parts()
        self.parts.pod("w-0")
        self.rejected = rejected
        self.quotes = Quotes()
        self.logs = self.parts.requests.logs

    async def read(self) -> dict[str, Culprit]:
        report = Status(candidate=CONFIG.sha256, rejected=self.rejected)
        known = {SLURMCTLD: Known("1", report, "", 0.0)}
        return await quotes.read(self.parts.runtime, self.quotes, CONTROLLER, [POD], known, CONFIG)

    def asked(self) -> list[Any]:
        return self.parts.requests.of("log", "Pod")


async def test_slurmd_is_quoted_from_the_log_of_a_worker_that_is_left() -> None:
    scene = Scene()
    scene.logs["w-0", "slurmd", False] = FATAL
    assert await scene.read() == {SLURMCTLD: FOUND}
    [options] = scene.asked()
    assert options == {
        "since": timestamp(EPOCH - quotes.BEFORE),
        "limit": quotes.BYTES,
        "previous": False,
    }


async def test_it_is_read_once_and_stays_until_another_configuration_is_refused() -> None:
    scene = Scene()
    scene.logs["w-0", "slurmd", False] = FATAL
    await scene.read()
    scene.logs.clear()
    assert await scene.read() == {SLURMCTLD: FOUND}
    assert len(scene.asked()) == 1
    scene.rejected = None
    assert await scene.read() == {}
    scene.rejected = SLURMD_ENDED
    assert await scene.read() == {}


async def test_an_image_that_prints_nothing_is_quoted_from_its_log_file() -> None:
    scene = Scene()
    scene.logs["w-0", "logfile", False] = FATAL
    assert await scene.read() == {SLURMCTLD: FOUND}


@pytest.mark.parametrize("previous", [True, False])
async def test_slurmctld_is_quoted_from_the_container_that_ended(*, previous: bool) -> None:
    scene = Scene(SLURMCTLD_ENDED)
    scene.logs[SLURMCTLD, "slurmctld", previous] = (
        "slurmctld: fatal: open /nope: Permission denied\n"
    )
    assert (await scene.read())[SLURMCTLD].reason == "fatal: open /nope: Permission denied"


async def test_a_log_that_has_nothing_yet_is_read_again_some_times() -> None:
    scene = Scene()
    assert await scene.read() == {}
    assert (await scene.parts.woken(quotes.AGAIN + 1))["controllers"] == {CONTROLLER}
    scene.logs["w-0", "slurmd", False] = FATAL
    assert await scene.read() == {SLURMCTLD: FOUND}
    scene = Scene()
    for _ in range(quotes.TRIES):
        await scene.parts.woken(quotes.AGAIN + 1)
        await scene.read()
    assert await scene.parts.woken(quotes.AGAIN + 1) == {}
    await scene.read()
    assert len(scene.asked()) == 2 * quotes.TRIES


async def test_a_log_that_cannot_be_read_is_none() -> None:
    scene = Scene()
    scene.parts.requests.refusals["log Pod"] = Forbidden(403, "Forbidden", "no get")
    assert await scene.read() == {}


async def test_a_kubelet_that_does_not_answer_delays_nothing_for_long(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    scene = Scene()

    async def hang(*_: Any, **__: Any) -> str:
        await asyncio.sleep(1000)
        return ""

    monkeypatch.setattr(scene.parts.requests, "log", hang)
    before = asyncio.get_running_loop().time()
    assert await scene.read() == {}
    assert asyncio.get_running_loop().time() - before <= quotes.SECONDS + 1


@pytest.mark.parametrize(
    "rejected", [None, replace(SLURMD_ENDED, daemon=""), replace(SLURMD_ENDED, sha256="0" * 64)]
)
async def test_no_log_is_read_where_no_daemon_ended_on_what_is_published(
    rejected: Rejection | None,
) -> None:
    scene = Scene(rejected)
    assert await scene.read() == {}
    assert scene.asked() == []


async def test_a_controller_that_is_deleted_is_forgotten() -> None:
    scene = Scene()
    await scene.read()
    scene.quotes.forget(CONTROLLER)
    assert scene.quotes.by_pod == {}
