"""What new worker pods are created from: `sidecars.operator.nodeset.template`."""

from typing import Any

import pytest

from sidecars.contract.manifest import SLURM_JWKS
from sidecars.kube import STATEFUL_SETS, Forbidden
from sidecars.operator.nodeset.passes import PodSource
from sidecars.operator.nodeset.template import pod_source
from tests.support.operator_parts import Parts
from tests.unit.operator.nodeset.builders import begin

pytestmark = pytest.mark.looptime


def ready(image: str = "slurmctld:26.05") -> Parts:
    """Everything that worker pods need."""
    parts = Parts()
    parts.keys()
    parts.controller(slurmctld={"image": image})
    parts.workload(STATEFUL_SETS, "slurm-controller", "slurmctld", image)
    return parts


async def source(parts: Parts, meta: dict[str, Any] | None = None, **spec: Any) -> PodSource:
    this = begin(parts, meta=meta, **spec)
    return await pod_source(this)


def written(parts: Parts) -> list[str]:
    return [
        f"{verb} {kind}" for verb, kind, _ in parts.requests.made if verb in {"apply", "create"}
    ]


async def test_the_revision_is_stored_before_its_template_is_used() -> None:
    parts = ready()
    found = await source(parts)
    [stored] = parts.requests.of("create", "ControllerRevision")
    assert found.template is not None
    assert found.problem is None
    assert found.revision == stored["metadata"]["labels"]["controller-revision-hash"]


async def test_a_pass_in_which_nothing_has_changed_renders_nothing() -> None:
    parts = ready()
    first = await source(parts)
    [stored] = parts.requests.of("create", "ControllerRevision")
    stored["metadata"] |= {"uid": "r", "resourceVersion": "9"}
    parts.runtime.caches.controller_revisions.store.put(stored)
    assert (await source(parts)).template is first.template
    assert (await source(parts, replicas=9)).template is not first.template


@pytest.mark.parametrize(
    ("missing", "reason", "named"),
    [
        ("Controller", "ControllerMissing", "'slurm'"),
        ("slurm-auth-slurm-jwks", "WaitingForKeys", "slurm-auth-slurm-jwks"),
        ("slurm-auth-slurm", "ReferenceMissing", "slurm-auth-slurm"),
    ],
)
async def test_what_is_missing_is_named_and_nothing_is_stored(
    missing: str, reason: str, named: str
) -> None:
    parts = Parts()
    if missing != "Controller":
        parts.controller()
    for name, data in (("slurm-auth-slurm", "slurm.key"), ("slurm-auth-jwt", "jwt.key")):
        if name != missing:
            parts.secret(name, {data: b"k" * 32})
    if missing != "slurm-auth-slurm-jwks":
        parts.secret("slurm-auth-slurm-jwks", {SLURM_JWKS: b"{}"}, own=True)
    found = await source(parts)
    assert found.template is None
    assert found.problem is not None
    assert found.problem.reason == reason
    assert named in found.problem.message
    assert written(parts) == []


async def test_a_template_that_can_not_be_rendered_is_never_stored() -> None:
    parts = ready()
    found = await source(parts, template={"spec": {"hostname": "Not_a_hostname-"}})
    assert found.template is None
    assert found.problem is not None
    assert (found.problem.reason, "spec.template.spec.hostname" in found.problem.message) == (
        "Invalid",
        True,
    )
    assert written(parts) == []


async def test_a_template_with_a_token_of_another_program_is_never_stored() -> None:
    parts = ready()
    account = {"serviceAccountName": "slurm-bridge", "automountServiceAccountToken": True}
    found = await source(parts, template={"spec": account})
    assert found.template is None
    assert found.problem is not None
    assert found.problem.reason == "Invalid"
    assert "ServiceAccount 'slurm-bridge': set it to false" in found.problem.message
    assert written(parts) == []


async def test_a_nodeset_with_the_names_of_an_older_one_gets_no_pods() -> None:
    parts = ready()
    spec = {"controllerRef": {"name": "slurm"}, "template": {"spec": {"hostname": "n-"}}}
    parts.custom("NodeSet", "older", spec, creationTimestamp="2026-01-01T00:00:00Z")
    meta = {"creationTimestamp": "2026-01-02T00:00:00Z"}
    found = await source(parts, meta, template={"spec": {"hostname": "n-"}})
    assert found.problem is not None
    assert found.problem.reason == "NameConflict"


async def test_a_nodeset_that_is_being_deleted_needs_no_template_and_writes_nothing() -> None:
    parts = ready()
    found = await source(parts, {"deletionTimestamp": "2026-01-01T00:00:00Z"})
    assert (found.template, found.problem, written(parts)) == (None, None, [])


async def test_first_workers_wait_for_a_slurmctld_that_is_older_than_they() -> None:
    parts = ready("slurmctld:25.11")
    found = await source(parts, slurmd={"image": "slurmd:26.05"})
    assert found.template is None
    assert found.problem is not None
    assert parts.requests.of("create", "ControllerRevision") == []


async def test_workers_of_a_newer_slurm_stay_with_their_revision_until_slurmctld_is_upgraded() -> (
    None
):
    parts = ready("slurmctld:25.11")
    first = await source(parts, slurmd={"image": "slurmd:25.11"})
    [stored] = parts.requests.of("create", "ControllerRevision")
    stored["metadata"] |= {"uid": "r", "resourceVersion": "9"}
    parts.runtime.caches.controller_revisions.store.put(stored)
    found = await source(parts, slurmd={"image": "slurmd:26.05"})
    assert found.revision == first.revision
    assert found.template is not None
    assert "slurmd:25.11" in str(found.template)
    assert found.problem is not None
    assert len(parts.requests.of("create", "ControllerRevision")) == 1


@pytest.mark.parametrize("count", [4, 8])
async def test_a_privileged_worker_may_not_have_a_part_of_the_gpus_of_its_node(count: int) -> None:
    parts = ready()
    parts.kube_node("kube-1", status={"allocatable": {"nvidia.com/gpu": "8"}})
    found = await source(parts, gpu={"enabled": True, "count": count})
    refused = found.problem is not None and found.problem.reason == "FewerGpusThanNode"
    assert refused == (count < 8)
    assert (found.template is None) == refused


async def test_gpus_of_a_node_that_its_pods_run_on_count_whatever_the_selector() -> None:
    parts = ready()
    parts.kube_node("kube-1", status={"allocatable": {"nvidia.com/gpu": "8"}})
    spec: dict[str, Any] = {
        "gpu": {"enabled": True, "count": 4},
        "template": {"spec": {"nodeSelector": {"pool": "b"}}},
    }
    assert (await source(parts, **spec)).problem is None
    parts.pod("slinky-0")
    found = await source(parts, **spec)
    assert found.problem is not None
    assert "kube-1" in found.problem.message


async def test_a_revision_that_is_refused_leaves_no_template() -> None:
    parts = ready()
    parts.requests.refusals["create ControllerRevision"] = Forbidden(403, "Forbidden", "quota")
    found = await source(parts)
    assert found.template is None
    assert found.failure is not None
    assert found.failure.retried
