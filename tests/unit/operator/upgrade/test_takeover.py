"""What of SchedMD's operator waits until slurmctld has been taken over, and how each kind's pass
shows it.
"""

from typing import Any

import pytest

from sidecars.kube import DEPLOYMENTS, STATEFUL_SETS, Conflict, Forbidden, Manifest, Resource
from sidecars.operator.controller.reconcile import reconcile as reconcile_controller
from sidecars.operator.loginset.reconcile import reconcile as reconcile_loginset
from sidecars.operator.nodeset.template import pod_source
from sidecars.operator.restapi.reconcile import reconcile as reconcile_restapi
from sidecars.operator.runtime.apply import ReplacedError
from sidecars.operator.runtime.errors import NotUsableError, RefusedError
from sidecars.operator.upgrade import takeover
from sidecars.workloads.resources import Controller, read
from tests.support.builders import KEYS
from tests.support.operator_parts import CONTROLLER, NAMESPACE, Parts
from tests.unit.operator.nodeset.builders import begin

pytestmark = pytest.mark.looptime
FORMER = [
    {
        "manager": "manager",
        "operation": "Update",
        "apiVersion": "apps/v1",
        "fieldsV1": {"f:spec": {}},
    }
]
STORAGE = {
    "host": "db",
    "database": "d",
    "username": "u",
    "passwordKeyRef": {"name": "db", "key": "p"},
}


def theirs(
    parts: Parts, resource: Resource, name: str, owner: tuple[str, str], **spec: Any
) -> Manifest:
    """A workload of SchedMD's operator, which the caches don't show."""
    kind, owner_name = owner
    owners = [{"kind": kind, "name": owner_name, "uid": f"uid-of-{owner_name}", "controller": True}]
    metadata: Manifest = {
        "namespace": NAMESPACE,
        "name": name,
        "uid": f"theirs-{name}",
        "resourceVersion": "5",
    }
    metadata |= {"ownerReferences": owners, "managedFields": FORMER, "labels": {}}
    manifest = {
        "kind": resource.kind,
        "metadata": metadata,
        "spec": {"template": {"spec": {}}, **spec},
    }
    parts.requests.stored[resource.kind, name] = manifest
    return manifest


def slurmctld(parts: Parts, **spec: Any) -> None:
    theirs(
        parts,
        STATEFUL_SETS,
        "slurm-controller",
        ("Controller", "slurm"),
        serviceName="slurm-controller",
        **spec,
    )
    parts.slurmctld_pod(ours=False)


def cluster() -> Parts:
    """A Controller with its keys."""
    parts = Parts()
    parts.keys()
    parts.controller()
    return parts


def former_cluster() -> Parts:
    """The same with the slurmctld of SchedMD's operator."""
    parts = cluster()
    slurmctld(parts)
    return parts


def applied(parts: Parts) -> list[str]:
    """All but the keys, which are new in any case."""
    return [
        f"{kind} {name}"
        for verb, kind, name in parts.requests.made
        if verb == "apply" and kind != "Secret"
    ]


async def one_pass(parts: Parts) -> None:
    await reconcile_controller(parts.runtime, parts.operator.controllers, CONTROLLER)


@pytest.mark.parametrize("unit", ["gone", "ours"])
async def test_a_statefulset_that_is_ours_or_does_not_exist_is_not_pending(unit: str) -> None:
    parts = Parts()
    if unit == "ours":
        parts.workload(STATEFUL_SETS, "slurm-controller", "slurmctld", "slurmctld:26.05")
    assert not await takeover.is_pending(
        parts.runtime, STATEFUL_SETS, NAMESPACE, "slurm-controller"
    )


async def test_a_statefulset_of_which_only_the_fields_have_been_taken_over_is_pending() -> None:
    # The operator has ended between its two writes.
    parts = Parts()
    live = parts.workload(STATEFUL_SETS, "slurm-controller", "slurmctld", "slurmctld:26.05")
    del live["metadata"]["annotations"]
    assert await takeover.is_pending(parts.runtime, STATEFUL_SETS, NAMESPACE, "slurm-controller")
    waits = takeover.slurmctld_first(parts.runtime, read(Controller, parts.controller()))
    assert waits is not None
    assert "StatefulSet slurm-controller is taken over" in waits.message


