"""What a worker pod reports to Slurm, from what is known of it."""

import json
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pytest

from sidecars.contract.shape import Shape
from sidecars.register.gpus import Verdict
from sidecars.register.registration import BadFact, Facts, Host, registration

HOST = Host(cores=64, threads_per_core=2, real_memory=515000)


def facts(
    conf: str = "",
    *,
    host: Host = HOST,
    cpus: str = "0",
    **changed: Any,
) -> Facts:
    """Facts of a pod without limits on a host of 64 cores, changed as asked."""
    found = Facts(
        host=host,
        pod_ip="10.0.0.9",
        pod_uid="uid-1",
        pod_name="pod-1",
        namespace="slurm",
        kube_node="kube-1",
        cpus=Decimal(cpus),
        memory=0,
        pod_memory=0,
        conf=conf,
        topology="",
    )
    return replace(found, **changed)


def conf(given: Facts) -> list[str]:
    """The items of --conf beyond the pod's address and the memory that a pod without limits
    reserves.
    """
    items = registration(given).conf.split()
    return [item for item in items if item not in {"NodeAddr=10.0.0.9", "MemSpecLimit=1024"}]


def test_a_pod_without_limits_offers_the_host_but_for_what_its_own_containers_need() -> None:
    assert registration(facts()).conf == "NodeAddr=10.0.0.9 MemSpecLimit=1024"


@pytest.mark.parametrize(
    ("host", "reserved"), [(515000, 1024), (8192, 1024), (4000, 500), (1000, 125)]
)
def test_an_eighth_of_the_memory_and_at_most_a_gibibyte_is_reserved(
    host: int, reserved: int
) -> None:
    small = Host(cores=4, threads_per_core=1, real_memory=host)
    assert registration(facts(host=small)).conf == f"NodeAddr=10.0.0.9 MemSpecLimit={reserved}"


def test_a_memory_limit_of_the_pod_limits_jobs_slurmd_and_node() -> None:
    assert conf(facts(memory=128000, pod_memory=128000)) == [
        f"MemSpecLimit={515000 - 128000 + 1024}"
    ]
    assert conf(facts(memory=2048, pod_memory=2048)) == [f"MemSpecLimit={515000 - 2048 + 256}"]


def test_a_limit_of_the_container_that_leaves_room_in_the_pod_counts_as_it_is() -> None:
    assert conf(facts(memory=64000, pod_memory=128000)) == [f"MemSpecLimit={515000 - 64000}"]


def test_a_limit_leaves_the_rest_of_the_host_to_others() -> None:
    assert conf(facts(cpus="32", memory=128000)) == ["CoreSpecCount=48", "MemSpecLimit=387000"]


@pytest.mark.parametrize(
    ("cpus", "specialized"),
    [("1", 63), ("2", 63), ("3", 62), ("1.5", 63), ("0.1", 63), ("127", None), ("128", None)],
)
def test_a_core_that_is_partly_within_the_limit_is_the_pods(
    cpus: str, specialized: int | None
) -> None:
    assert conf(facts(cpus=cpus)) == (
        [] if specialized is None else [f"CoreSpecCount={specialized}"]
    )


@pytest.mark.parametrize(("cpus", "memory"), [("128", 515000), ("500", 900000)])
def test_a_limit_of_the_whole_host_or_beyond_takes_no_more_than_no_limit(
    cpus: str, memory: int
) -> None:
    assert registration(facts(cpus=cpus, memory=memory)).conf == registration(facts()).conf


def test_the_nodesets_items_keep_their_order() -> None:
    assert conf(facts("Features=slinky,b Weight=10  Gres=gpu:h100:8\n")) == [
        "Features=slinky,b",
        "Weight=10",
        "Gres=gpu:h100:8",
    ]


@pytest.mark.parametrize(
    "own", ["CoreSpecCount=2", "corespeccount=2", "CPUs=4", "CpuSpecList=0-3", "Sockets=1"]
)
def test_a_nodeset_that_sets_something_of_cpus_sets_all_of_it(own: str) -> None:
    assert conf(facts(own, cpus="32")) == [own]


