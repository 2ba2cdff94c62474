"""What the kinds with one StatefulSet or Deployment share."""

from typing import Any

import pytest

from sidecars.kube import DEPLOYMENTS, STATEFUL_SETS, Forbidden, Invalid, Manifest, ServerError
from sidecars.operator.main import kinds
from sidecars.operator.runtime import workload
from sidecars.operator.runtime.errors import NotUsableError, RefusedError
from sidecars.policy.reasons import Ready
from sidecars.workloads.facts import MissingReferenceError
from sidecars.workloads.resources import ResourceError
from tests.support.builders import KEYS
from tests.support.operator_parts import NAMESPACE, Parts

pytestmark = pytest.mark.looptime
OWNER = {"kind": "RestApi", "metadata": {"namespace": NAMESPACE, "name": "slurm", "uid": "u"}}


def service(name: str = "s") -> Manifest:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"namespace": NAMESPACE, "name": name},
        "spec": {},
    }


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (MissingReferenceError("Secret", "key", "spec.slurmKeyRef"), "ReferenceMissing"),
        (ResourceError("spec.replicas", "must be less"), "Invalid"),
    ],
)
async def test_what_can_t_be_rendered_is_a_reason_and_a_text_that_names_the_place(
    error: Exception, reason: str
) -> None:
    with pytest.raises(NotUsableError, match="spec") as caught, workload.usable():
        raise error
    assert caught.value.reason == reason


async def test_objects_are_applied_in_order_and_a_refusal_is_raised_after_all_others() -> None:
    parts = Parts()
    parts.requests.refusals["apply Service"] = Forbidden(403, "Forbidden", "not you")
    objects = [service(), service("t"), workload_of("StatefulSet")]
    with pytest.raises(NotUsableError, match="refuses Service s:") as caught:
        await workload.apply_all(parts.runtime, OWNER, "RestApi", lambda: objects)
    assert caught.value.reason == "Refused"
    assert [name for _, _, name in parts.requests.made] == ["s", "t", "w"]


@pytest.mark.parametrize("read", ["Secret", "ConfigMap"])
async def test_pods_are_not_replaced_for_a_secret_or_a_configmap_that_was_refused(
    read: str,
) -> None:
    parts = Parts()
    parts.requests.refusals[f"apply {read}"] = Forbidden(403, "Forbidden", "not you")
    objects = [
        {**service("r"), "kind": read},
        workload_of("StatefulSet"),
        workload_of("Deployment"),
        service(),
    ]
    with pytest.raises(NotUsableError, match=f"refuses {read} r:"):
        await workload.apply_all(parts.runtime, OWNER, "RestApi", lambda: objects)
    assert [name for _, _, name in parts.requests.made] == ["r", "s"]


def workload_of(kind: str) -> Manifest:
    spec = {"containers": [], "automountServiceAccountToken": False}
    return {
        **service("w"),
        "kind": kind,
        "apiVersion": "apps/v1",
        "spec": {"template": {"spec": spec}},
    }


@pytest.mark.parametrize("kind", ["StatefulSet", "Deployment"])
async def test_no_workload_with_a_token_of_another_program_is_applied(kind: str) -> None:
    parts, item = Parts(), workload_of(kind)
    item["spec"]["template"]["spec"] = {
        "serviceAccountName": "slurm-bridge",
        "automountServiceAccountToken": True,
    }
    with pytest.raises(
        NotUsableError, match="ServiceAccount 'slurm-bridge': set it to false"
    ) as caught:
        await workload.apply_all(parts.runtime, OWNER, "RestApi", lambda: [service(), item])
    assert caught.value.reason == "Invalid"
    assert parts.requests.made == []


async def test_a_fault_of_the_api_server_is_not_taken_for_a_refusal() -> None:
    parts = Parts()
    parts.requests.refusals["apply Service"] = ServerError(500, "InternalError", "etcd")
    with pytest.raises(ServerError):
        await workload.apply_all(parts.runtime, OWNER, "RestApi", lambda: [service()])


@pytest.mark.parametrize(
    ("change", "want"),
    [
        ({}, ("True", "Ready")),
        ({"status": {"observedGeneration": 0}}, ("False", "Updating")),
        ({"status": {"updatedReplicas": 0}}, ("False", "Updating")),
        ({"status": {"replicas": 2}}, ("False", "Updating")),
        ({"status": {"readyReplicas": 0}}, ("False", "PodsNotReady")),
        (
            {"spec": {"replicas": 0}, "status": {"replicas": 0, "updatedReplicas": 0}},
            ("True", "ScaledToZero"),
        ),
    ],
)
async def test_a_workload_is_ready_when_its_newest_pods_are_and_no_old_one_is_left(
    change: dict[str, Any], want: tuple[str, str]
) -> None:
    parts = Parts()
    manifest = parts.workload(DEPLOYMENTS, "slurm-restapi", "slurmrestd", "slurmrestd:26.05")
    metadata = manifest["metadata"] | {"resourceVersion": "900"}
    changed = {key: manifest[key] | change.get(key, {}) for key in ("spec", "status")}
    parts.runtime.caches.deployments.store.put({**manifest, **changed, "metadata": metadata})
    ready = workload.readiness(parts.runtime, DEPLOYMENTS, NAMESPACE, "slurm-restapi")
    assert (ready.status, ready.reason) == want


