"""The records of Kubernetes nodes in Slurm."""

import dataclasses
from decimal import Decimal
from typing import Any

import msgspec
import pytest

from sidecars.bridge.core.devices import Device, Numbered, Rules
from sidecars.bridge.core.manifests import Node as KubeNode
from sidecars.bridge.core.manifests import Pod
from sidecars.bridge.core.nodes import (
    FEATURE,
    Conflict,
    Create,
    Delete,
    Drain,
    NodeAction,
    SetExtra,
    Undrain,
    Usage,
    Wanted,
    decide,
    numbered_of,
    wanted_of,
)
from sidecars.bridge.core.usage import UsageBook
from sidecars.contract import bridge
from sidecars.slurm.records import Node

KEYS = frozenset({"zone"})
WANTED = Wanted("k1", "k1", "10.0.0.1", 8, 16_000, labels={"zone": "a"})
RECORD = Node(
    "k1",
    frozenset({"IDLE", "EXTERNAL", "DYNAMIC_NORM"}),
    extra=bridge.node_extra("k1", {"zone": "a"}, KEYS),
    address="10.0.0.1",
    cpus=8,
    real_memory=16_000,
    features=(FEATURE,),
)


def act(
    wanted: Wanted | None, record: Node | None, *, known: bool = True
) -> tuple[NodeAction, ...]:
    records = {} if record is None else {record.name: record}
    return decide([] if wanted is None else [wanted], records, KEYS, known=known)


def changed(*words: str, **values: Any) -> Node:
    return dataclasses.replace(
        RECORD, states=frozenset({*words, "EXTERNAL"}) if words else RECORD.states, **values
    )


def test_a_record_as_it_should_be_needs_nothing() -> None:
    assert act(WANTED, RECORD) == ()


EAST, WEST = "aaaaaaaa-0000", "bbbbbbbb-0000"
OURS = dataclasses.replace(WANTED, cluster=EAST, features=(FEATURE, "slurm-bridge-aaaaaaaa"))


def of_west(extra: str) -> Node:
    """A record that the bridge of another Kubernetes cluster has created."""
    return changed("IDLE", features=(FEATURE, "slurm-bridge-bbbbbbbb"), extra=extra)


@pytest.mark.parametrize("extra", ["", bridge.node_extra("k1", {"zone": "a"}, KEYS, (), WEST)])
def test_the_record_of_another_cluster_stays_as_it_is(extra: str) -> None:
    theirs = of_west(extra)
    assert decide([], {"k1": theirs}, KEYS, known=True, cluster=EAST) == ()
    [conflict] = decide([OURS], {"k1": theirs}, KEYS, known=True, cluster=EAST)
    assert conflict == Conflict(
        "k1",
        "Slurm node k1 is of another Kubernetes cluster: give this one another name with the label "
        "slinky.slurm.net/slurm-nodename",
    )


def test_the_record_of_an_earlier_bridge_becomes_the_clusters() -> None:
    actions = decide([OURS], {"k1": RECORD}, KEYS, known=True, cluster=EAST)
    extra = bridge.node_extra("k1", {"zone": "a"}, KEYS, (), EAST)
    # It gets its feature by another record.
    assert actions == (SetExtra("k1", extra), Delete("k1"))
    renewed = dataclasses.replace(RECORD, extra=extra, features=OURS.features)
    assert decide([OURS], {"k1": renewed}, KEYS, known=True, cluster=EAST) == ()
    gone = bridge.DRAIN_PREFIX + "its Kubernetes node is gone"
    assert decide([], {"k1": renewed}, KEYS, known=True, cluster=EAST) == (
        Drain("k1", gone),
        Delete("k1"),
    )


@pytest.mark.parametrize(
    ("used", "left"),
    [
        (Usage(1, 384, Decimal("0.9")), (5, 15_360)),
        (Usage(2, 1024, Decimal("1.1")), (5, 15_360)),
        (Usage(3, 1025, Decimal("2.95")), (4, 15_359)),
    ],
)
def test_a_record_changes_only_when_other_pods_request_more_than_the_reserve(
    used: Usage, left: tuple[int, int]
) -> None:
    found = wanted_of(kube_node(), used.at_least(Usage(2, 1024)), KEYS)
    assert isinstance(found, Wanted)
    assert (found.cpus, found.memory) == left


