"""The operator's own status writes."""

import asyncio

from sidecars.custom_resources import NODESETS
from sidecars.kube import Manifest
from sidecars.policy.conditions import Condition
from sidecars.policy.reasons import Ready
from tests.support.virtual_time import run
from tests.support.world.world import NODESET, world


def test_an_own_status_that_the_watch_shows_late_is_recognized_and_a_foreign_one_is_not() -> None:
    async def scenario() -> None:
        async with world(1) as w:
            w.nodeset("echoed", 1)
            await w.run(10)
            status, own_writes = w.operator().runtime.status, w.operator().runtime.own_writes

            def live() -> Manifest:
                return w.api.get(NODESET, "slurm", "echoed") or {}

            manifest, seen = live(), []
            for reason in (Ready.STARTING, Ready.UPDATING):
                await status.report(NODESETS, manifest, [Condition("Ready", "False", reason, "")])
                seen.append(live())
            w.faults.slow = 1.0
            last = asyncio.create_task(
                status.report(
                    NODESETS, manifest, [Condition("Ready", "False", Ready.PODS_NOT_READY, "")]
                )
            )
            await w.run(0.5)
            assert not last.done()
            assert [it["status"]["conditions"][0]["reason"] for it in (*seen, live())] == [
                "Starting",
                "Updating",
                "PodsNotReady",
            ]
            assert all(map(own_writes.is_reported, (*seen, live())))
            await last
            assert all(map(own_writes.is_reported, (*seen, live())))
            w.api.change(NODESET, "slurm", "echoed", {"status": {"readyReplicas": 7}}, status=True)
            assert not own_writes.is_reported(live())

    run(scenario())
