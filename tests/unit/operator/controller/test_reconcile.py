"""One pass over one Controller."""

import asyncio
import copy
import itertools
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from sidecars import objects
from sidecars.contract.manifest import decode
from sidecars.contract.status import Rejection, Stage, Status, encode
from sidecars.kube import STATEFUL_SETS, Conflict, Forbidden, Invalid, Manifest, ServerError
from sidecars.operator.controller.reconcile import reconcile
from sidecars.operator.runtime.apply import NameTakenError
from sidecars.operator.runtime.errors import RefusedError
from sidecars.operator.runtime.kept import AGAIN_SECONDS
from sidecars.policy import gate
from tests.support.operator_parts import CONTROLLER, Parts

pytestmark = pytest.mark.looptime
VERSIONS = itertools.count(3000)


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


class Sidecar:
    """Answers GET /status as the `reconfigure` of a pod whose slurmctld runs, or refuses, what is
    published.
    """

    def __init__(self) -> None:
        self.running: str | None = None
        self.refused: str | None = None

    async def fetch(self, *_: str) -> Mapping[str, Any]:
        rejected = (
            Rejection(self.refused, Stage.DRY_RUN, "slurm.conf", 9, "no such plugin", True)
            if self.refused
            else None
        )
        candidate = self.refused or self.running
        return encode(
            Status(candidate, accepted=self.running, running=self.running, rejected=rejected)
        )


def config(parts: Parts, name: str) -> dict[str, str]:
    """The data of a ConfigMap as last applied."""
    [*_, last] = [
        body for body in parts.requests.of("apply", "ConfigMap") if body["metadata"]["name"] == name
    ]
    return dict(last["data"])


def published(parts: Parts) -> str:
    """The digest of the newest configuration."""
    return decode(config(parts, "slurm-config")["manifest.json"]).sha256


async def passes(parts: Parts) -> None:
    """Passes with all that they cause: the watch shows what was applied, and the pods are asked."""
    for _ in range(3):
        await run(parts)
        parts.follow_applied()
        await asyncio.sleep(1)


async def test_the_first_configuration_is_there_for_slurmrestd_before_slurmctld_starts() -> None:
    parts = Parts()
    parts.keys()
    parts.controller()
    await run(parts)
    assert config(parts, "slurm-config-accepted") == config(parts, "slurm-config")


async def test_slurmrestd_gets_a_changed_configuration_when_slurmctld_runs_with_it() -> None:
    sidecar = Sidecar()
    parts = Parts(fetch_status=sidecar.fetch)
    parts.keys()
    parts.controller()
    await passes(parts)
    first = sidecar.running = published(parts)
    parts.slurmctld_pod()
    parts.controller(extraConf="KillWait=7\n")
    await passes(parts)
    assert "KillWait=7" in config(parts, "slurm-config")["slurm.conf"]
    assert decode(config(parts, "slurm-config-accepted")["manifest.json"]).sha256 == first
    sidecar.running = published(parts)
    await passes(parts)
    assert config(parts, "slurm-config-accepted") == config(parts, "slurm-config")
    await parts.operator.controllers.aclose()


async def test_a_foreign_pod_disruption_budget_with_the_workers_name_delays_nothing_else() -> None:
    sidecar = Sidecar()
    parts = Parts(fetch_status=sidecar.fetch)
    parts.keys()
    parts.custom(
        "NodeSet",
        "slinky",
        {"controllerRef": {"name": "slurm"}, "slurmd": {"image": "slurmd:26.05"}},
    )
    parts.controller()
    await passes(parts)
    sidecar.running = published(parts)
    parts.slurmctld_pod()
    name = "slurm-workers-pdb-slurm"
    metadata = {"namespace": "slurm", "name": name, "uid": "foreign", "resourceVersion": "1"}
    parts.requests.stored["PodDisruptionBudget", name] = {
        "kind": "PodDisruptionBudget",
        "metadata": metadata,
    }
    parts.requests.refusals["apply PodDisruptionBudget"] = Conflict(409, "Conflict", "it exists")
    parts.controller(extraConf="KillWait=7\n")
    for _ in range(3):
        with pytest.raises(NameTakenError):
            await run(parts)
        parts.follow_applied()
        sidecar.running = published(parts)
        await asyncio.sleep(1)
    assert "KillWait=7" in config(parts, "slurm-config-accepted")["slurm.conf"]
    ready = parts.condition("Controller")
    assert (ready["status"], ready["reason"]) == ("False", "NameTaken")
    assert "PodDisruptionBudget slurm/slurm-workers-pdb-slurm" in ready["message"]
    assert parts.condition("Controller", gate.RUNNING)["status"] == "True"
    await parts.operator.controllers.aclose()


