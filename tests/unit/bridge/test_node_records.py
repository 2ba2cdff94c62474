"""The records of Kubernetes nodes. `test_main` has most of them."""

import dataclasses
from typing import Any, cast

import msgspec
import pytest

from sidecars.bridge.core import manifests
from sidecars.bridge.core.devices import Device, Numbered
from sidecars.bridge.core.usage import UsageBook
from sidecars.bridge.node_records import _MOST_KEYS, NodeRecords
from sidecars.bridge.slurm import SUBMIT_SECONDS
from sidecars.contract import bridge
from sidecars.kube import EventRecorder, Store
from sidecars.slurm.errors import Rejected, Unreachable
from sidecars.slurm.records import Node
from tests.support.bridge import node
from tests.support.bridge_devices import PARSED

GPUS: tuple[Numbered, ...] = (
    ("gpu:h100", Device("d", "k1", "gpu-0")),
    ("gpu:h100", Device("d", "k1", "gpu-1")),
)


class FakePoller:
    """Slurm's list of nodes as it was at `last_good`; polls fail."""

    known = True

    def __init__(self, *nodes: Node) -> None:
        self.nodes = {it.name: it for it in nodes}
        self.last_good: float | None = 10.0

    def now(self) -> float:
        return 20.0

    def expect_removal(self, names: list[str]) -> None:
        """Nothing vanishes here."""

    async def poll(self) -> None:
        """No answer."""


class FakeSlurm:
    """Answers each request with `fault`."""

    fault: Exception | None = None

    async def call(self, request: object) -> None:
        if self.fault is not None:
            raise self.fault


class FakeDevices:
    rules = PARSED

    def by_node(self) -> dict[str, tuple[Numbered, ...]]:
        return {"k1": GPUS}


def record(*devices: Numbered) -> Node:
    extra = bridge.node_extra("k1", {}, [], ((gres, *device) for gres, device in devices))
    found = Node(
        "k1",
        states=frozenset({"IDLE", "EXTERNAL"}),
        cpus=8,
        real_memory=16 * 1024,
        address="10.0.0.1",
    )
    return dataclasses.replace(
        found, gres=f"gpu:h100:{len(devices)}", features=("slurm-bridge",), extra=extra
    )


def parts(poller: FakePoller) -> tuple[NodeRecords, FakeSlurm]:
    store: Store[manifests.Node] = Store()
    store.put(msgspec.convert(node("k1"), manifests.Node))
    slurm, found = (
        FakeSlurm(),
        (poller, store, UsageBook(), cast("EventRecorder", Recorder()), FakeDevices()),
    )
    given: Any = (slurm, *found)
    return NodeRecords(*given), slurm


