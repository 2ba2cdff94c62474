"""Samples of nodes. Expected values are counted by hand from the records in each test."""

import json
from pathlib import Path

from sidecars.contract.reasons import HEALTH_PREFIX, NOT_RESPONDING, OPERATOR_PREFIX
from sidecars.exporter.nodes import add_nodes, sinfo_state
from sidecars.slurm import protocol
from sidecars.slurm.records import Node
from sidecars.slurm.usage import NodeUsage, NodeUsages
from tests.unit.exporter.exposition import everything, nonzero, values

GIB = 2**30
RECORDED = Path(__file__).parents[1] / "slurm" / "fixtures" / "v0.0.45-nodes.json"


def usage(
    name: str, *words: str, memory: int = 1024, used_memory: int = 0, **fields: object
) -> NodeUsage:
    """A node of 8 CPUs, of which jobs can use 6, in the partition gpu."""
    used = int(str(fields.pop("used", 0)))
    node = Node(
        name,
        frozenset(words),
        partitions=("gpu",),
        cpus=8,
        alloc_cpus=used,
        real_memory=memory + 512,
        alloc_memory=used_memory,
        **fields,  # type: ignore[arg-type]
    )
    return NodeUsage(
        node,
        effective_cpus=6,
        idle_cpus=8 - used,
        effective_memory=memory,
        free_memory=100,
        load=1.5,
    )


def counted(
    *nodes: NodeUsage, partitions: tuple[str, ...] = ()
) -> dict[str, dict[tuple[str, ...], float]]:
    samples = everything()
    add_nodes(samples, nodes, partitions)
    return values(samples)


def test_nodes_are_counted_by_base_state_and_each_state_is_present() -> None:
    found = counted(
        usage("a", "IDLE"), usage("b", "IDLE", "DRAIN"), usage("c", "MIXED", "COMPLETING")
    )
    assert nonzero(found["slurm_nodes"]) == {("idle",): 2, ("mixed",): 1}
    assert found["slurm_nodes"].keys() >= {
        ("allocated",),
        ("down",),
        ("error",),
        ("future",),
        ("unknown",),
    }
    assert nonzero(found["slurm_nodes_flagged"]) == {("drain",): 1, ("completing",): 1}
    assert found["slurm_nodes_total"] == {(): 3}
    assert found["slurm_nodes_idle_total"] == {(): 2}
    assert found["slurm_nodes_drain_total"] == {(): 1}


def test_a_state_that_no_slurm_documents_counts_as_unrecognized_and_its_cpus_are_not_idle() -> None:
    samples = everything()
    add_nodes(samples, [usage("a", "SHINY"), usage("b", "IDLE", "HUMMING")], ())
    found = values(samples)
    assert nonzero(found["slurm_nodes"]) == {("unrecognized",): 1, ("idle",): 1}
    assert nonzero(found["slurm_nodes_flagged"]) == {("unrecognized",): 2}
    assert found["slurm_cpus"] == {("allocated",): 0, ("idle",): 6, ("other",): 6}
    assert samples.unreadable == 1


def test_cpus_and_memory_are_allocated_idle_or_other_and_add_up_to_what_jobs_can_use() -> None:
    found = counted(
        usage("a", "MIXED", used=4, used_memory=256),
        usage("b", "MIXED", "DRAIN", used=1, used_memory=1024),
        usage("c", "DOWN"),
    )
    assert found["slurm_cpus"] == {("allocated",): 5, ("idle",): 2, ("other",): 11}
    assert found["slurm_memory_bytes"] == {
        ("allocated",): 1.25 * GIB,
        ("idle",): 0.75 * GIB,
        ("other",): GIB,
    }
    assert found["slurm_cpus_alloc"] == {(): 5}
    assert found["slurm_cpus_total"] == {(): 18}


def test_gpus_are_counted_by_type_and_use() -> None:
    found = counted(
        usage(
            "a", "MIXED", gres="gpu:h100:8(S:0-1),shard:4", gres_used="gpu:h100:3(IDX:0-2),shard:0"
        ),
        usage("b", "IDLE", "DRAIN", gres="gpu:h100:8", gres_used="gpu:h100:0"),
        usage("c", "IDLE", gres="gpu:2"),
    )
    assert nonzero(found["slurm_gpus"]) == {
        ("allocated", "h100"): 3,
        ("idle", "h100"): 5,
        ("other", "h100"): 8,
        ("idle", ""): 2,
    }
    assert found["slurm_node_gpus_configured"] == {("a", "h100"): 8, ("b", "h100"): 8, ("c", ""): 2}
    assert nonzero(found["slurm_node_gpus_allocated"]) == {("a", "h100"): 3}
    assert found["slurm_gpus_total"] == {(): 18}
    assert found["slurm_gpus_alloc"] == {(): 3}
    assert found["slurm_gpus_idle"] == {(): 15}
    assert found["slurm_gpus_utilization"] == {(): 3 / 18}