async def test_slurmrestd_never_gets_a_refused_configuration_and_ready_reports_it() -> None:
    sidecar = Sidecar()
    parts = Parts(fetch_status=sidecar.fetch)
    parts.keys()
    parts.controller()
    parts.workload(STATEFUL_SETS, "slurm-controller", "slurmctld", "slurmctld:26.05")
    await passes(parts)
    sidecar.running = published(parts)
    parts.slurmctld_pod()
    parts.controller(extraConf="TopologyPlugin=topology/nope\n")
    await run(parts)
    parts.follow_applied()
    sidecar.refused = published(parts)
    await passes(parts)
    assert "nope" not in config(parts, "slurm-config-accepted")["slurm.conf"]
    ready = parts.condition("Controller")
    assert (ready["status"], ready["reason"]) == ("True", "ConfigurationRefused")
    assert "no such plugin" in ready["message"]
    await parts.operator.controllers.aclose()


async def test_with_a_slurmctld_that_runs_already_the_accepted_configuration_is_not_guessed() -> (
    None
):
    sidecar = Sidecar()
    parts = Parts(fetch_status=sidecar.fetch)
    parts.keys()
    parts.controller(extraConf="TopologyPlugin=topology/nope\n")
    parts.slurmctld_pod()
    sidecar.running = "a" * 64
    await passes(parts)
    assert ("ConfigMap", "slurm-config-accepted") not in applied(parts)
    await parts.operator.controllers.aclose()


async def test_a_configuration_with_a_fault_is_not_published_and_slurmctld_is_applied() -> None:
    parts = Parts()
    parts.keys()
    parts.controller(extraConf="ClusterName=other\n")
    await run(parts)
    assert "ConfigMap" not in {kind for kind, _ in applied(parts)}
    assert "StatefulSet" in {kind for kind, _ in applied(parts)}
    assert parts.condition("Controller", "ConfigurationAccepted")["status"] == "False"
    ready = parts.condition("Controller")
    assert ready["reason"] == "ConfigurationRefused"
    assert "ClusterName" in ready["message"]


async def test_a_controller_that_is_being_deleted_waits_for_its_nodesets_alone() -> None:
    parts = Parts()
    parts.keys()
    manifest = parts.controller()
    deleting = {
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["slinky.slurm.net/in-use"],
    }
    parts.custom("Controller", "slurm", manifest["spec"], **deleting)
    parts.custom("NodeSet", "slinky", {"controllerRef": {"name": "slurm"}})
    await run(parts)
    assert parts.condition("Controller")["reason"] == "InUse"
    parts.runtime.caches.nodesets.store.discard(parts.runtime.caches.nodesets.store.known()[0])
    await run(parts)
    assert parts.requests.of("patch", "Controller")[-1]["metadata"]["finalizers"] == []
    assert applied(parts) == set()


def rolled_out(parts: Parts) -> None:
    """slurmctld's StatefulSet as the last pass has applied it, with its pod."""
    [*_, last] = parts.requests.of("apply", "StatefulSet")
    parts.workload(STATEFUL_SETS, "slurm-controller", "slurmctld", "slurmctld:26.05")
    store = parts.runtime.caches.stateful_sets.store
    live = store.get("slurm", "slurm-controller") or {}
    metadata = {**last["metadata"], "uid": "s", "resourceVersion": "2000", "generation": 1}
    metadata["ownerReferences"] = last["metadata"]["ownerReferences"]
    made: Manifest = {**copy.deepcopy(last), "status": live["status"], "metadata": metadata}
    store.put(made)
    parts.requests.stored["StatefulSet", "slurm-controller"] = made


async def test_a_statefulset_that_is_ready_is_a_ready_controller() -> None:
    parts = Parts()
    parts.keys()
    parts.controller()
    await run(parts)
    rolled_out(parts)
    await run(parts)
    assert parts.condition("Controller")["reason"] == "Ready"


def deleted(parts: Parts) -> None:
    """The StatefulSet is, and its pod stays."""
    store = parts.runtime.caches.stateful_sets.store
    store.discard(store.known()[0])


SIZE = "4Gi"


async def settled(sidecar: Sidecar) -> Parts:
    """A Controller that runs, with its volume of SIZE."""
    parts = Parts(fetch_status=sidecar.fetch)
    parts.keys()
    parts.controller()
    await passes(parts)
    rolled_out(parts)
    sidecar.running = published(parts)
    parts.slurmctld_pod()
    claim(parts, SIZE)
    await passes(parts)
    # It has got the annotation with its version.
    rolled_out(parts)
    assert parts.condition("Controller")["reason"] == "Ready"
    parts.requests.forget()
    return parts


