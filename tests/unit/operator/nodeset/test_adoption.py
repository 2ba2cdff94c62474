"""Pods that a deleted NodeSet has left, and the next NodeSet of its name:
`sidecars.operator.nodeset.adoption`.
"""

from typing import Any

import msgspec
import pytest

from sidecars import objects
from sidecars.custom_resources import WORKERS_TERMINATE_FIRST
from sidecars.kube import STATEFUL_SETS, Conflict, Forbidden, Manifest, ServerError
from sidecars.operator.nodeset.adoption import adopt, delete_revisions
from sidecars.operator.nodeset.reconcile import reconcile
from sidecars.operator.runtime.errors import NotUsableError
from tests.support.operator_parts import Parts
from tests.unit.operator.nodeset.builders import KEY, SPEC, begin, observed_by

pytestmark = pytest.mark.looptime
LABELS = {
    "app.kubernetes.io/name": "slurmd",
    "app.kubernetes.io/instance": "slinky",
    "slinky.slurm.net/cluster": "slurm",
}


def orphan(parts: Parts, name: str = "slinky-0", **metadata: Any) -> None:
    """A pod without a controller."""
    parts.pod(name, meta={"labels": LABELS, "ownerReferences": [], **metadata})


def nodeset(parts: Parts, **metadata: Any) -> Manifest:
    """What the API server has."""
    parts.requests.stored["NodeSet", "slinky"] = {"metadata": {"uid": "uid-of-slinky", **metadata}}
    return parts.requests.stored["NodeSet", "slinky"]


def adopted(parts: Parts) -> list[Any]:
    return [body["metadata"] for body in parts.requests.of("patch", "Pod")]


async def test_pods_with_the_labels_and_the_name_of_the_nodeset_get_it_as_their_owner() -> None:
    parts = Parts()
    nodeset(parts)
    orphan(parts)
    orphan(
        parts, "slinky-abc", labels=LABELS | {"nodeset.slinky.slurm.net/scaling-mode": "DaemonSet"}
    )
    assert await adopt(begin(parts))
    first = adopted(parts)[0]
    assert first["uid"] == "slinky-0"
    assert first["resourceVersion"]
    [owner] = first["ownerReferences"]
    assert (owner["kind"], owner["uid"], owner["controller"]) == ("NodeSet", "uid-of-slinky", True)
    assert len(adopted(parts)) == 2


@pytest.mark.parametrize(
    ("name", "metadata"),
    [
        ("slinky-0", {"labels": LABELS | {"slinky.slurm.net/cluster": "other"}}),
        ("slinky-0", {"labels": LABELS | {"app.kubernetes.io/instance": "other"}}),
        ("slinky-big-0", {}),
        ("slinky-0", {"deletionTimestamp": "2026-01-01T00:00:00Z"}),
        (
            "slinky-0",
            {
                "ownerReferences": [
                    {"kind": "NodeSet", "name": "slinky", "uid": "old", "controller": True}
                ]
            },
        ),
    ],
)
async def test_another_pod_is_not_adopted(name: str, metadata: dict[str, Any]) -> None:
    parts = Parts()
    nodeset(parts)
    orphan(parts, name, **metadata)
    assert not await adopt(begin(parts))
    assert parts.requests.made == []


@pytest.mark.parametrize(
    "live", [{"uid": "another"}, {"deletionTimestamp": "2026-01-01T00:00:00Z"}]
)
async def test_a_nodeset_that_is_another_or_is_being_deleted_by_now_adopts_nothing(
    live: dict[str, str],
) -> None:
    parts = Parts()
    nodeset(parts, **live)
    orphan(parts)
    assert not await adopt(begin(parts))
    assert adopted(parts) == []


async def test_a_pod_that_has_changed_is_left_to_the_next_pass_and_a_fault_is_raised() -> None:
    parts = Parts()
    nodeset(parts)
    orphan(parts)
    parts.requests.refusals["patch Pod"] = Conflict(409, "Conflict", "changed")
    assert await adopt(begin(parts))
    parts.requests.refusals["patch Pod"] = ServerError(500, "InternalError", "etcd")
    with pytest.raises(ServerError):
        await adopt(begin(parts))


@pytest.mark.parametrize(
    ("metadata", "remedy"),
    [
        ({}, "delete that pod when it is idle"),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, "the next one is created when it is gone"),
    ],
)
async def test_a_pod_that_can_not_be_adopted_stops_nothing_else_and_the_nodeset_names_it(
    metadata: dict[str, str], remedy: str
) -> None:
    parts = Parts()
    nodeset(parts)
    parts.keys()
    parts.controller()
    parts.workload(STATEFUL_SETS, "slurm-controller", "slurmctld", "slurmctld:26.05")
    parts.custom("NodeSet", "slinky", SPEC, finalizers=[WORKERS_TERMINATE_FIRST])
    orphan(parts, **metadata)
    parts.requests.refusals["patch Pod"] = Forbidden(403, "Forbidden", "a webhook")
    with pytest.raises(NotUsableError):
        await reconcile(parts.runtime, parts.operator.nodesets, KEY)
    assert [
        name for verb, kind, name in parts.requests.made if (verb, kind) == ("create", "Pod")
    ] == [
        "slinky-1",
        "slinky-2",
    ]
    ready = parts.condition("NodeSet")
    assert (ready["status"], ready["reason"]) == ("False", "NameConflict")
    assert f"pod slinky-0, which belongs to no NodeSet; {remedy}" in ready["message"]