@pytest.mark.parametrize("own", ["MemSpecLimit=100", "realmemory=1000"])
def test_a_nodeset_that_sets_something_of_memory_sets_all_of_it(own: str) -> None:
    assert conf(facts(own, memory=1000)) == [own]


def test_an_address_of_the_nodeset_replaces_the_pods() -> None:
    assert (
        registration(facts("nodeaddr=node-1.example")).conf
        == "MemSpecLimit=1024 nodeaddr=node-1.example"
    )


def test_a_key_without_a_value_never_reaches_slurmd() -> None:
    found = registration(facts("Topology= Weight=1 Gres="))
    assert found.conf == "NodeAddr=10.0.0.9 MemSpecLimit=1024 Weight=1"
    assert "omitted, because they have no value: Topology, Gres" in found.summary


def test_a_value_with_a_space_is_written_between_double_quotes() -> None:
    assert (
        registration(facts('Reason="bad disk" Weight=1')).conf
        == 'NodeAddr=10.0.0.9 MemSpecLimit=1024 Reason="bad disk" Weight=1'
    )


def test_the_pods_topology_is_passed_on_unless_the_nodeset_has_its_own() -> None:
    assert conf(facts(topology="tree:s1,block:b2")) == ["Topology=tree:s1,block:b2"]
    assert conf(facts("Topology=tree:s9", topology="tree:s1")) == ["Topology=tree:s9"]


@pytest.mark.parametrize(
    ("items", "named"),
    [
        ("Weight", "'Weight'"),
        ("Comment=two words", "'words'"),
        ('Comment="a', "Comment"),
        ('Comment="a\\b c"', "Comment"),
        ("Features=a'b", "Features"),
        ("Features=a\\b", "Features"),
        ("Features=a\x00b", "Features"),
        ("=5", "'=5'"),
        ("9=5", "'9=5'"),
    ],
)
def test_what_slurmd_cannot_get_is_refused_by_name(items: str, named: str) -> None:
    with pytest.raises(BadFact, match="NODESET_CONF") as raised:
        registration(facts(items))
    assert named in str(raised.value)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        (facts(pod_ip=""), "POD_IP"),
        (facts(pod_uid=""), "POD_UID"),
        (facts(kube_node=""), "KUBE_NODE_NAME"),
        (facts(topology="tree:s1 tree:s2"), "SLINKY_TOPOLOGY"),
        (facts(topology="tree:s1234567890123456789012345"), "SLINKY_TOPOLOGY"),
        (facts("Topology=tree:s[1-9999999999999999999999]"), "NODESET_CONF"),
    ],
    ids=[
        "POD_IP",
        "POD_UID",
        "KUBE_NODE_NAME",
        "SLINKY_TOPOLOGY",
        "a long number",
        "a long number of the NodeSet",
    ],
)
def test_a_fact_that_is_missing_or_not_expressible_is_named(given: Facts, named: str) -> None:
    with pytest.raises(BadFact, match=named):
        registration(given)


def test_the_record_carries_the_pod_and_its_kubernetes_node() -> None:
    found = registration(facts())
    assert json.loads(found.extra) == {"podUid": "uid-1", "pod": "pod-1", "namespace": "slurm"}
    assert found.instance_id == "kube-1"


def test_the_summary_is_one_line_that_reports_what_was_found_and_how() -> None:
    summary = registration(facts("Weight=10", cpus="32", memory=128000)).summary
    assert "\n" not in summary
    assert "16 of 64 cores of 2 threads for the limit of 32" in summary
    assert "128000 of 515000 MiB for jobs" in summary


def test_the_summary_names_limits_that_the_nodeset_does_not_show() -> None:
    given = replace(facts(memory=512, pod_memory=1536), default_limits=True)
    assert "LimitRange" in registration(given).summary
    assert "LimitRange" not in registration(facts(memory=512)).summary