async def test_schedmds_slurmctld_keeps_its_configuration_while_it_is_replaced() -> None:
    parts = former_cluster()
    parts.requests.refusals["apply StatefulSet"] = AssertionError("deleted first")
    # The API server refuses to create what exists; these Services are new.
    with pytest.raises(ReplacedError):
        await one_pass_with_existing(parts)
    assert ("delete", "StatefulSet", "slurm-controller") in parts.requests.made
    assert not [it for it in applied(parts) if it.startswith("ConfigMap")]
    ready = parts.condition("Controller")
    assert (ready["status"], ready["reason"]) == ("False", "TakingOver")
    assert "its pods and claims stay" in ready["message"]


async def one_pass_with_existing(parts: Parts) -> None:
    """A pass in which what is stored can't be created."""
    applies = parts.requests.apply

    async def conditional(resource: Any, manifest: Manifest, **options: Any) -> Manifest:
        metadata = manifest["metadata"]
        if (
            metadata.get("resourceVersion") == "1"
            and (resource.kind, metadata["name"]) in parts.requests.stored
        ):
            raise Conflict(409, "Conflict", "it exists")
        return await applies(resource, manifest, **options)

    parts.requests.apply = conditional  # type: ignore[method-assign]  # the server, not the client
    try:
        await one_pass(parts)
    finally:
        parts.requests.apply = applies  # type: ignore[method-assign]


async def test_the_configuration_is_published_after_the_statefulset_is_created_again() -> None:
    parts = cluster()
    parts.slurmctld_pod(ours=False)
    await one_pass(parts)
    kinds = [name.partition(" ")[0] for name in applied(parts)]
    assert kinds.index("StatefulSet") < kinds.index("ConfigMap")


async def test_a_configuration_with_a_fault_leaves_schedmds_slurmctld_as_it_is() -> None:
    parts = Parts()
    parts.keys()
    parts.controller(extraConf="ClusterName=other\n")
    slurmctld(parts)
    await one_pass_with_existing(parts)
    assert applied(parts) == []
    ready = parts.condition("Controller")
    assert (ready["status"], ready["reason"]) == ("False", "Invalid")
    assert "ClusterName" in ready["message"]
    assert ("delete", "StatefulSet", "slurm-controller") not in parts.requests.made


async def test_slurmctld_waits_until_slurmdbd_is_taken_over_and_ready() -> None:
    parts = Parts()
    parts.keys()
    parts.custom(
        "Accounting",
        "slurm",
        KEYS | {"storageConfig": STORAGE},
        creationTimestamp="2020-01-01T00:00:00Z",
    )
    controller = read(Controller, parts.controller(accountingRef={"name": "slurm"}))
    with pytest.raises(NotUsableError, match="slurm-accounting is taken over") as caught:
        takeover.check_slurmctld(parts.runtime, controller, ())
    assert caught.value.reason == "TakingOver"
    assert (await parts.woken(3.0))["controllers"] == {CONTROLLER}
    parts.workload(STATEFUL_SETS, "slurm-accounting", "slurmdbd", "slurmdbd:26.05", ready=False)
    with pytest.raises(NotUsableError, match="slurm-accounting is ready"):
        takeover.check_slurmctld(parts.runtime, controller, ())
    parts.workload(STATEFUL_SETS, "slurm-accounting", "slurmdbd", "slurmdbd:26.05")
    takeover.check_slurmctld(parts.runtime, controller, ())


async def test_what_the_workers_share_is_applied_although_slurmctld_is_refused() -> None:
    parts = Parts()
    parts.keys()
    parts.custom(
        "NodeSet",
        "slinky",
        {"controllerRef": {"name": "slurm"}, "slurmd": {"image": "slurmd:26.05"}},
    )
    parts.controller()
    parts.requests.refusals["apply StatefulSet"] = Forbidden(403, "Forbidden", "quota")
    with pytest.raises(RefusedError):
        await one_pass(parts)
    assert {"Service slurm-workers-slurm", "PodDisruptionBudget slurm-workers-pdb-slurm"} <= set(
        applied(parts)
    )
    assert parts.condition("Controller")["reason"] == "Refused"


LOGIN = {
    "controllerRef": {"name": "slurm"},
    "sssdConfRef": {"name": "sssd", "key": "sssd.conf"},
    "login": {"image": "login:26.05"},
}