async def test_a_pass_that_adopts_pods_does_nothing_else() -> None:
    parts = Parts()
    nodeset(parts)
    parts.custom("NodeSet", "slinky", SPEC, finalizers=[WORKERS_TERMINATE_FIRST])
    orphan(parts)
    assert await reconcile(parts.runtime, parts.operator.nodesets, KEY) == 1.0
    assert [verb for verb, *_ in parts.requests.made] == ["get", "patch"]


async def test_a_pod_that_loses_its_owner_wakes_the_nodeset_of_its_labels() -> None:
    parts = Parts()
    parts.custom("NodeSet", "slinky", SPEC)
    parts.pod("slinky-0", meta={"labels": LABELS})
    await parts.woken()
    orphan(parts)
    assert (await parts.woken())["nodesets"] == {KEY}


async def test_a_deleted_pod_without_an_owner_wakes_the_nodeset_of_its_labels() -> None:
    parts = Parts()
    parts.custom("NodeSet", "slinky", SPEC)
    orphan(parts, deletionTimestamp="2026-01-01T00:00:00Z")
    await parts.woken()
    store = parts.runtime.caches.pods.store
    store.discard(store.known()[0])
    assert (await parts.woken())["nodesets"] == {KEY}


DELETING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


@pytest.mark.parametrize(
    "finalizers",
    [
        [[WORKERS_TERMINATE_FIRST, "orphan"]],
        [[WORKERS_TERMINATE_FIRST, "orphan"], [WORKERS_TERMINATE_FIRST]],
    ],
)
async def test_a_nodeset_that_is_deleted_without_its_pods_has_none_from_then_on(
    finalizers: list[list[str]],
) -> None:
    parts = Parts()
    parts.pod("slinky-0")
    for present in finalizers:
        this = begin(parts, meta=DELETING | {"finalizers": present})
    observed = await observed_by(this)
    assert observed.pods == []


@pytest.mark.parametrize(
    "finalizers", [[WORKERS_TERMINATE_FIRST], [WORKERS_TERMINATE_FIRST, "foregroundDeletion"]]
)
async def test_a_nodeset_that_is_deleted_with_its_pods_still_has_them(
    finalizers: list[str],
) -> None:
    parts = Parts()
    parts.pod("slinky-0")
    observed = await observed_by(begin(parts, meta=DELETING | {"finalizers": finalizers}))
    assert [pod.name for pod in observed.pods] == ["slinky-0"]


async def test_what_a_former_nodeset_of_the_name_left_reports_nothing_about_the_next_one() -> None:
    parts = Parts()
    begin(parts, meta=DELETING | {"finalizers": ["orphan"], "uid": "former"})
    parts.pod("slinky-0")
    observed = await observed_by(
        begin(parts, meta=DELETING | {"finalizers": [WORKERS_TERMINATE_FIRST]})
    )
    assert [pod.name for pod in observed.pods] == ["slinky-0"]


async def test_the_claims_of_pods_that_are_left_get_no_owner() -> None:
    parts = Parts()
    meta = DELETING | {"finalizers": [WORKERS_TERMINATE_FIRST, "orphan"]}
    policy = {"whenDeleted": "Delete", "whenScaled": "Retain"}
    claims = [{"metadata": {"name": "data"}, "spec": {}}]
    this = begin(
        parts, meta=meta, volumeClaimTemplates=claims, persistentVolumeClaimRetentionPolicy=policy
    )
    metadata = {
        "namespace": "slurm",
        "name": "data-slinky-0",
        "uid": "c",
        "resourceVersion": "1",
        "labels": LABELS,
    }
    claim = msgspec.convert({"metadata": metadata, "spec": {}}, objects.PersistentVolumeClaim)
    parts.runtime.caches.claims.store.put(claim)
    observed = await observed_by(this)
    assert list(observed.claims) == []


@pytest.mark.parametrize("keeps", [True, False])
async def test_only_a_nodeset_that_keeps_its_pods_deletes_its_revisions_at_once(
    *, keeps: bool
) -> None:
    parts = Parts()
    owners = [{"kind": "NodeSet", "name": "slinky", "uid": "uid-of-slinky", "controller": True}]
    metadata = {"namespace": "slurm", "name": "slinky-1a2b", "uid": "r", "resourceVersion": "1"}
    parts.runtime.caches.controller_revisions.store.put(
        {"metadata": metadata | {"ownerReferences": owners}}
    )
    finalizers = [WORKERS_TERMINATE_FIRST, *(["orphan"] if keeps else [])]
    await delete_revisions(begin(parts, meta=DELETING | {"finalizers": finalizers}))
    deleted = [("delete", "ControllerRevision", "slinky-1a2b")]
    assert parts.requests.made == (deleted if keeps else [])