def claim(parts: Parts, storage: str, phase: str = "Bound") -> None:
    labels = {"app.kubernetes.io/name": "slurmctld", "app.kubernetes.io/instance": "slurm"}
    name, version = "statesave-slurm-controller-0", str(next(VERSIONS))
    manifest = {
        "metadata": {
            "namespace": "slurm",
            "name": name,
            "uid": "c",
            "resourceVersion": version,
            "labels": labels,
        },
        "spec": {"resources": {"requests": {"storage": storage}}},
        "status": {"phase": phase, "capacity": {"storage": SIZE}},
    }
    parts.runtime.caches.other_claims.store.put(
        msgspec.convert(manifest, objects.PersistentVolumeClaim)
    )


def sized(parts: Parts, storage: str, **more: Any) -> None:
    """The Controller asks for a volume of this size."""
    parts.controller(
        persistence={
            "resources": {"requests": {"storage": storage}},
            **more.pop("persistence", {}),
        },
        **more,
    )


async def test_a_larger_volume_grows_the_claim_and_then_recreates_its_statefulset_only() -> None:
    parts = await settled(Sidecar())
    sized(parts, "8Gi")
    await run(parts)
    assert parts.requests.of("patch", "PersistentVolumeClaim") == [
        {"spec": {"resources": {"requests": {"storage": "8Gi"}}}}
    ]
    [options] = parts.requests.of("delete", "StatefulSet")
    assert options["propagation_policy"] == "Orphan"
    order = [
        (verb, kind)
        for verb, kind, _ in parts.requests.made
        if verb in {"patch", "delete", "try"} and kind != "Pod"
    ]
    assert order == [
        ("patch", "PersistentVolumeClaim"),
        ("try", "StatefulSet"),
        ("delete", "StatefulSet"),
    ]
    # The pass after its deletion, also one of another process.
    deleted(parts)
    claim(parts, "8Gi")
    await run(parts)
    [*_, created] = parts.requests.of("apply", "StatefulSet")
    [template] = created["spec"]["volumeClaimTemplates"]
    assert template["spec"]["resources"]["requests"]["storage"] == "8Gi"
    await parts.operator.controllers.aclose()


@pytest.mark.parametrize("status", [{"readyReplicas": 0}, {"updatedReplicas": 0}])
async def test_while_slurmctlds_pod_is_not_ready_its_claim_grows_and_the_statefulset_stays(
    status: Manifest,
) -> None:
    parts = await settled(Sidecar())
    store = parts.runtime.caches.stateful_sets.store
    live = store.get("slurm", "slurm-controller") or {}
    metadata = {**live["metadata"], "resourceVersion": "2002"}
    store.put({**live, "metadata": metadata, "status": {**live["status"], **status}})
    sized(parts, "8Gi")
    await run(parts)
    assert parts.requests.of("patch", "PersistentVolumeClaim")
    assert not parts.requests.of("delete", "StatefulSet")
    await parts.operator.controllers.aclose()


async def test_a_deleted_statefulset_is_created_again_with_any_fault_of_configuration() -> None:
    parts = await settled(Sidecar())
    deleted(parts)
    sized(parts, "8Gi", extraConf="ClusterName=other\n")
    await run(parts)
    assert parts.requests.of("apply", "StatefulSet")
    assert parts.condition("Controller", gate.ACCEPTED)["reason"] == "Invalid"
    await parts.operator.controllers.aclose()


async def test_a_volume_that_cannot_grow_is_named_and_all_else_is_applied_and_reported() -> None:
    parts = await settled(Sidecar())
    forbidden = Forbidden(403, "Forbidden", "the storageclass must support resize")
    parts.requests.refusals["patch PersistentVolumeClaim"] = forbidden
    sized(
        parts,
        "8Gi",
        slurmctld={"image": "slurmctld:26.05", "resources": {"limits": {"memory": "2Gi"}}},
    )
    await run(parts)
    ready = parts.condition("Controller")
    assert (ready["status"], ready["reason"]) == ("True", "ChangeNotApplied")
    assert "spec.persistence.resources.requests.storage: 4Gi → 8Gi" in ready["message"]
    assert "the storageclass must support resize" in ready["message"]
    [applied] = parts.requests.of("apply", "StatefulSet")
    assert (
        applied["spec"]["volumeClaimTemplates"][0]["spec"]["resources"]["requests"]["storage"]
        == SIZE
    )
    [slurmctld] = [
        it for it in applied["spec"]["template"]["spec"]["containers"] if it["name"] == "slurmctld"
    ]
    assert slurmctld["resources"]["limits"]["memory"] == "2Gi"
    assert not parts.requests.of("delete", "StatefulSet")
    for kind in (gate.ACCEPTED, gate.RUNNING, "SlurmKey"):
        assert parts.condition("Controller", kind)["status"] == "True"
    # It isn't asked for with each pass.
    await run(parts)
    assert len(parts.requests.of("patch", "PersistentVolumeClaim")) == 1
    parts.requests.refusals.clear()
    parts.now += 301
    await run(parts)
    assert len(parts.requests.of("patch", "PersistentVolumeClaim")) == 2
    await parts.operator.controllers.aclose()


