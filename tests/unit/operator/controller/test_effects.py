"""A decision about a Controller is applied: `sidecars.operator.controller.effects`."""

from typing import Any

import msgspec
import pytest

from sidecars import objects
from sidecars.kube import Forbidden, NotFound
from sidecars.operator.controller import effects, observe
from sidecars.operator.controller.pods import NUDGE
from sidecars.policy import failover, gate
from sidecars.policy.conditions import Condition
from sidecars.policy.reasons import ConfigurationAccepted
from sidecars.workloads.resources import Controller, read
from tests.support.operator_parts import CONTROLLER, NAMESPACE, Parts, SlurmConnection

pytestmark = pytest.mark.looptime
HA = {"ha": {"enabled": True}, "persistence": {"enabled": True}}


def slurmctld(
    parts: Parts, number: int, *, active: bool = False, since: str = "", nudge: str = ""
) -> None:
    """A pod of slurmctld, whose `reconfigure` runs."""
    labels = {"app.kubernetes.io/name": "slurmctld", "app.kubernetes.io/instance": "slurm"}
    metadata = {
        "namespace": NAMESPACE,
        "name": f"slurm-controller-{number}",
        "uid": f"c-{number}",
        **parts._version(),
        "labels": labels | ({failover.ACTIVE: "true"} if active else {}),
        "annotations": ({NUDGE: nudge} if nudge else {})
        | ({failover.ACTIVE_SINCE: since} if since else {}),
    }
    sidecar = {"name": "reconfigure", "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
    status = {"podIP": f"10.0.0.{number + 1}", "initContainerStatuses": [sidecar]}
    pod = msgspec.convert({"metadata": metadata, "spec": {}, "status": status}, objects.Pod)
    parts.runtime.caches.slurmctld_pods.store.put(pod)


async def test_slurm_is_polled_while_a_restapi_serves_it_and_no_longer() -> None:
    parts = Parts(connect=lambda *_: SlurmConnection())
    parts.keys()
    manifest = parts.controller()
    await effects.connect(parts.runtime, CONTROLLER, manifest)
    assert parts.runtime.clusters.get(CONTROLLER) is None
    parts.restapi()
    await effects.connect(parts.runtime, CONTROLLER, manifest)
    assert parts.runtime.clusters.get(CONTROLLER) is not None
    store = parts.runtime.caches.restapis.store
    store.discard(store.known()[0])
    await effects.connect(parts.runtime, CONTROLLER, manifest)
    assert parts.runtime.clusters.get(CONTROLLER) is None


async def test_a_key_that_may_not_be_read_is_returned_and_ends_no_connection() -> None:
    parts = Parts(connect=lambda *_: SlurmConnection())
    cluster = await parts.connect()
    parts.secret("slurm-auth-jwt", {"jwt.key": b"n" * 32})
    parts.requests.refusals["get Secret"] = Forbidden(403, "Forbidden", "no get")
    unread = await effects.connect(parts.runtime, CONTROLLER, parts.controller())
    assert "no get" in str(unread)
    assert parts.runtime.clusters.get(CONTROLLER) is cluster
    await parts.runtime.clusters.close()


async def follow(parts: Parts) -> list[Condition]:
    controller = read(Controller, parts.controller())
    seen = await observe.configuration(parts.runtime, controller)
    return await effects.follow(
        parts.runtime, parts.operator.controllers, CONTROLLER, controller, seen
    )


async def test_pods_are_annotated_once_for_a_configuration_that_they_may_not_have() -> None:
    parts = Parts()
    parts.keys()
    slurmctld(parts, 0)
    await follow(parts)
    [patch] = parts.requests.of("patch", "Pod")
    mark = patch["metadata"]["annotations"][NUDGE]
    slurmctld(parts, 0, nudge=mark)
    await follow(parts)
    assert len(parts.requests.of("patch", "Pod")) == 1
    await parts.operator.controllers.aclose()


async def test_a_pod_that_is_gone_when_it_is_annotated_is_no_failure() -> None:
    parts = Parts()
    parts.keys()
    slurmctld(parts, 0)
    parts.requests.refusals["patch Pod"] = NotFound(404, "NotFound", "gone")
    assert {it.type for it in await follow(parts)} >= {gate.ACCEPTED}
    await parts.operator.controllers.aclose()


async def label(
    parts: Parts, primary: str | None, monkeypatch: pytest.MonkeyPatch, **spec: Any
) -> list[Any]:
    """The labels that are written, in order."""
    primaries = parts.operator.controllers.primaries
    monkeypatch.setattr(primaries, "get", lambda _: primary)
    monkeypatch.setattr(primaries, "want", lambda *_: None)
    controller = read(Controller, parts.controller(**spec))
    await effects.label_primary(parts.runtime, parts.operator.controllers, CONTROLLER, controller)
    written = zip(parts.requests.made, parts.requests.bodies, strict=True)
    return [(name, body["metadata"]["labels"][failover.ACTIVE]) for (_, _, name), body in written]


async def test_the_label_moves_to_the_primary(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts()
    slurmctld(parts, 0, active=True)
    slurmctld(parts, 1)
    changes = await label(parts, "slurm-controller-1", monkeypatch, **HA)
    assert sorted(changes) == [("slurm-controller-0", None), ("slurm-controller-1", "true")]


async def test_the_pod_of_the_primary_shows_since_when_and_gets_that_too_if_it_only_has_the_label(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = Parts()
    slurmctld(parts, 0, active=True, since="2023-11-14T22:00:00Z")
    slurmctld(parts, 1)
    assert await label(parts, "slurm-controller-0", monkeypatch, **HA) == []
    parts.now += 0.5
    assert len(await label(parts, "slurm-controller-1", monkeypatch, **HA)) == 2
    dated = [
        body["metadata"]["annotations"][failover.ACTIVE_SINCE] for body in parts.requests.bodies
    ]
    # Rounded up: it is not before the take-over.
    assert dated == ["2023-11-14T22:13:21Z", None]
    slurmctld(parts, 0, active=True)
    again = await label(parts, "slurm-controller-0", monkeypatch, **HA)
    assert again[2:] == [("slurm-controller-0", "true")]


async def test_while_no_primary_is_known_the_label_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts()
    slurmctld(parts, 0, active=True)
    slurmctld(parts, 1)
    assert await label(parts, None, monkeypatch, **HA) == []


async def test_a_slurmctld_that_stands_alone_gets_no_label(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = Parts()
    slurmctld(parts, 0)
    assert await label(parts, "slurm-controller-0", monkeypatch) == []


async def test_an_event_reports_each_change_of_the_configuration_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    parts = Parts()
    emitted: list[str] = []
    monkeypatch.setattr(
        parts.runtime.events, "emit", lambda *arguments: emitted.append(arguments[2])
    )
    refused = Condition(gate.ACCEPTED, "False", ConfigurationAccepted.INVALID, "line 3")
    effects.emit_events(parts.runtime, parts.controller(), [refused])
    assert emitted == ["ConfigurationRejected"]
    shown = {"conditions": [{"type": gate.ACCEPTED, "status": "False", "message": "line 3"}]}
    effects.emit_events(parts.runtime, parts.controller(shown), [refused])
    assert emitted == ["ConfigurationRejected"]
    other = Condition(gate.ACCEPTED, "False", ConfigurationAccepted.INVALID, "line 4")
    effects.emit_events(parts.runtime, parts.controller(shown), [other])
    assert emitted == ["ConfigurationRejected"] * 2