def test_what_is_powered_down_is_not_idle_and_a_node_that_boots_is_not_unavailable() -> None:
    gpus = "gpu:h100:8"
    found = counted(
        usage("a", "IDLE", "CLOUD", "POWERED_DOWN", gres=gpus),
        usage("b", "IDLE", "POWERING_UP", "NOT_RESPONDING", gres=gpus),
        usage("c", "ALLOCATED", "POWERING_UP", "NOT_RESPONDING", used=6),
        usage("d", "IDLE", gres=gpus),
        usage("e", "IDLE", "RESERVED"),
        usage("f", "IDLE", "DRAIN", reason="fan"),
    )
    assert found["slurm_cpus"] == {("allocated",): 6, ("idle",): 12, ("other",): 18}
    assert nonzero(found["slurm_gpus"]) == {("idle", "h100"): 8, ("other", "h100"): 16}
    assert found["slurm_partition_gpus"]["gpu", "idle", "h100"] == 8
    assert found["slurm_nodes_free"] == {(): 1}
    assert found["slurm_nodes_unavailable"] == {("drain", "foreign"): 1}


def test_gres_that_can_not_be_read_is_reported_and_the_node_still_counts() -> None:
    samples = everything()
    add_nodes(samples, [usage("a", "IDLE", gres="gpu:::")], ())
    assert samples.unreadable == 1
    assert values(samples)["slurm_nodes"]["idle",] == 1


def test_unavailable_nodes_are_counted_by_owner_and_cause() -> None:
    nodes = (
        usage("a", "IDLE", "DRAIN", reason=OPERATOR_PREFIX + "Pod (ns/a) was cordoned"),
        usage("b", "MIXED", "DRAIN", reason=HEALTH_PREFIX + "gpu-count: 7 of 8"),
        usage("c", "DOWN", "NOT_RESPONDING", reason=NOT_RESPONDING, reason_set_by_user="slurm"),
        usage(
            "d",
            "IDLE",
            "DRAIN",
            reason="broken fan",
            reason_set_by_user="root",
            reason_changed_at=1_800_000_000,
        ),
        usage("e", "IDLE", "NOT_RESPONDING"),
        usage("f", "IDLE"),
    )
    found = counted(*nodes)
    assert found["slurm_nodes_unavailable"] == {
        ("drain", "operator"): 1,
        ("drain", "pod"): 1,
        ("down", "slurmctld"): 1,
        ("drain", "foreign"): 1,
        ("not_responding", "nobody"): 1,
    }
    assert found["slurm_partition_nodes_unavailable"]["foreign", "gpu"] == 1
    assert found["slurm_node_unavailable"]["drain", "d", "foreign", "broken fan"] == 1
    assert found["slurm_node_unavailable_since_timestamp_seconds"] == {("d",): 1_800_000_000}
    assert {labels[1] for labels in found["slurm_node_unavailable"]} == {"a", "b", "c", "d", "e"}


def test_a_partition_has_the_nodes_that_name_it_and_one_without_nodes_has_zeros() -> None:
    found = counted(usage("a", "IDLE"), partitions=("empty", "gpu"))
    assert found["slurm_partition_nodes"]["gpu", "idle"] == 1
    assert found["slurm_partition_nodes"]["empty", "idle"] == 0
    assert found["slurm_partition_cpus"]["empty", "idle"] == 0
    assert found["slurm_partition_nodes_cpus_total"] == {("gpu",): 8, ("empty",): 0}


def test_other_name_sets_keep_their_units() -> None:
    found = counted(usage("a", "MIXED", used=4, used_memory=256))
    assert found["slurm_node_memory_bytes"] == {("a",): 1536}
    assert found["slurm_node_memory_effective_bytes"] == {("a",): 1024}
    assert found["slurm_node_memory_alloc_bytes"] == {("a",): 256}
    assert found["slurm_node_mem_alloc"] == {("a", "mixed"): 256}
    assert found["slurm_node_memory_allocated_bytes"] == {("a",): 256 * 2**20}
    assert found["slurm_node_cpu_load"] == {("a",): 1.5}