@pytest.mark.parametrize(
    "error", [Forbidden(403, "Forbidden", "quota"), Invalid(422, "Invalid", "a policy")], ids=str
)
async def test_a_refused_statefulset_hides_no_other_condition_and_stops_no_configuration(
    error: Exception,
) -> None:
    sidecar = Sidecar()
    parts = await settled(sidecar)
    parts.requests.refusals["apply StatefulSet"] = error
    parts.controller(extraConf="KillWait=7\n", slurmctld={"image": "slurmctld:26.05.1"})
    for _ in range(3):
        with pytest.raises(RefusedError):
            await run(parts)
        parts.follow_applied()
        sidecar.running = published(parts)
        await asyncio.sleep(1)
    ready = parts.condition("Controller")
    assert (ready["status"], ready["reason"]) == ("False", "Refused")
    for kind in (gate.ACCEPTED, gate.RUNNING, "SlurmKey"):
        assert parts.condition("Controller", kind)["status"] == "True"
    assert "KillWait=7" in config(parts, "slurm-config-accepted")["slurm.conf"]
    # Nor does it hide that a configuration is refused.
    sidecar.refused = sidecar.running
    parts.controller(extraConf="KillWait=8\n", slurmctld={"image": "slurmctld:26.05.1"})
    with pytest.raises(RefusedError):
        await run(parts)
    parts.follow_applied()
    sidecar.refused = published(parts)
    for _ in range(2):
        await asyncio.sleep(1)
        with pytest.raises(RefusedError):
            await run(parts)
    assert parts.condition("Controller", gate.ACCEPTED)["status"] == "False"
    await parts.operator.controllers.aclose()


async def test_a_fault_of_the_api_server_with_the_statefulset_delays_no_configuration() -> None:
    sidecar = Sidecar()
    parts = await settled(sidecar)
    fault = ServerError(500, "InternalError", "failed calling webhook")
    parts.requests.refusals["apply StatefulSet"] = fault
    parts.controller(extraConf="KillWait=7\n", slurmctld={"image": "slurmctld:26.05.1"})
    for _ in range(3):
        with pytest.raises(ServerError):
            await run(parts)
        parts.follow_applied()
        sidecar.running = published(parts)
        await asyncio.sleep(1)
    assert "KillWait=7" in config(parts, "slurm-config-accepted")["slurm.conf"]
    for kind in ("Ready", gate.ACCEPTED, gate.RUNNING, "SlurmKey"):
        assert parts.condition("Controller", kind)["status"] == "True"
    await parts.operator.controllers.aclose()


async def test_a_pass_without_a_reference_leaves_what_is_known_of_the_configuration() -> None:
    parts = await settled(Sidecar())
    spec = {
        **(parts.requests.custom["Controller", "slurm"]["spec"]),
        "configFileRefs": [{"name": "missing"}],
    }
    parts.custom("Controller", "slurm", spec, generation=2)
    await run(parts)
    ready = parts.condition("Controller")
    assert (ready["reason"], ready["observedGeneration"]) == ("ReferenceMissing", 2)
    # It is known of the Controller before the change.
    for kind in (gate.ACCEPTED, gate.RUNNING):
        found = parts.condition("Controller", kind)
        assert (found["status"], found["observedGeneration"]) == ("True", 1)
    assert parts.condition("Controller", "SlurmKey")["observedGeneration"] == 2
    await parts.operator.controllers.aclose()


@pytest.mark.parametrize("kept", [("the size of the claim stays",), ()])
async def test_a_controller_is_looked_at_again_later_if_something_is_not_applied(
    kept: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = Parts()
    parts.keys()
    parts.controller()
    await run(parts)
    parts.runtime.kept.remember(("StatefulSet", "slurm", "slurm-controller"), kept)
    after: list[float] = []
    monkeypatch.setattr(
        parts.runtime.queues.controllers, "add_after", lambda _, seconds: after.append(seconds)
    )
    await run(parts)
    assert (AGAIN_SECONDS in after) is bool(kept)
    await parts.operator.controllers.aclose()
