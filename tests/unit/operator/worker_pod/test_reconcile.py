"""The patch that has a pod show its Slurm node's states."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars import objects
from sidecars.operator.worker_pod.reconcile import condition_operations, reconcile
from sidecars.workloads.names import POD_DEADLINE, POD_PROTECT
from tests.support.operator_parts import NAMESPACE, Parts, SlurmConnection

NOW = 1_700_000_000.0


def pod(conditions: list[dict[str, str]]) -> objects.Pod:
    return msgspec.convert(
        {
            "metadata": {"name": "p", "uid": "u", "resourceVersion": "7"},
            "status": {"conditions": conditions},
        },
        objects.Pod,
    )


def condition(kind: str, message: str = "") -> dict[str, str]:
    return {"type": kind, "status": "True", "message": message}


def patched(
    conditions: list[dict[str, str]], operations: list[dict[str, Any]]
) -> list[dict[str, str]]:
    """RFC 6902, as far as it is used."""
    item: dict[str, Any] = {
        "metadata": {"uid": "u", "resourceVersion": "7"},
        "status": {"conditions": [*conditions]},
    }
    for operation in operations:
        *way, last = operation["path"].split("/")[1:]
        at: Any = item
        for part in way:
            at = at[int(part) if isinstance(at, list) else part]
        spot = int(last) if isinstance(at, list) and last != "-" else last
        match operation["op"]:
            case "test":
                assert at[spot] == operation["value"]
            case "remove":
                del at[spot]
            case "add" if last == "-":
                at.append(operation["value"])
            case "add":
                at[spot] = operation["value"]
    return list(item["status"]["conditions"])


KINDS = st.sampled_from(
    ["SlurmNodeStateIdle", "SlurmNodeStateMixed", "SlurmNodeStateDrain", "SlurmNodeStateDown"]
)
WANTED = st.dictionaries(KINDS, st.sampled_from(["", "bad disk"]))


@given(
    st.permutations(["Ready", "Initialized", *(f"SlurmNodeState{i}" for i in ("Idle", "Drain"))]),
    WANTED,
)
def test_after_the_patch_the_states_are_as_wanted_and_the_kubelets_conditions_untouched(
    before: list[str], wanted: dict[str, str]
) -> None:
    present = [condition(kind) for kind in before]
    after = patched(present, condition_operations(pod(present), wanted, NOW))
    assert {
        it["type"]: it["message"] for it in after if it["type"].startswith("SlurmNodeState")
    } == wanted
    assert [it for it in after if not it["type"].startswith("Slurm")] == [
        it for it in present if not it["type"].startswith("Slurm")
    ]
    assert all(it["status"] == "True" for it in after)


def test_a_pod_that_shows_it_already_is_not_written_to() -> None:
    present = [condition("Ready"), condition("SlurmNodeStateIdle", "x")]
    assert condition_operations(pod(present), {"SlurmNodeStateIdle": "x"}, NOW) == []


def test_a_pod_without_any_condition_gets_a_list_unless_it_changed_meanwhile() -> None:
    operations = condition_operations(pod([]), {"SlurmNodeStateIdle": ""}, NOW)
    assert {"op": "test", "path": "/metadata/resourceVersion", "value": "7"} in operations
    assert [it["type"] for it in patched([], operations)] == ["SlurmNodeStateIdle"]


@pytest.mark.looptime
async def test_a_terminating_pod_shows_its_jobs_and_their_end_and_nothing_without_jobs() -> None:
    slurm = SlurmConnection()
    parts = Parts(connect=lambda *_: slurm)
    parts.custom("NodeSet", "slinky", {"controllerRef": {"name": "slurm"}})
    pods = [parts.pod(name, terminating=True) for name in ("busy", "idle")]
    for it in pods:
        slurm.model.node_register(it.spec.hostname)
    job = slurm.model.job_start(["busy"], time_limit=10)
    slurm.model.update_node("busy", "DRAIN", "slurm-node: the pod is terminating")
    await parts.connect()
    for it in pods:
        await reconcile(parts.runtime, lambda *_: False, (NAMESPACE, it.metadata.name))
    [(_, _, name)] = [made for made in parts.requests.made if made[:2] == ("patch", "Pod")]
    [patch] = parts.requests.of("patch", "Pod")
    assert name == "busy"
    assert patch["metadata"]["labels"] == {POD_PROTECT: "true"}
    assert patch["metadata"]["annotations"] == {
        POD_DEADLINE: "2023-11-14T22:23:20Z",
        "karpenter.sh/do-not-disrupt": "true",
        "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    }
    assert slurm.model.jobs[job].start_time + 600 == 1_700_000_600


@pytest.mark.looptime
@pytest.mark.parametrize("forged", ["", "never", "9999-12-31T23:59:59Z", "\x1b[2J\n" + "9" * 9999])
async def test_what_others_write_in_the_place_of_protection_and_deadline_is_replaced(
    forged: str,
) -> None:
    slurm = SlurmConnection()
    parts = Parts(connect=lambda *_: slurm)
    parts.custom("NodeSet", "slinky", {"controllerRef": {"name": "slurm"}})
    before = parts.pod("busy", terminating=True).metadata
    labels = {**before.labels, POD_PROTECT: "false"}
    meta = {"labels": labels, "annotations": {**before.annotations, POD_DEADLINE: forged}}
    pod = parts.pod("busy", terminating=True, meta=meta)
    slurm.model.node_register(pod.spec.hostname)
    slurm.model.job_start(["busy"], time_limit=10)
    slurm.model.update_node("busy", "DRAIN", "slurm-node: the pod is terminating")
    await parts.connect()
    await reconcile(parts.runtime, lambda *_: False, (NAMESPACE, "busy"))
    [patch] = parts.requests.of("patch", "Pod")
    assert patch["metadata"]["labels"] == {POD_PROTECT: "true"}
    assert patch["metadata"]["annotations"][POD_DEADLINE] == "2023-11-14T22:23:20Z"


@pytest.mark.looptime
async def test_node_autoscalers_keep_the_kubernetes_node_of_a_worker_with_jobs() -> None:
    slurm = SlurmConnection()
    parts = Parts(connect=lambda *_: slurm)
    own = {"karpenter.sh/do-not-disrupt": "false"}
    template = {"metadata": {"annotations": own}}
    parts.custom("NodeSet", "slinky", {"controllerRef": {"name": "slurm"}, "template": template})
    kept = {**own, "cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    for name, annotations in (("busy", own), ("idle", kept)):
        pod = parts.pod(name, meta={"annotations": annotations})
        slurm.model.node_register(pod.spec.hostname)
        if name == "busy":
            slurm.model.job_start([name], time_limit=10)
    await parts.connect()
    for name in ("busy", "idle"):
        await reconcile(parts.runtime, lambda *_: False, (NAMESPACE, name))
    changed = [
        (made[2], patch["metadata"]["annotations"])
        for made, patch in zip(
            [it for it in parts.requests.made if it[:2] == ("patch", "Pod")],
            parts.requests.of("patch", "Pod"),
            strict=True,
        )
        if "annotations" in patch.get("metadata", {})
    ]
    evict = "cluster-autoscaler.kubernetes.io/safe-to-evict"
    assert changed == [("busy", {evict: "false"}), ("idle", {evict: None})]
