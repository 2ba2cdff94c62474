"""When an object is applied, and when it is left alone."""

from typing import Any

import pytest

from sidecars.kube import Conflict, Forbidden, Invalid, Manifest
from sidecars.operator.runtime.apply import (
    APPLIED_HASH,
    MANAGED_BY,
    NEW,
    NameTakenError,
    ReplacedError,
    covers,
    stamped,
    with_former_image,
)
from sidecars.operator.runtime.contest import TwoOperatorsError
from tests.support.operator_parts import NAMESPACE, Parts


@pytest.mark.parametrize(
    ("live", "wanted"),
    [
        ({"a": 1, "b": 2}, {"a": 1}),
        ({"a": {"b": [1, 2], "c": None}}, {"a": {"b": [1, 2]}}),
        ([{"name": "x", "added": True}], [{"name": "x"}]),
        ("text", "text"),
    ],
)
def test_what_others_added_is_no_difference(live: Any, wanted: Any) -> None:
    assert covers(live, wanted)


@pytest.mark.parametrize(
    ("live", "wanted"),
    [
        ({"a": 1}, {"a": 2}),
        ({}, {"a": None}),
        ({"a": [1, 2]}, {"a": [1]}),
        ({"a": [2, 1]}, {"a": [1, 2]}),
        ({"a": 1}, {"a": {"b": 1}}),
        (None, {"a": 1}),
    ],
)
def test_a_changed_missing_or_reordered_value_is_a_difference(live: Any, wanted: Any) -> None:
    assert not covers(live, wanted)


def test_the_stamp_changes_with_the_content_and_keeps_what_was_there() -> None:
    manifest = {
        "kind": "Service",
        "metadata": {"name": "a", "labels": {"x": "y"}},
        "spec": {"port": 1},
    }
    one, two = stamped(manifest), stamped({**manifest, "spec": {"port": 2}})
    assert one["metadata"]["labels"] == {"x": "y", MANAGED_BY: "slurm-operator"}
    assert (
        one["metadata"]["annotations"][APPLIED_HASH] != two["metadata"]["annotations"][APPLIED_HASH]
    )
    assert one["metadata"]["annotations"] == stamped(manifest)["metadata"]["annotations"]


def deployment(
    sidecar: str, daemon: str = "login:1", replicas: int = 1, cpu: str = "1"
) -> dict[str, Any]:
    """A Deployment with a sidecar of ours."""
    daemons = [{"name": "login", "image": daemon, "resources": {"limits": {"cpu": cpu}}}]
    pod = {"initContainers": [{"name": "initconf", "image": sidecar}], "containers": daemons}
    return {
        "kind": "Deployment",
        "metadata": {"name": "a"},
        "spec": {"replicas": replicas, "template": {"metadata": {}, "spec": pod}},
    }


def test_another_release_of_our_image_alone_changes_no_pod() -> None:
    live = stamped(deployment("ours:1"))
    assert with_former_image(deployment("ours:2"), live, "ours:2") == deployment("ours:1")
    scaled = deployment("ours:2", replicas=3)
    assert with_former_image(scaled, live, "ours:2") == deployment("ours:1", replicas=3)
    written_otherwise = stamped(deployment("ours:1", cpu="1000m"))
    written_otherwise["spec"] = deployment("ours:1", cpu="1")["spec"]
    assert with_former_image(
        deployment("ours:2", cpu="1000m"), written_otherwise, "ours:2"
    ) == deployment("ours:1", cpu="1000m")


def test_our_new_image_comes_along_with_another_change() -> None:
    live = stamped(deployment("ours:1"))
    other = deployment("ours:2", daemon="login:2")
    assert with_former_image(other, live, "ours:2") == other
    assert with_former_image(deployment("ours:2"), None, "ours:2") == deployment("ours:2")
    assert with_former_image(deployment("users:2"), live, "ours:2") == deployment("users:2")


def service(owner: str = "uid-of-login", **metadata: Any) -> Manifest:
    """Service `login` of a LoginSet with that uid."""
    owners = [{"kind": "LoginSet", "name": "login", "uid": owner, "controller": True}]
    names = {"namespace": NAMESPACE, "name": "login"}
    return {
        "kind": "Service",
        "metadata": names | {"ownerReferences": owners} | metadata,
        "spec": {"a": "b"},
    }