def test_all_nodes_of_a_cluster_have_a_feature_of_it() -> None:
    found = wanted_of(kube_node(), Usage(), KEYS, cluster=EAST)
    assert isinstance(found, Wanted)
    assert found.features == (FEATURE, "slurm-bridge-aaaaaaaa")


def test_nothing_is_done_while_slurm_is_unknown() -> None:
    assert act(WANTED, None, known=False) == ()
    assert act(None, RECORD, known=False) == ()


def test_a_missing_record_is_created_with_its_address_and_without_an_extra() -> None:
    assert act(WANTED, None) == (Create(WANTED),)
    words = WANTED.conf().split()
    assert {
        "NodeName=k1",
        "NodeAddr=10.0.0.1",
        "State=External",
        "CPUs=8",
        "RealMemory=16000",
    } <= set(words)
    assert not any(word.startswith("Extra") for word in words)


def test_gpus_have_a_gres_conf() -> None:
    assert (
        "Gres=gpu:2 GresConf=count=2,name=gpu"
        in dataclasses.replace(WANTED, counted=(("gpu", 2),)).conf()
    )


GPUS = tuple(("gpu:h100", Device("d", "k1", f"gpu-{index}")) for index in range(3))
WITH_GPUS = dataclasses.replace(WANTED, devices=GPUS)


def with_gpus(*devices: Numbered, states: tuple[str, ...] = ("IDLE",)) -> Node:
    return changed(
        *states, gres=f"gpu:h100:{len(devices)}", extra=WANTED.record_extra(KEYS, devices)
    )


def test_devices_by_index_have_files_that_number_all_of_the_gres() -> None:
    parts = (("gpu:1g.5gb", Device("d", "k1", "part")),)
    found = dataclasses.replace(WANTED, counted=(("shard", 4),), devices=(*parts, *GPUS)).conf()
    assert "Gres=shard:4,gpu:1g.5gb:1,gpu:h100:3 " in found
    lines = [
        "count=4,name=shard",
        "count=1,name=gpu,type=1g.5gb,file=gpu-0",
        "count=3,name=gpu,type=h100,file=gpu-[1-3]",
    ]
    assert found.endswith(f"GresConf={'+'.join(lines)}")


@pytest.mark.parametrize("reported", ["gpu:h100:3,gpushare:4", "gpushare:4,gpu:h100:3"])
def test_a_record_stays_in_whatever_order_slurm_reports_its_gres(reported: str) -> None:
    """The order is that of GresTypes in slurm.conf."""
    wanted = dataclasses.replace(WITH_GPUS, counted=(("gpushare", 4),))
    assert act(wanted, dataclasses.replace(with_gpus(*GPUS), gres=reported)) == ()


def test_the_devices_of_a_record_are_in_its_extra_in_the_order_of_their_indices() -> None:
    extra = WITH_GPUS.record_extra(KEYS, GPUS)
    assert numbered_of(extra) == GPUS
    assert bridge.labels_of(extra) == {bridge.KUBE_NODE: "k1", "zone": "a"}
    assert act(WITH_GPUS, changed("IDLE", gres="gpu:h100:3", extra="")) == (SetExtra("k1", extra),)
    assert act(WITH_GPUS, with_gpus(*GPUS)) == ()


def test_another_label_leaves_the_devices_of_a_record_as_they_are() -> None:
    former = GPUS[::-1]
    record = with_gpus(*former, states=("MIXED",))
    [action] = act(dataclasses.replace(WITH_GPUS, labels={"zone": "b"}), record)
    assert isinstance(action, SetExtra)
    assert numbered_of(action.extra) == former


def test_a_record_with_a_device_that_is_gone_is_drained_and_replaced_when_no_job_is_on_it() -> None:
    fewer = dataclasses.replace(WITH_GPUS, devices=GPUS[:2])
    [action] = act(fewer, with_gpus(*GPUS, states=("MIXED",)))
    assert isinstance(action, Drain)
    assert act(fewer, with_gpus(*GPUS))[-1] == Delete("k1")


def test_a_record_without_a_new_device_is_replaced_only_when_no_job_is_on_it() -> None:
    assert act(WITH_GPUS, with_gpus(*GPUS[:2], states=("MIXED",))) == ()
    assert act(WITH_GPUS, with_gpus(*GPUS[:2]))[-1] == Delete("k1")