def test_the_shape_is_what_a_new_record_would_have() -> None:
    host = replace(HOST, cpus=128)
    found = registration(facts("Weight=1", host=host, cpus="16", memory=64000))
    assert found.shape == Shape(128, 515000, None)
    assert registration(facts("CPUs=4 RealMemory=1000 Gres=gpu:2", host=host)).shape == Shape(
        None, None, "gpu:2"
    )
    assert registration(facts("CoreSpecCount=4", host=host)).shape.cpus == 128
    assert registration(with_gpus(Verdict("", "", "GPUs: none"))).shape.gres == ""


EXCLUSIVE = Host(4, 2, 515000, 8, ((0, 4), (1, 5), (2, 6), (3, 7)), frozenset({1, 5, 2, 6}))


def test_jobs_get_the_cpus_that_the_kubelet_has_given_to_the_container() -> None:
    given = replace(facts(host=EXCLUSIVE, cpus="4"), exclusive_cpus=True)
    assert conf(given) == ["CpuSpecList=0-1,6-7"]
    assert "CPU manager" in registration(given).summary


@pytest.mark.parametrize("limit", ["6", "8", "64"])
def test_jobs_get_no_more_cpus_than_the_container_may_use_whatever_its_limit(limit: str) -> None:
    host = replace(EXCLUSIVE, allowed=frozenset({1, 5, 3, 7}))
    given = replace(facts(host=host, cpus=limit), exclusive_cpus=True)
    assert conf(given) == ["CpuSpecList=0-1,4-5"]
    assert f"it may use 4 CPUs, fewer than its limit of {limit}" in registration(given).summary


def test_any_cores_will_do_where_the_container_has_none_of_its_own() -> None:
    assert conf(replace(facts(host=EXCLUSIVE, cpus="2"), exclusive_cpus=True)) == [
        "CoreSpecCount=3"
    ]
    assert conf(facts(host=EXCLUSIVE, cpus="4")) == ["CoreSpecCount=2"], "a record of power saving"
    assert conf(replace(facts("CpuSpecList=7", host=EXCLUSIVE, cpus="4"), exclusive_cpus=True)) == [
        "CpuSpecList=7"
    ]


def with_gpus(verdict: Verdict, conf: str = "") -> Facts:
    return replace(facts(conf), gpus=verdict)


def test_gpus_are_reported_as_gres() -> None:
    found = registration(with_gpus(Verdict("gpu:nvidia_l4:1", "", "GPUs: one")))
    assert found.conf == "NodeAddr=10.0.0.9 MemSpecLimit=1024 Gres=gpu:nvidia_l4:1"
    assert "GPUs: one" in found.summary


def test_a_pod_without_all_its_gpus_registers_drained_with_the_reason() -> None:
    given = with_gpus(Verdict("gpu:nvidia_l4:7", "slurm-node: 7 of 8", ""), "Features=a")
    assert conf(given) == [
        "Gres=gpu:nvidia_l4:7",
        "State=DRAIN",
        'Reason="slurm-node:',
        "7",
        "of",
        '8"',
        "Features=a",
    ]


def test_a_reason_contains_nothing_that_a_shell_or_slurm_would_take_for_itself() -> None:
    found = registration(with_gpus(Verdict("", "slurm-node: \"a\" 'b' $c `d` #e \\f", "")))
    assert found.conf.endswith('Reason="slurm-node: a b c d e f"')


def test_no_gpu_leaves_no_empty_item() -> None:
    assert "Gres" not in registration(with_gpus(Verdict("", "", "GPUs: none"))).conf


def test_gres_and_state_of_the_nodesets_own_win() -> None:
    verdict = Verdict("gpu:nvidia_l4:1", "slurm-node: x", "")
    assert conf(with_gpus(verdict, "gres=gpu:l4:1 State=FUTURE")) == [
        "gres=gpu:l4:1",
        "State=FUTURE",
    ]
