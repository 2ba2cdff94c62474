"""Simulated kubelets that take their time: bound pods run, some finish, deleted ones end late."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime

from sidecars.kube import PODS, ApiError, Client, Manifest
from tests.support import kubelet
from tests.support.bridge_stays import Stays

FINISHES = 0.004
"""How probably a running pod finishes, each time."""


class Kubelets:
    """Those of all nodes but `lost`. What they did is counted in `done`."""

    def __init__(
        self,
        client: Client,
        stays: Stays,
        rng: random.Random,
        lost: AbstractSet[str],
        done: Counter[str],
        finishes: float = FINISHES,
    ) -> None:
        self._client = client
        self._stays = stays
        self._rng = rng
        self._lost = lost
        self._done = done
        self._finishes = finishes
        self._ends: dict[str, float] = {}
        """When a pod that terminates ends, by uid."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            now = time.monotonic()
            for pod in list(self._stays.pods.values()):
                node = pod["spec"].get("nodeName")
                if node and node not in self._lost:
                    # It has changed or is gone: the watch shows that soon.
                    with contextlib.suppress(ApiError):
                        await self._look(pod, now)
            await asyncio.sleep(0.2)

    async def _look(self, pod: Manifest, now: float) -> None:
        meta, status = pod["metadata"], pod["status"]
        namespace, name, uid, phase = (
            meta["namespace"],
            meta["name"],
            meta["uid"],
            status.get("phase"),
        )
        if "deletionTimestamp" in meta:
            if now >= self._ends.setdefault(uid, now + self._rng.choice((0, 1, 4))):
                await kubelet.end(self._client, namespace, name, uid=uid)
        elif phase == "Pending":
            await kubelet.run(self._client, namespace, name)
        elif phase == "Running":
            deadline = pod["spec"].get("activeDeadlineSeconds")
            begun = datetime.fromisoformat(status["startTime"])
            late = deadline is not None and (datetime.now(UTC) - begun).total_seconds() >= deadline
            if late or self._rng.random() < self._finishes:
                body = {"status": {"phase": "Failed" if late else "Succeeded"}}
                await self._client.merge_patch(PODS, namespace, name, body, subresource="status")
                self._done["pods at their time limit" if late else "pods that finish"] += 1
