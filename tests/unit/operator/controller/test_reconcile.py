"""One pass over one Controller."""

import pytest

from sidecars.kube import STATEFUL_SETS
from sidecars.operator.controller.reconcile import reconcile
from tests.support.operator_parts import CONTROLLER, Parts

pytestmark = pytest.mark.looptime


def applied(parts: Parts) -> set[tuple[str, str]]:
    return {(kind, name) for verb, kind, name in parts.requests.made if verb == "apply"}


async def run(parts: Parts) -> None:
    await reconcile(parts.runtime, parts.operator.controllers, CONTROLLER)


async def test_a_missing_key_is_a_wait_that_names_it_and_nothing_is_applied() -> None:
    parts = Parts()
    parts.controller()
    await run(parts)
    ready = parts.condition("Controller")
    assert (ready["status"], ready["reason"]) == ("False", "ReferenceMissing")
    assert "slurm-auth-slurm" in ready["message"]
    assert applied(parts) == set()


async def test_the_first_pass_writes_the_daemons_keys_and_waits_until_they_are_seen() -> None:
    parts = Parts()
    parts.secret("slurm-auth-slurm", {"slurm.key": b"k" * 32})
    parts.secret("slurm-auth-jwt", {"jwt.key": b"j" * 32})
    parts.controller()
    await run(parts)
    assert applied(parts) == {("Secret", "slurm-auth-slurm-jwks")}
    assert parts.condition("Controller")["reason"] == "WaitingForKeys"


async def test_with_its_keys_the_configuration_is_published_before_slurmctld_is_applied() -> None:
    parts = Parts()
    parts.keys()
    parts.controller()
    await run(parts)
    kinds = [kind for verb, kind, _ in parts.requests.made if verb == "apply"]
    assert kinds.index("ConfigMap") < kinds.index("StatefulSet")
    assert parts.condition("Controller")["reason"] == "Starting"
    assert parts.condition("Controller", "SlurmReachable")["reason"] == "NoRestApi"


async def test_a_configuration_with_a_fault_is_not_published_and_slurmctld_is_applied_all_the_same() -> None:
    parts = Parts()
    parts.keys()
    parts.controller(extraConf="ClusterName=other\n")
    await run(parts)
    assert "ConfigMap" not in {kind for kind, _ in applied(parts)}
    assert "StatefulSet" in {kind for kind, _ in applied(parts)}
    assert parts.condition("Controller", "ConfigurationAccepted")["status"] == "False"


async def test_a_controller_that_is_being_deleted_is_held_by_its_nodesets_alone() -> None:
    parts = Parts()
    parts.keys()
    manifest = parts.controller()
    deleting = {"deletionTimestamp": "2026-01-01T00:00:00Z", "finalizers": ["slinky.slurm.net/in-use"]}
    parts.custom("Controller", "slurm", manifest["spec"], **deleting)
    parts.custom("NodeSet", "slinky", {"controllerRef": {"name": "slurm"}})
    await run(parts)
    assert parts.condition("Controller")["reason"] == "InUse"
    parts.runtime.caches.nodesets.store.discard(parts.runtime.caches.nodesets.store.known()[0])
    await run(parts)
    assert parts.requests.of("patch", "Controller")[-1]["metadata"]["finalizers"] == []
    assert applied(parts) == set()


async def test_a_statefulset_that_is_ready_is_a_ready_controller() -> None:
    parts = Parts()
    parts.keys()
    parts.controller()
    parts.workload(STATEFUL_SETS, "slurm-controller", "slurmctld", "slurmctld:26.05")
    await run(parts)
    assert parts.condition("Controller")["reason"] == "Ready"