def test_the_devices_of_another_index_are_never_written_to_a_record() -> None:
    """With as many devices as before, a job's index would mean another device."""
    assert act(WITH_GPUS, with_gpus(*GPUS[::-1], states=("MIXED",))) == ()
    assert act(WITH_GPUS, with_gpus(*GPUS[::-1]))[-1] == Delete("k1")


def test_extended_resources_are_counted_as_the_gres_of_their_rules() -> None:
    rules = Rules({"nvidia.com/gpu": "gpu:whole", "nvidia.com/mig-1g.5gb": "gpu:1g.5gb"}, {})
    node = kube_node(
        status={"allocatable": {"cpu": "8", "memory": "16Gi", "nvidia.com/mig-1g.5gb": "7"}}
    )
    found = wanted_of(node, Usage(), KEYS, rules)
    assert isinstance(found, Wanted)
    assert found.gres == "gpu:1g.5gb:7"


def test_a_label_that_the_node_lacks_is_in_its_extra_as_a_marker() -> None:
    bare = dataclasses.replace(WANTED, labels={})
    [action] = act(bare, RECORD)
    assert isinstance(action, SetExtra)
    assert bridge.labels_of(action.extra) == {bridge.KUBE_NODE: "k1", "zone": bridge.MISSING}


def test_a_node_poisoned_by_a_signal_is_replaced_when_it_is_idle_and_drained_before() -> None:
    assert act(WANTED, changed("IDLE", "NOT_RESPONDING"))[-1] == Delete("k1")
    [action] = act(WANTED, changed("MIXED", "NOT_RESPONDING"))
    assert isinstance(action, Drain)
    assert (
        act(WANTED, changed("MIXED", "NOT_RESPONDING", "DRAIN", reason=bridge.DRAIN_PREFIX + "x"))
        == ()
    )


def test_a_record_that_is_too_large_is_drained_while_jobs_are_on_it() -> None:
    [action] = act(dataclasses.replace(WANTED, cpus=6), changed("MIXED"))
    assert isinstance(action, Drain)


def test_a_record_with_more_gres_than_its_node_is_drained_while_jobs_are_on_it() -> None:
    counted = dataclasses.replace(WANTED, counted=(("shard", 4),))
    record = changed("MIXED", gres="shard:4")
    assert act(counted, record) == ()
    for wanted in (WANTED, dataclasses.replace(WANTED, counted=(("shard", 3),))):
        assert [type(it) for it in act(wanted, record)] == [Drain]
    assert act(dataclasses.replace(WANTED, counted=(("shard", 5),)), record) == ()


def test_an_idle_record_outlives_the_restart_of_a_device_plugin_as_a_drained_one() -> None:
    without, record = WANTED, changed(gres="shard:4")
    recent: dict[str, Any] = {
        "records": {"k1": record},
        "keys": KEYS,
        "known": True,
        "lacking": {"k1"},
    }
    [action] = decide([without], **recent)
    assert isinstance(action, Drain)
    drained = changed("IDLE", "DRAIN", gres="shard:4", reason=action.reason)
    assert decide([without], **{**recent, "records": {"k1": drained}}) == ()
    again = dataclasses.replace(WANTED, counted=(("shard", 4),))
    assert act(again, drained) == (Undrain("k1"),)
    # They are gone for good.
    assert act(without, drained) == (Delete("k1"),)
    # No plugin changes the number of CPUs.
    smaller = dataclasses.replace(WANTED, cpus=6)
    assert [type(it) for it in decide([smaller], **recent)] == [Drain, Delete]


@pytest.mark.parametrize("reported", ["gpushare:2K", "gpushare:2048", "gpushare:2048(S:0-1)"])
def test_a_record_is_as_it_should_be_however_slurm_writes_the_count_of_its_gres(
    reported: str,
) -> None:
    counted = dataclasses.replace(WANTED, counted=(("gpushare", 2048),))
    assert act(counted, changed(gres=reported)) == ()


def test_a_record_whose_gres_can_not_be_read_is_replaced_when_no_job_is_on_it() -> None:
    assert act(WANTED, changed(gres=":")) == (Delete("k1"),)
    assert act(WANTED, changed("MIXED", gres=":")) == ()


def test_a_record_that_is_too_small_is_replaced_only_when_no_job_is_on_it() -> None:
    larger = dataclasses.replace(WANTED, cpus=9)
    assert act(larger, changed("MIXED")) == ()
    assert act(larger, RECORD) == (Delete("k1"),)