async def test_a_record_is_replaced_when_its_devices_have_been_gone_for_a_minute(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    poller = FakePoller(dataclasses.replace(record(*GPUS), gres="gpu:h100:2,gpu:a100:1"))
    records, slurm = parts(poller)
    sent: list[str] = []

    async def noted(request: Any) -> None:
        sent.append(request.method)

    monkeypatch.setattr(slurm, "call", noted)
    times = iter((20.0, 79.0, 80.0))
    found: list[tuple[bool, bool]] = []
    for now in times:
        monkeypatch.setattr(poller, "now", lambda now=now: now)
        due = records.due()
        sent.clear()
        await records.apply(frozenset(), {})
        found.append((due, "DELETE" in sent))
    assert found == [(False, False), (False, False), (True, True)]


async def test_pods_that_select_by_labels_without_end_make_no_record_large() -> None:
    """Slurm takes megabytes, and answers with those of all nodes: neither the bridge nor the
    operator reads that.
    """
    records, _ = parts(FakePoller(record(*GPUS)))
    carried = frozenset({bridge.EXTERNAL_NODE})
    endless = frozenset(f"example.com/{number}" for number in range(10_000))
    await records.apply(endless | carried, {})
    assert carried < records._keys
    assert len(records._keys) <= 2 * _MOST_KEYS + 1
    await records.apply(endless, {})
    assert len(records._keys) <= 2 * _MOST_KEYS + 1


async def test_a_record_has_64_of_the_labels_that_no_node_has_and_waiting_pods_name() -> None:
    records, _ = parts(FakePoller(record(*GPUS)))
    lacked = frozenset(f"example.com/{number}" for number in range(64))
    await records.apply(lacked, {})
    assert records._keys >= lacked
    more = lacked | {"example.com/one-more"}
    await records.apply(more, {})
    assert len(records._keys & more) == 64


async def test_no_pod_is_released_to_an_external_node_while_its_record_is_not_known() -> None:
    """How many CPUs it has decides whether Slurm has given them twice."""
    poller = FakePoller()
    records, _ = parts(poller)
    await records.apply(frozenset(), {})
    assert records.faults() == {"k1": "Slurm's record of Kubernetes node k1 is not known yet"}
    poller.nodes = {"k1": record(*GPUS)}
    assert records.faults() == {"k1": ""}
    await records.apply(frozenset(), {"k1": "w0"})
    poller.nodes = {}
    assert records.faults() == {"k1": ""}, "a worker's node is known by its worker"


@pytest.mark.parametrize("first", ["k1", "k2"])
async def test_of_two_kubernetes_nodes_with_one_slurm_node_the_one_that_has_the_record_keeps_it(
    first: str,
) -> None:
    """Whichever of them is known first, as after a start of the bridge: pods of its jobs run
    there.
    """
    poller = FakePoller(record(*GPUS))
    records, _ = parts(poller)
    both = {"k1": node("k1"), "k2": node("k2")}
    both["k2"]["metadata"]["labels"][bridge.NODE_NAME] = "k1"
    store: Store[manifests.Node] = Store()
    for name in sorted(both, key=first.__ne__):
        store.put(msgspec.convert(both[name], manifests.Node))
    records._store = store
    await records.apply(frozenset(), {})
    assert records.kube_nodes == {"k1": "k1"}
    assert records.slurm_nodes == {"k1": "k1"}
    assert records.states() == {"in_service": 1, "drained": 0, "missing": 0, "refused": 1}


class Recorder:
    def emit(self, *_: object) -> None:
        """No Events here."""


async def test_the_devices_of_a_replaced_record_count_again_in_an_answer_asked_for_later() -> None:
    poller = FakePoller(record(*GPUS[::-1]))
    records, _ = parts(poller)
    await records.apply(frozenset(), {})
    assert records.numbered == {}
    poller.last_good = 19.0
    await records.apply(frozenset(), {})
    assert records.numbered == {}
    poller.nodes, poller.last_good = {"k1": record(*GPUS)}, 21.0
    await records.apply(frozenset(), {})
    assert records.numbered == {"k1": GPUS}


@pytest.mark.parametrize(
    ("fault", "seconds"),
    [(Rejected("DELETE", 409, ()), 0.0), (Unreachable("DELETE", "no answer"), SUBMIT_SECONDS)],
)
async def test_a_request_without_an_answer_may_still_replace_the_record(
    fault: Exception, seconds: float
) -> None:
    poller = FakePoller(record(*GPUS[::-1]))
    records, slurm = parts(poller)
    slurm.fault = fault
    await records.apply(frozenset(), {})
    poller.nodes["k1"] = dataclasses.replace(
        record(*GPUS[::-1]), states=frozenset({"MIXED", "EXTERNAL"})
    )
    poller.last_good = 20.0 + seconds - 1
    await records.apply(frozenset(), {})
    assert records.numbered == {}
    poller.last_good = 20.0 + seconds + 1
    await records.apply(frozenset(), {})
    assert records.numbered == {"k1": GPUS[::-1]}


class Refusing:
    """Refuses to delete a node, as if it were in a reservation, and notes what is asked for."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def call(self, request: Any) -> None:
        self.asked.append(
            f"{request.method} {request.body}" if request.method == "POST" else request.method
        )
        if request.method == "DELETE":
            raise Rejected("DELETE", 409, ())


async def test_a_record_that_slurm_does_not_delete_is_drained_and_tried_again_later() -> None:
    class Clocked(FakePoller):
        time = 20.0

        def now(self) -> float:
            return self.time

    idle = dataclasses.replace(record(), cpus=99, states=frozenset({"IDLE", "EXTERNAL"}))
    poller, slurm = Clocked(idle), Refusing()
    records, _ = parts(poller)
    records._slurm = cast("Any", slurm)
    await records.apply(frozenset(), {})
    drain, delete = slurm.asked
    assert delete == "DELETE"
    assert "DRAIN" in drain, "it has more CPUs than are left, so that no other job must get it"
    assert not records.due()
    poller.nodes["k1"] = dataclasses.replace(
        idle, states=idle.states | {"DRAIN"}, reason="slurm-bridge: x"
    )
    for seconds in (1.0, 5.0, 9.0):
        poller.time = 20.0 + seconds
        await records.apply(frozenset(), {})
        assert records.states()["refused"] == 1
    assert len(slurm.asked) == 2
    poller.time = 31.0
    assert records.due()
    await records.apply(frozenset(), {})
    assert slurm.asked[2:] == ["DELETE"]
    poller.nodes["k1"] = record(*GPUS)
    poller.time = 42.0
    await records.apply(frozenset(), {})
    assert not records.due(), "nothing is to be changed by now"


async def test_no_record_is_deleted_while_the_nodes_of_jobs_are_unknown() -> None:
    """The node of a suspended job is IDLE."""
    poller, slurm = FakePoller(dataclasses.replace(record(), cpus=99)), Refusing()
    records, _ = parts(poller)
    records._slurm = cast("Any", slurm)
    await records.apply(frozenset(), {}, None)
    assert "DELETE" not in slurm.asked
