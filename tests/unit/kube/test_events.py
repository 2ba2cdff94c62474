"""Events: written in the background, repeats as one series, and never in the way of who emits
them.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from sidecars.kube import EVENTS, Client, EventRecorder, Manifest

if TYPE_CHECKING:
    from tests.support.kube_double import KubeDouble

CONTROLLER: Manifest = {
    "apiVersion": "slinky.slurm.net/v1beta1",
    "kind": "Controller",
    "metadata": {"namespace": "slurm", "name": "slurm", "uid": "u", "labels": {"a": "b"}},
    "spec": {},
}


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 1, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.now


def refuse(recorder: EventRecorder, note: str = "line 3: unknown key") -> None:
    recorder.emit(CONTROLLER, "Warning", "Refused", "Reconfigure", note)


def stored(server: KubeDouble) -> list[dict[str, Any]]:
    return list(server.objects(EVENTS).values())


async def test_an_event_names_object_reporter_and_reason(
    server: KubeDouble, client: Client
) -> None:
    recorder = EventRecorder(client, "slinky.slurm.net/slurm-operator", Clock(), instance="pod-1")
    refuse(recorder)
    await recorder.flush()
    (event,) = stored(server)
    assert event["metadata"]["namespace"] == "slurm"
    assert event["metadata"]["name"].startswith("slurm.")
    assert event["regarding"] == {
        "apiVersion": "slinky.slurm.net/v1beta1",
        "kind": "Controller",
        "namespace": "slurm",
        "name": "slurm",
        "uid": "u",
    }
    assert (event["reportingController"], event["reportingInstance"]) == (
        "slinky.slurm.net/slurm-operator",
        "pod-1",
    )
    assert (event["type"], event["reason"], event["action"]) == (
        "Warning",
        "Refused",
        "Reconfigure",
    )
    assert (event["note"], event["eventTime"]) == (
        "line 3: unknown key",
        "2026-01-01T00:00:00.000000Z",
    )


async def test_repeats_are_one_series_with_few_writes(server: KubeDouble, client: Client) -> None:
    clock = Clock()
    recorder = EventRecorder(client, "us", clock)
    for _ in range(100):
        refuse(recorder)
        await recorder.flush()
        clock.now += timedelta(seconds=10)
    (event,) = stored(server)
    assert len(server.calls) <= 5
    assert 60 < event["series"]["count"] <= 100


async def test_other_events_and_late_repeats_are_events_of_their_own(
    server: KubeDouble, client: Client
) -> None:
    clock = Clock()
    recorder = EventRecorder(client, "us", clock)
    refuse(recorder)
    refuse(recorder, "line 4: unknown key")
    clock.now += timedelta(minutes=7)
    refuse(recorder)
    await recorder.flush()
    assert len(stored(server)) == 3


async def test_an_event_of_a_cluster_scoped_object_is_kept_in_default(
    server: KubeDouble, client: Client
) -> None:
    recorder = EventRecorder(client, "us", Clock())
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
    recorder.emit(node, "Normal", "Drained", "Drain", "x" * 1023 + "éé")
    await recorder.flush()
    (event,) = stored(server)
    assert event["metadata"]["namespace"] == "default"
    assert event["note"] == "x" * 1023


async def test_a_server_that_refuses_events_hinders_nobody(
    server: KubeDouble, client: Client
) -> None:
    recorder = EventRecorder(client, "us", Clock())
    server.write_faults.extend(["500", "drop"])
    refuse(recorder)
    await recorder.flush()
    refuse(recorder)
    await recorder.flush()
    assert stored(server) == []
    refuse(recorder)
    await recorder.flush()
    assert len(stored(server)) == 1


async def test_a_flood_of_events_is_cut(server: KubeDouble, client: Client) -> None:
    recorder = EventRecorder(client, "us", Clock())
    for number in range(1000):
        refuse(recorder, f"line {number}")
    await recorder.flush()
    assert len(stored(server)) == 256


async def test_a_series_whose_event_has_aged_away_starts_anew(
    server: KubeDouble, client: Client
) -> None:
    recorder = EventRecorder(client, "us", Clock())
    refuse(recorder)
    await recorder.flush()
    (event,) = stored(server)
    server.remove(EVENTS, "slurm", event["metadata"]["name"])
    refuse(recorder)
    await recorder.flush()
    refuse(recorder)
    await recorder.flush()
    assert len(stored(server)) == 1


async def test_a_note_is_printable_whatever_it_quotes(server: KubeDouble, client: Client) -> None:
    recorder = EventRecorder(client, "slurm-operator", Clock())
    refuse(recorder, "a\n\x1b[2Jb")
    await recorder.flush()
    (event,) = stored(server)
    assert event["note"] == "a \ufffd[2Jb"