def test_a_too_small_record_serves_while_slurm_refuses_to_delete_it_unless_it_is_cordoned() -> None:
    """As it does because of a reservation."""
    larger, ours = dataclasses.replace(WANTED, cpus=9), bridge.DRAIN_PREFIX + "x"
    assert act(larger, changed("IDLE", "DRAIN", reason=ours)) == (Undrain("k1"), Delete("k1"))
    cordoned = dataclasses.replace(larger, drain=ours)
    assert act(cordoned, RECORD) == (Drain("k1", ours), Delete("k1"))
    assert act(cordoned, changed("IDLE", "DRAIN", reason=ours)) == (Delete("k1"),)


def test_a_cordoned_node_is_drained_and_an_uncordoned_one_undrained() -> None:
    cordoned = dataclasses.replace(WANTED, drain=bridge.DRAIN_PREFIX + "x")
    assert act(cordoned, RECORD) == (Drain("k1", bridge.DRAIN_PREFIX + "x"),)
    assert act(WANTED, changed("IDLE", "DRAIN", reason=bridge.DRAIN_PREFIX + "x")) == (
        Undrain("k1"),
    )


def test_a_drain_of_an_administrator_is_left() -> None:
    assert act(WANTED, changed("IDLE", "DRAIN", reason="broken fan")) == ()


@pytest.mark.parametrize(
    "record",
    [
        changed("IDLE", "DRAIN", reason="broken fan"),
        changed("IDLE", "DRAIN", "NOT_RESPONDING", reason="broken fan"),
        changed("DOWN", reason="broken fan"),
        changed("IDLE", "FAIL", reason=bridge.DRAIN_PREFIX + "x"),
    ],
    ids=lambda it: "+".join(sorted(it.states)),
)
def test_a_record_that_an_administrator_has_taken_out_of_service_is_not_replaced(
    record: Node,
) -> None:
    """The next record would be in service. Other pods that request something else of the node would
    suffice.
    """
    assert act(dataclasses.replace(WANTED, cpus=9), record) == ()
    assert act(dataclasses.replace(WANTED, cpus=6), record) == ()
    assert act(WANTED, record) == ()
    assert act(None, record) == ()


@pytest.mark.parametrize(
    "record",
    [
        changed("IDLE", "DRAIN", reason=bridge.DRAIN_PREFIX + "x"),
        changed(
            "DOWN",
            "NOT_RESPONDING",
            reason="Not responding",
            reason_set_by_user="another SlurmUser",
        ),
        changed("IDLE", reason="watch this node"),
    ],
    ids=lambda it: it.reason,
)
def test_a_record_that_nobody_else_has_taken_out_of_service_is_replaced(record: Node) -> None:
    assert act(dataclasses.replace(WANTED, cpus=9), record)[-1] == Delete("k1")


def test_the_record_of_a_node_that_is_gone_is_deleted_when_no_job_is_on_it() -> None:
    assert act(None, RECORD)[-1] == Delete("k1")
    [action] = act(None, changed("ALLOCATED"))
    assert isinstance(action, Drain)


@pytest.mark.parametrize(
    ("extra", "feature"), [("", "other"), ('{"podUid":"x"}', FEATURE), ("text", FEATURE)]
)
def test_a_record_that_the_bridge_has_not_created_is_not_deleted(extra: str, feature: str) -> None:
    assert act(None, changed(extra=extra, features=(feature,))) == ()


def test_a_record_whose_extra_was_not_written_is_deleted_with_its_kubernetes_node() -> None:
    assert act(None, changed(extra=""))[-1] == Delete("k1")


def test_a_node_with_a_slurmd_is_a_conflict_and_is_left() -> None:
    [action] = act(WANTED, dataclasses.replace(RECORD, states=frozenset({"IDLE"})))
    assert isinstance(action, Conflict)


def test_the_record_of_a_node_that_may_have_none_is_drained_with_the_reason() -> None:
    refused = {"k1": "other pods request, or nodes.reserve keeps, all of its CPUs or memory"}
    busy = changed("MIXED")
    [action] = decide([], {"k1": busy}, KEYS, known=True, refused=refused)
    assert action == Drain(
        "k1", "slurm-bridge: other pods request, or nodes.reserve keeps, all of its CPUs or memory"
    )
    [action] = decide([], {"k1": busy}, KEYS, known=True)
    assert action == Drain("k1", "slurm-bridge: its Kubernetes node is gone")