def live(manifest: Manifest, **metadata: Any) -> Manifest:
    """The object as the API server stores it."""
    return {
        **manifest,
        "metadata": {**manifest["metadata"], "uid": "u", "resourceVersion": "7", **metadata},
    }


@pytest.mark.looptime
async def test_an_object_that_does_not_exist_is_created_and_never_taken_over() -> None:
    parts = Parts()
    assert await parts.runtime.applier.apply(service())
    [body] = parts.requests.of("apply", "Service")
    assert body["metadata"]["resourceVersion"] == NEW
    assert len(parts.requests.made) == 1


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("found", "words"),
    [
        (
            live({"kind": "Service", "metadata": {"namespace": NAMESPACE, "name": "login"}}),
            "created by another client",
        ),
        (live(service(owner="another")), "belongs to LoginSet login"),
        (
            live(service(), ownerReferences=[{"kind": "Pod", "name": "x", "uid": "x"}]),
            "created by another client",
        ),
        (
            live(service(owner="another"), labels={MANAGED_BY: "slurm-operator"}),
            "belongs to LoginSet login",
        ),
    ],
)
async def test_an_object_of_another_owner_is_named_and_not_written_to(
    found: Manifest, words: str
) -> None:
    parts = Parts()
    parts.requests.refusals["apply Service"] = Conflict(
        409, "Conflict", "the object has been modified"
    )
    parts.requests.stored["Service", "login"] = found
    with pytest.raises(NameTakenError, match=words) as caught:
        await parts.runtime.applier.apply(service())
    assert caught.value.reason == "NameTaken"
    assert caught.value.retried
    assert f"Service {NAMESPACE}/login" in str(caught.value)
    assert len(parts.requests.of("apply", "Service")) == 1


@pytest.mark.looptime
async def test_an_object_with_our_label_and_another_controller_is_not_written_to() -> None:
    parts = Parts()
    parts.runtime.caches.services.store.put(
        live(service(owner="another"), labels={MANAGED_BY: "slurm-operator"})
    )
    with pytest.raises(NameTakenError, match="belongs to LoginSet login"):
        await parts.runtime.applier.apply(service())
    assert parts.requests.made == []


@pytest.mark.looptime
@pytest.mark.parametrize(
    "found",
    [
        live(service(), labels={}),
        live(service(), ownerReferences=[], labels={MANAGED_BY: "slurm-operator"}),
        live(
            service(),
            ownerReferences=[
                {"kind": "LoginSet", "name": "login", "uid": "uid-of-login"},
                {"kind": "LoginSet", "name": "b", "uid": "other"},
            ],
        ),
    ],
)
async def test_an_object_of_ours_is_changed_by_its_uid(found: Manifest) -> None:
    parts = Parts()
    parts.runtime.caches.services.store.put(found)
    assert await parts.runtime.applier.apply(service())
    [body] = parts.requests.of("apply", "Service")
    assert body["metadata"]["uid"] == "u"
    assert "resourceVersion" not in body["metadata"]


@pytest.mark.looptime
async def test_an_object_as_desired_costs_no_request() -> None:
    parts = Parts()
    parts.runtime.caches.services.store.put(live(stamped(service())))
    assert not await parts.runtime.applier.apply(service())
    assert parts.requests.made == []


FORMER = [
    {
        "manager": "manager",
        "operation": "Update",
        "apiVersion": "v1",
        "fieldsV1": {"f:spec": {"f:old": {}}},
    }
]


def stateful_set(**spec: Any) -> Manifest:
    """slurmctld's, with a claim."""
    claim = {"metadata": {"name": "statesave"}, "spec": {"accessModes": ["ReadWriteOnce"]}}
    fixed = {
        "serviceName": "internal",
        "selector": {"matchLabels": {"a": "b"}},
        "volumeClaimTemplates": [claim],
    }
    return {**service(), "kind": "StatefulSet", "spec": fixed | spec}


def on_the_server(parts: Parts, found: Manifest) -> None:
    """An object that the caches, which show only ours, don't have."""
    parts.requests.stored[found["kind"], "login"] = found
    refusal = Conflict(409, "Conflict", "the object has been modified")
    applies = parts.requests.apply

    async def conditional(resource: Any, manifest: Manifest, **options: Any) -> Manifest:
        metadata = manifest["metadata"]
        if (
            metadata.get("resourceVersion") == NEW
            and (found["kind"], metadata["name"]) in parts.requests.stored
        ):
            raise refusal
        return await applies(resource, manifest, **options)

    parts.requests.apply = conditional  # type: ignore[method-assign]  # the server, not the client