def test_a_reason_with_odd_characters_of_any_length_is_one_label() -> None:
    reason = 'a "quote", a \\ backslash,\na line and \x1b[31m colour é ' + "x" * 500
    found = counted(usage('we"ird\\node', "IDLE", "DRAIN", reason=reason))
    ((cause, node, owner, shown),) = found["slurm_node_unavailable"]
    assert (cause, node, owner) == ("drain", 'we"ird\\node', "foreign")
    assert shown.startswith(
        'a "quote", a \\ backslash, a line and \N{REPLACEMENT CHARACTER}[31m colour é x'
    )
    assert len(shown) == 200


def test_two_records_of_one_node_are_one_series() -> None:
    found = counted(usage("a", "IDLE"), usage("a", "IDLE", used=2))
    assert found["slurm_node_cpus_allocated"] == {("a",): 2}
    assert found["slurm_nodes"]["idle",] == 2


def test_the_words_of_sinfo() -> None:
    expected = {
        ("IDLE",): "idle",
        ("IDLE", "DRAIN"): "drained",
        ("MIXED", "DRAIN"): "draining",
        ("DOWN", "DRAIN"): "drained",
        ("DOWN", "NOT_RESPONDING"): "down*",
        ("IDLE", "MAINTENANCE", "RESERVED"): "maint",
        ("IDLE", "MAINTENANCE", "NOT_RESPONDING"): "maint*",
        ("MIXED", "MAINTENANCE"): "mixed$",
        ("DOWN", "MAINTENANCE"): "down$",
        ("IDLE", "DRAIN", "MAINTENANCE"): "drained$",
        ("IDLE", "PLANNED"): "planned",
        ("IDLE", "PLANNED", "NOT_RESPONDING"): "idle*",
        ("MIXED", "PLANNED"): "mixed-",
        ("IDLE", "BLOCKED"): "blocked",
        ("IDLE", "CLOUD", "POWERED_DOWN"): "idle~",
        ("IDLE", "CLOUD", "POWERING_DOWN"): "idle%",
        ("IDLE", "CLOUD", "POWERING_UP"): "idle#",
        ("ALLOCATED", "CLOUD", "POWERING_UP", "NOT_RESPONDING"): "allocated#",
        ("MIXED", "CLOUD", "POWER_DOWN"): "mixed!",
        ("IDLE", "REBOOT_REQUESTED"): "reboot",
        ("IDLE", "REBOOT_REQUESTED", "DRAIN"): "reboot",
        ("DOWN", "REBOOT_ISSUED"): "reboot^",
        ("MIXED", "DRAIN", "REBOOT_REQUESTED"): "draining@",
        ("IDLE", "DRAIN", "INVALID_REG"): "inval",
        ("IDLE", "FAIL", "NOT_RESPONDING"): "fail*",
        ("FUTURE", "NOT_RESPONDING"): "future*",
        ("UNKNOWN",): "unknown",
        ("IDLE", "RESERVED"): "reserved",
        ("IDLE", "COMPLETING"): "completing",
        ("ALLOCATED", "COMPLETING"): "allocated+",
        ("DOWN", "COMPLETING", "NOT_RESPONDING"): "down*",
        ("ALLOCATED", "FAIL"): "failing",
    }
    assert {words: sinfo_state(frozenset(words)) for words in expected} == expected


def test_recorded_nodes_of_slurm_are_counted() -> None:
    body = json.dumps(json.loads(RECORDED.read_text())["body"]).encode()
    answer = protocol.decode(protocol.get_node_usage(), 200, body)
    assert isinstance(answer, NodeUsages)
    found = counted(*answer.nodes)
    # n1 is idle; n2 is allocated with 2 CPUs and all memory, n3 mixed with one CPU and all memory,
    # 24105 MiB each.
    assert nonzero(found["slurm_nodes"]) == {("idle",): 1, ("allocated",): 1, ("mixed",): 1}
    assert found["slurm_cpus"] == {("allocated",): 3, ("idle",): 3, ("other",): 0}
    assert found["slurm_memory_bytes"]["allocated",] == 2 * 24105 * 2**20
    assert found["slurm_node_memory_unused_bytes"]["n1",] == 21342 * 2**20
    assert found["slurm_node_cpu_load"]["n1",] == 0.99
    assert found["slurm_partition_nodes_total"] == {("all",): 3}
