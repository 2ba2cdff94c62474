"""The ServiceMonitor of a Controller."""

from typing import Any

import pytest

from sidecars.kube import Forbidden
from sidecars.operator.controller import monitoring
from sidecars.policy.conditions import Condition
from sidecars.workloads.resources import Controller, read
from tests.support.operator_parts import Parts

pytestmark = pytest.mark.looptime
ASKED = {"metrics": {"enabled": True, "serviceMonitor": {"enabled": True}}}


async def run(parts: Parts, **spec: Any) -> list[Condition]:
    manifest = parts.controller(**spec)
    conditions, _ = await monitoring.apply(parts.runtime, manifest, read(Controller, manifest))
    return conditions


async def test_one_that_is_asked_for_is_applied_and_shown() -> None:
    parts = Parts()
    [condition] = await run(parts, **ASKED)
    assert (condition.status, condition.reason) == ("True", "Applied")
    assert [kind for _, kind, _ in parts.requests.made] == ["ServiceMonitor"]


async def test_a_refusal_is_its_own_condition_and_stops_nothing_else() -> None:
    parts = Parts()
    parts.requests.refusals["apply ServiceMonitor"] = Forbidden(403, "Forbidden", "no")
    [condition] = await run(parts, **ASKED)
    assert (condition.status, condition.reason) == ("False", "Refused")


async def test_one_that_is_no_longer_asked_for_is_deleted_if_it_is_the_controllers_own() -> None:
    parts = Parts()
    store = parts.runtime.caches.service_monitors.store
    metadata = {
        "namespace": "slurm",
        "name": "slurm-controller",
        "uid": "m",
        "resourceVersion": "1",
    }
    store.put({"kind": "ServiceMonitor", "metadata": metadata})
    assert await run(parts) == []
    assert parts.requests.made == []
    owned = metadata | {"ownerReferences": [{"uid": "uid-of-slurm"}], "resourceVersion": "2"}
    store.put({"kind": "ServiceMonitor", "metadata": owned})
    await run(parts)
    assert parts.requests.made == [("delete", "ServiceMonitor", "slurm-controller")]