async def test_a_workload_that_does_not_exist_yet_is_starting() -> None:
    ready = workload.readiness(Parts().runtime, STATEFUL_SETS, NAMESPACE, "slurm-controller")
    assert (ready.status, ready.reason) == ("False", "Starting")


async def test_a_refusal_is_an_event_once_and_a_wait_of_every_start_is_none() -> None:
    parts = Parts()
    emitted: list[str] = []
    parts.runtime.events.emit = lambda *arguments, **_: emitted.append(arguments[4])  # type: ignore[method-assign]
    manifest = parts.custom("RestApi", "slurm", {})
    condition = workload.refused(parts.runtime, manifest, NotUsableError(Ready.REFUSED, "no"))
    assert emitted == ["Refused: no"]
    received = {
        "conditions": [{"type": "Ready", "reason": condition.reason, "message": condition.message}]
    }
    workload.refused(
        parts.runtime,
        parts.custom("RestApi", "slurm", {}, received),
        NotUsableError(Ready.REFUSED, "no"),
    )
    workload.refused(parts.runtime, manifest, NotUsableError(Ready.WAITING_FOR_KEYS, "soon"))
    assert len(emitted) == 1


SPECS: dict[str, Manifest] = {
    "Controller": {},
    "RestApi": {"controllerRef": {"name": "slurm"}, "slurmrestd": {}},
    "LoginSet": {"controllerRef": {"name": "slurm"}, "login": {"image": "login:26.05"}},
    "Accounting": KEYS
    | {
        "storageConfig": {
            "host": "db",
            "database": "d",
            "username": "u",
            "passwordKeyRef": {"name": "db", "key": "p"},
        }
    },
    "Token": {
        "jwtKeyRef": {"name": "slurm-auth-jwt", "key": "jwt.key"},
        "username": "ann",
        "lifetime": "1h",
    },
    "NodeSet": {
        "controllerRef": {"name": "slurm"},
        "replicas": 1,
        "slurmd": {"image": "slurmd:26.05"},
    },
}


@pytest.mark.parametrize(
    ("kind", "refused"),
    [
        ("Controller", "apply StatefulSet"),
        ("RestApi", "apply Service"),
        ("LoginSet", "apply Service"),
        ("Accounting", "apply StatefulSet"),
        ("Token", "apply Secret"),
        ("NodeSet", "apply ConfigMap"),
        ("NodeSet", "create ControllerRevision"),
    ],
)
@pytest.mark.parametrize(
    "error", [Forbidden(403, "Forbidden", "quota"), Invalid(422, "Invalid", "a policy")], ids=str
)
async def test_what_the_api_server_refuses_is_reported_and_tried_again_until_it_is_accepted(
    kind: str, refused: str, error: Exception
) -> None:
    parts = Parts()
    parts.keys()
    parts.secret("slurm-ssh-host-keys", {}, own=True)
    parts.secret("db", {"p": b"secret"})
    parts.accepted(slurm_conf="ClusterName=lab\n")
    parts.controller()
    if kind != "Controller":
        parts.custom(kind, "slurm", SPECS[kind])
    parts.requests.refusals[refused] = error
    reconcile = next(each.reconcile for each in kinds(parts.operator) if each.name == kind)
    with pytest.raises(RefusedError, match=str(error)):
        await reconcile(("slurm", "slurm"))
    assert parts.condition(kind)["reason"] == "Refused"
    parts.requests.refusals.clear()
    await reconcile(("slurm", "slurm"))
    assert parts.condition(kind)["reason"] != "Refused"


@pytest.mark.parametrize("refused", ["apply ServiceMonitor", "apply Secret"])
async def test_what_is_refused_without_hindering_a_controller_is_tried_again_all_the_same(
    refused: str,
) -> None:
    parts = Parts()
    parts.keys()
    if refused == "apply Secret":
        parts.secret("slurm-auth-slurm-jwks", {}, own=True)
        parts.controller(external=True, externalConfig={"host": "h", "port": 6817})
    else:
        parts.controller(metrics={"enabled": True, "serviceMonitor": {"enabled": True}})
    parts.requests.refusals[refused] = Forbidden(403, "Forbidden", "quota")
    reconcile = next(each.reconcile for each in kinds(parts.operator) if each.name == "Controller")
    with pytest.raises(RefusedError):
        await reconcile(("slurm", "slurm"))
    assert parts.condition("Controller")["reason"] != "Refused"