@pytest.mark.looptime
async def test_the_fields_of_schedmds_operator_become_ours_before_an_object_is_applied() -> None:
    parts = Parts()
    on_the_server(
        parts, live(service(), managedFields=FORMER, annotations={APPLIED_HASH: "1", "a/b": "c"})
    )
    assert await parts.runtime.applier.apply(service())
    assert [verb for verb, *_ in parts.requests.made] == ["get", "json patch", "apply"]
    [[version, owners, stamp]] = parts.requests.of("json patch", "Service")
    assert version == {"op": "replace", "path": "/metadata/resourceVersion", "value": "7"}
    assert owners["value"] == [{**FORMER[0], "manager": "slurm-operator", "operation": "Apply"}]
    # An operator that ends here would otherwise take the object for applied.
    assert stamp == {"op": "remove", "path": "/metadata/annotations/slinky.slurm.net~1applied-hash"}


@pytest.mark.looptime
async def test_an_object_of_ours_that_schedmds_operator_has_changed_is_taken_over_again() -> None:
    parts = Parts()
    parts.runtime.caches.services.store.put(live(stamped(service()), managedFields=FORMER))
    assert await parts.runtime.applier.apply(service())
    assert [verb for verb, *_ in parts.requests.made] == ["json patch", "apply"]


@pytest.mark.looptime
async def test_fields_of_others_in_an_object_of_ours_cost_no_request() -> None:
    parts = Parts()
    edited = [{"manager": "kubectl-edit", "operation": "Update", "fieldsV1": {}}]
    parts.runtime.caches.services.store.put(live(stamped(service()), managedFields=edited))
    assert not await parts.runtime.applier.apply(service())
    assert parts.requests.made == []


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"serviceName": "login"}, "serviceName"),
        ({"selector": {"matchLabels": {"a": "b", "c": "d"}}}, "selector"),
        ({"podManagementPolicy": "Parallel"}, "podManagementPolicy"),
        ({"volumeClaimTemplates": []}, "volumeClaimTemplates"),
        (
            {
                "volumeClaimTemplates": [
                    {"metadata": {"name": "statesave", "namespace": "slurm"}, "spec": {}}
                ]
            },
            "volumeClaimTemplates",
        ),
    ],
)
async def test_a_statefulset_whose_immutable_fields_differ_is_deleted_without_its_pods(
    spec: dict[str, Any], field: str
) -> None:
    parts = Parts()
    on_the_server(parts, live(stateful_set(**spec), managedFields=FORMER))
    with pytest.raises(
        ReplacedError, match=f"{field} can't be changed; its pods and claims stay"
    ) as caught:
        await parts.runtime.applier.apply(stateful_set())
    assert caught.value.retried
    assert [verb for verb, *_ in parts.requests.made] == ["get", "try", "delete"]
    [options] = parts.requests.of("delete", "StatefulSet")
    assert options == {"uid": "u", "resource_version": "7", "propagation_policy": "Orphan"}


@pytest.mark.looptime
async def test_a_statefulset_stays_if_the_api_server_would_refuse_the_one_that_replaces_it() -> (
    None
):
    parts = Parts()
    on_the_server(parts, live(stateful_set(serviceName="login"), managedFields=FORMER))
    parts.requests.refusals["try StatefulSet"] = Forbidden(403, "Forbidden", "a policy")
    with pytest.raises(Forbidden):
        await parts.runtime.applier.apply(stateful_set())
    assert [verb for verb, *_ in parts.requests.made] == ["get", "try"]
    [tried] = parts.requests.of("try", "StatefulSet")
    assert tried["metadata"]["name"] == "login-trial"
    assert tried["spec"] == stateful_set()["spec"]