def test_two_kubernetes_nodes_with_one_name_are_a_conflict() -> None:
    other = dataclasses.replace(WANTED, kube_node="k2")
    [action] = decide([WANTED, other], {"k1": RECORD}, KEYS, known=True)
    assert isinstance(action, Conflict)
    assert action.kube_node == "k2"


def kube_node(**changes: Any) -> KubeNode:
    labels = {bridge.EXTERNAL_NODE: "", "zone": "a", "other": "b", **changes.pop("labels", {})}
    status = {
        "allocatable": {"cpu": "7900m", "memory": "16Gi", "nvidia.com/gpu": "2"},
        "addresses": [
            {"type": "Hostname", "address": "k1"},
            {"type": "InternalIP", "address": "10.0.0.1"},
        ],
        "conditions": [{"type": "Ready", "status": "True"}],
        **changes.pop("status", {}),
    }
    return msgspec.convert(
        {"metadata": {"name": "k1", "labels": labels}, "status": status, **changes}, KubeNode
    )


def test_a_record_has_what_other_pods_leave_of_the_node() -> None:
    found = wanted_of(kube_node(), Usage(1, 384), KEYS)
    assert found == Wanted("k1", "k1", "10.0.0.1", 6, 16_000, (("gpu", 2),), labels={"zone": "a"})


def test_the_address_of_a_record_can_be_of_ipv6_and_is_the_first_of_two_families() -> None:
    v6, v4 = ({"type": "InternalIP", "address": it} for it in ("fd00:10::5", "10.0.0.1"))
    for addresses in ([v6], [v6, v4]):
        found = wanted_of(kube_node(status={"addresses": addresses}), Usage(), KEYS)
        assert isinstance(found, Wanted)
        assert found.address == "fd00:10::5"
        assert "NodeAddr=fd00:10::5" in found.conf()


def test_a_node_without_an_internal_address_gets_no_record() -> None:
    assert "no InternalIP" in str(wanted_of(kube_node(status={"addresses": []}), Usage(), KEYS))


@pytest.mark.parametrize(
    ("allocatable", "used", "cpus"),
    [("3920m", "250m", 3), ("1930m", "100m", 1), ("4", "1", 3), ("4", "1001m", 2)],
)
def test_no_core_is_lost_because_other_pods_use_a_part_of_one(
    allocatable: str, used: str, cpus: int
) -> None:
    book = UsageBook()
    spec = {
        "nodeName": "k1",
        "containers": [{"resources": {"requests": {"cpu": used, "memory": "1Mi"}}}],
    }
    book.put(msgspec.convert({"metadata": {"name": "o", "uid": "o"}, "spec": spec}, Pod))
    item = kube_node(status={"allocatable": {"cpu": allocatable, "memory": "2Gi"}})
    found = wanted_of(item, book.of("k1"), KEYS)
    assert isinstance(found, Wanted)
    assert found.cpus == cpus


def test_a_node_that_other_pods_fill_gets_no_record() -> None:
    assert "other pods request, or nodes.reserve keeps, all" in str(
        wanted_of(kube_node(), Usage(7), KEYS)
    )


def test_a_node_without_the_label_gets_no_record() -> None:
    node = msgspec.convert({"metadata": {"name": "k1"}}, KubeNode)
    assert wanted_of(node, Usage(), KEYS) == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"spec": {"unschedulable": True}},
        {"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}},
    ],
)
def test_a_cordoned_node_and_one_that_is_not_ready_take_no_pods(changes: dict[str, Any]) -> None:
    found = wanted_of(kube_node(**changes), Usage(), KEYS)
    assert isinstance(found, Wanted)
    assert found.drain.startswith(bridge.DRAIN_PREFIX)


def test_the_record_of_a_node_with_a_suspended_job_is_drained_and_stays_until_its_end() -> None:
    silent = changed("IDLE", "NOT_RESPONDING")
    for wanted in (WANTED, None):
        records = [] if wanted is None else [wanted]
        [action] = decide(records, {"k1": silent}, KEYS, known=True, holding={"k1"})
        assert isinstance(action, Drain)
        assert decide(records, {"k1": silent}, KEYS, known=True)[-1] == Delete("k1")
    smaller = dataclasses.replace(WANTED, cpus=9)
    assert decide([smaller], {"k1": RECORD}, KEYS, known=True, holding={"k1"}) == ()