def login_nodes(parts: Parts) -> None:
    """LoginSet `login` with what it refers to."""
    parts.secret("sssd", {"sssd.conf": b"[sssd]"})
    parts.secret("login-ssh-host-keys", {"ssh_host_rsa_key": b"k"})
    parts.custom("LoginSet", "login", LOGIN)


async def loginset(parts: Parts) -> None:
    """One pass over it."""
    await reconcile_loginset(parts.runtime, parts.operator.loginsets, (NAMESPACE, "login"))


def counted(parts: Parts, kind: str) -> tuple[int, int]:
    """The pods that the last status of the custom resource reports."""
    status = parts.requests.of("patch status", kind)[-1]["status"]
    return status["replicas"], status["readyReplicas"]


async def test_login_nodes_of_schedmds_operator_stay_until_slurmctld_is_ready_as_ours() -> None:
    parts = former_cluster()
    login_nodes(parts)
    found = theirs(parts, DEPLOYMENTS, "login", ("LoginSet", "login"), selector={})
    found["status"] = {"replicas": 2, "readyReplicas": 1}
    await loginset(parts)
    assert applied(parts) == []
    # An autoscaler reads it.
    assert counted(parts, "LoginSet") == (2, 1)
    ready = parts.condition("LoginSet")
    assert (ready["status"], ready["reason"]) == ("False", "TakingOver")
    assert "StatefulSet slurm-controller" in ready["message"]
    assert (NAMESPACE, "login") in (await parts.woken(3.0))["loginsets"]
    parts.workload(STATEFUL_SETS, "slurm-controller", "slurmctld", "slurmctld:26.05")
    await loginset(parts)
    assert "Deployment login" in applied(parts)


async def test_the_pods_of_a_deployment_of_others_are_not_reported_as_login_nodes() -> None:
    parts = Parts()
    parts.custom("LoginSet", "login", LOGIN)
    found = theirs(parts, DEPLOYMENTS, "login", ("Deployment", "another"), selector={})
    found["status"] = {"replicas": 2, "readyReplicas": 1}
    await loginset(parts)
    assert counted(parts, "LoginSet") == (0, 0)


async def test_new_login_nodes_do_not_wait_for_slurmctld() -> None:
    parts = former_cluster()
    login_nodes(parts)
    await loginset(parts)
    assert "Deployment login" in applied(parts)


async def test_slurmrestd_of_schedmds_operator_stays_until_slurmctld_is_ready_as_ours() -> None:
    parts = former_cluster()
    parts.restapi()
    parts.accepted(slurm_conf="ClusterName=lab\n")
    found = theirs(parts, DEPLOYMENTS, "slurm-restapi", ("RestApi", "slurm"), selector={})
    found["status"] = {"replicas": 2, "readyReplicas": 1}
    await reconcile_restapi(parts.runtime, (NAMESPACE, "slurm"))
    assert applied(parts) == []
    assert counted(parts, "RestApi") == (2, 1)
    assert parts.condition("RestApi")["reason"] == "TakingOver"


@pytest.mark.parametrize("ready", [False, True])
async def test_workers_of_schedmds_operator_get_no_new_revision_until_slurmctld_is_ready_as_ours(
    *, ready: bool
) -> None:
    parts = cluster()
    parts.workload(STATEFUL_SETS, "slurm-controller", "slurmctld", "slurmctld:26.05", ready=ready)
    this = begin(parts, {"nodeSetHash": "theirs"})
    parts.pod("slinky-0", meta={"annotations": {}})
    found = await pod_source(this)
    if ready:
        assert found.template is not None
        return
    assert (found.template, found.revision) == (None, "theirs")
    assert found.problem is not None
    assert found.problem.reason == "TakingOver"
    assert found.look_again == 2.0
    assert parts.requests.of("create", "ControllerRevision") == []
    assert applied(parts) == []


async def test_workers_of_ours_do_not_wait_for_slurmctld() -> None:
    parts = cluster()
    parts.workload(STATEFUL_SETS, "slurm-controller", "slurmctld", "slurmctld:26.05", ready=False)
    this = begin(parts)
    parts.pod("slinky-0")
    assert (await pod_source(this)).template is not None


async def test_an_external_slurmctld_is_not_waited_for() -> None:
    parts = Parts()
    external = {"external": True, "externalConfig": {"host": "h", "port": 6817}}
    assert (
        takeover.slurmctld_first(parts.runtime, read(Controller, parts.controller(**external)))
        is None
    )