@pytest.mark.looptime
async def test_an_object_that_schedmds_operator_reverts_is_named_and_left_for_ever_longer() -> None:
    parts = Parts()
    on_the_server(parts, live(service(), managedFields=FORMER))
    assert await parts.runtime.applier.apply(service())
    # What the API server has shows its fields again.
    for seconds, taken_over in ((0.0, 1), (299.0, 1), (1.0, 2), (599.0, 2), (1.0, 3)):
        parts.now += seconds
        if len(parts.requests.of("json patch", "Service")) == taken_over:
            with pytest.raises(
                TwoOperatorsError, match=f"Service {NAMESPACE}/login was taken over"
            ) as caught:
                await parts.runtime.applier.apply(service())
            assert caught.value.reason == "TwoOperators"
            assert caught.value.retried
        else:
            assert await parts.runtime.applier.apply(service())
        assert len(parts.requests.of("json patch", "Service")) == taken_over
    assert "End SchedMD's operator" in str(caught.value)
    assert "at 2023-11-14T22:28:20Z" in str(caught.value)


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("managers", "verbs"),
    [(FORMER, ["get", "json patch", "apply"]), ([], ["get", "apply"])],
    ids=["theirs", "ours"],
)
async def test_a_secret_is_read_before_it_is_changed_because_its_record_does_not_show_whose_it_is(
    managers: list[dict[str, Any]], verbs: list[str]
) -> None:
    parts = Parts()
    owners = service()["metadata"]["ownerReferences"]
    parts.secret("login", {"a": b"theirs"}, own=True, ownerReferences=owners)
    wanted = {**service(), "kind": "Secret", "data": {"a": "b3Vycw=="}}
    found = live(wanted, uid="login", labels={MANAGED_BY: "slurm-operator"}, managedFields=managers)
    parts.requests.stored["Secret", "login"] = found
    assert await parts.runtime.applier.apply(wanted)
    assert [verb for verb, *_ in parts.requests.made] == verbs


@pytest.mark.looptime
async def test_a_cache_that_is_behind_does_not_look_like_another_operator() -> None:
    parts = Parts()
    before = live(stamped(service()), managedFields=FORMER)
    parts.runtime.caches.services.store.put(before)
    assert await parts.runtime.applier.apply(service())
    parts.requests.stored["Service", "login"] = live(stamped(service()), resourceVersion="8")
    assert not await parts.runtime.applier.apply(service())


@pytest.mark.looptime
async def test_a_statefulset_that_schedmds_operator_creates_again_is_not_deleted_again() -> None:
    parts = Parts()
    found = live(stateful_set(serviceName="login"), managedFields=FORMER)
    on_the_server(parts, found)
    with pytest.raises(ReplacedError):
        await parts.runtime.applier.apply(stateful_set())
    parts.requests.stored["StatefulSet", "login"] = live(
        found, deletionTimestamp="2026-01-01T00:00:00Z"
    )
    with pytest.raises(ReplacedError):
        await parts.runtime.applier.apply(stateful_set())
    parts.requests.stored["StatefulSet", "login"] = live(found, uid="another")
    with pytest.raises(TwoOperatorsError):
        await parts.runtime.applier.apply(stateful_set())
    assert len(parts.requests.of("delete", "StatefulSet")) == 1


@pytest.mark.looptime
async def test_what_the_api_server_adds_to_a_statefulset_is_no_reason_to_replace_it() -> None:
    parts = Parts()
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "statesave", "creationTimestamp": None},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeMode": "Filesystem"},
        "status": {"phase": "Pending"},
    }
    found = stateful_set(volumeClaimTemplates=[claim], podManagementPolicy="OrderedReady")
    on_the_server(parts, live(found, managedFields=FORMER))
    assert await parts.runtime.applier.apply(stateful_set())


@pytest.mark.looptime
@pytest.mark.parametrize(
    ("finalizers", "because"),
    [
        (["orphan"], " because its serviceName can't be changed; its pods and claims stay"),
        (["foregroundDeletion"], ""),
    ],
)
async def test_a_terminating_statefulset_is_waited_for_and_named_with_the_same_cause_each_time(
    finalizers: list[str], because: str
) -> None:
    parts = Parts()
    leaving = live(
        stateful_set(serviceName="login"),
        deletionTimestamp="2026-01-01T00:00:00Z",
        finalizers=finalizers,
    )
    on_the_server(parts, leaving)
    for _ in range(2):
        with pytest.raises(ReplacedError) as caught:
            await parts.runtime.applier.apply(stateful_set())
        assert str(caught.value).endswith(f"login is being deleted, and is created again{because}")
    assert "apply" not in {verb for verb, *_ in parts.requests.made}


@pytest.mark.looptime
async def test_a_statefulset_of_ours_is_never_replaced() -> None:
    parts = Parts()
    parts.runtime.caches.stateful_sets.store.put(live(stamped(stateful_set(serviceName="other"))))
    assert await parts.runtime.applier.apply(stateful_set())
    assert [verb for verb, *_ in parts.requests.made] == ["apply"]


@pytest.mark.looptime
async def test_a_statefulset_of_ours_is_deleted_without_its_pods_only_when_that_is_asked_for() -> (
    None
):
    parts = Parts()
    parts.requests.stored["StatefulSet", "login"] = live(stamped(stateful_set(serviceName="other")))
    await parts.runtime.applier.recreate(stateful_set())
    assert [verb for verb, *_ in parts.requests.made] == ["get", "try", "delete"]
    assert parts.requests.of("delete", "StatefulSet") == [
        {"uid": "u", "resource_version": "7", "propagation_policy": "Orphan"}
    ]


@pytest.mark.looptime
@pytest.mark.parametrize(
    "found",
    [
        None,
        live(stamped(stateful_set(serviceName="other")), deletionTimestamp="2026-01-01T00:00:00Z"),
        live(
            {**stateful_set(serviceName="other"), "metadata": service(owner="another")["metadata"]}
        ),
        live(stamped(stateful_set())),
    ],
    ids=["gone", "terminating", "of another owner", "as it is to be"],
)
async def test_a_statefulset_that_needs_no_deletion_or_belongs_to_another_owner_stays(
    found: Manifest | None,
) -> None:
    parts = Parts()
    if found is not None:
        parts.requests.stored["StatefulSet", "login"] = found
    await parts.runtime.applier.recreate(stateful_set())
    assert [verb for verb, *_ in parts.requests.made] == ["get"]


@pytest.mark.looptime
async def test_a_statefulset_that_another_client_changes_is_read_again_in_the_next_pass() -> None:
    parts = Parts()
    parts.requests.stored["StatefulSet", "login"] = live(stamped(stateful_set(serviceName="other")))
    parts.requests.refusals["delete StatefulSet"] = Conflict(
        409, "Conflict", "the object has been modified"
    )
    await parts.runtime.applier.recreate(stateful_set())
    # One that the API server would not create is not deleted, and that is reported.
    parts.requests.refusals["try StatefulSet"] = Invalid(422, "Invalid", "a policy")
    with pytest.raises(Invalid):
        await parts.runtime.applier.recreate(stateful_set())
    assert len(parts.requests.of("delete", "StatefulSet")) == 1


def shared(**metadata: Any) -> Manifest:
    """The Service of all workers."""
    names = {"namespace": NAMESPACE, "name": "login"}
    return {
        "kind": "Service",
        "metadata": names | metadata,
        "spec": {"selector": {"app": "slurmd"}},
    }


@pytest.mark.looptime
@pytest.mark.parametrize("kind", ["Service", "PodDisruptionBudget"])
async def test_what_schedmds_operator_left_unowned_for_all_workers_is_taken_over(kind: str) -> None:
    parts = Parts()
    on_the_server(parts, {**live(shared(), managedFields=FORMER), "kind": kind})
    owners = [{"kind": "NodeSet", "name": "slinky", "uid": "uid-of-slinky"}]
    assert await parts.runtime.applier.apply({**shared(ownerReferences=owners), "kind": kind})
    [body] = parts.requests.of("apply", kind)
    assert body["metadata"]["ownerReferences"] == owners


@pytest.mark.looptime
@pytest.mark.parametrize(
    "found",
    [
        live(shared()),
        live({**shared(), "spec": {"selector": {"app": "web"}}}, managedFields=FORMER),
        live({**shared(), "spec": {}}, managedFields=FORMER),
        live(
            shared(ownerReferences=[{"kind": "NodeSet", "name": "a", "uid": "other"}]),
            managedFields=FORMER,
        ),
    ],
)
async def test_another_service_without_an_owner_is_not_written_to(found: Manifest) -> None:
    parts = Parts()
    on_the_server(parts, found)
    owners = [{"kind": "NodeSet", "name": "slinky", "uid": "uid-of-slinky"}]
    with pytest.raises(NameTakenError):
        await parts.runtime.applier.apply(shared(ownerReferences=owners))
    assert [verb for verb, *_ in parts.requests.made] == ["get"]
