"""Cordons that SchedMD's operator has set on its worker pods:
`sidecars.operator.nodeset.cordons`.
"""

from typing import Any

import pytest

from sidecars.custom_resources import WORKERS_TERMINATE_FIRST
from sidecars.kube import Conflict, Forbidden, ServerError
from sidecars.operator.nodeset.cordons import take_over
from sidecars.operator.nodeset.reconcile import reconcile
from tests.support.operator_parts import Parts
from tests.unit.operator.nodeset.builders import KEY, SPEC, begin

pytestmark = pytest.mark.looptime
CORDON, CORDONED_BY = (
    "nodeset.slinky.slurm.net/pod-cordon",
    "nodeset.slinky.slurm.net/pod-cordoned-by",
)
FIELDS: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{CORDON}": {}}}}
THEIRS = {"manager": "manager", "operation": "Update", "fieldsV1": FIELDS}
KUBECTL = {"manager": "kubectl-annotate", "operation": "Update", "fieldsV1": FIELDS}


def cordoned(
    parts: Parts,
    *managers: dict[str, Any],
    annotations: dict[str, str] | None = None,
    **metadata: Any,
) -> None:
    """A pod that carries the mark, which these managers have set."""
    found = parts.pod(
        "slinky-0", meta={"annotations": {CORDON: "true"} if annotations is None else annotations}
    )
    live = {"uid": "slinky-0", "resourceVersion": "77", "managedFields": list(managers), **metadata}
    parts.requests.stored["Pod", found.metadata.name] = {"metadata": live}


async def test_the_mark_of_schedmds_operator_becomes_ours_unless_something_changed() -> None:
    parts = Parts()
    cordoned(
        parts, THEIRS, {"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {}}}
    )
    assert await take_over(begin(parts))
    [patch] = parts.requests.of("patch", "Pod")
    assert patch == {
        "metadata": {
            "uid": "slinky-0",
            "resourceVersion": "77",
            "annotations": {CORDONED_BY: "operator"},
        }
    }


@pytest.mark.parametrize("managers", [[KUBECTL], [THEIRS, KUBECTL], []])
async def test_the_mark_of_a_user_stays_and_is_read_once(managers: list[dict[str, Any]]) -> None:
    parts = Parts()
    cordoned(parts, *managers)
    for _ in range(2):
        assert not await take_over(begin(parts))
    assert parts.requests.made == [("get", "Pod", "slinky-0")]


@pytest.mark.parametrize(
    "annotations",
    [
        {},
        {CORDON: "false"},
        {CORDON: "true", CORDONED_BY: "operator"},
        {CORDON: "true", "slinky.slurm.net/slurm-key-hash": "0"},
    ],
)
async def test_a_pod_without_a_mark_that_may_be_of_schedmds_operator_is_not_read(
    annotations: dict[str, str],
) -> None:
    parts = Parts()
    cordoned(parts, THEIRS, annotations=annotations)
    assert not await take_over(begin(parts))
    assert parts.requests.made == []


async def test_a_pod_that_was_replaced_meanwhile_is_left_to_the_next_pass() -> None:
    parts = Parts()
    cordoned(parts, THEIRS, uid="another")
    assert await take_over(begin(parts))
    assert parts.requests.of("patch", "Pod") == []


async def test_a_pod_that_has_changed_is_left_to_the_next_pass_and_a_fault_is_raised() -> None:
    parts = Parts()
    cordoned(parts, THEIRS)
    parts.requests.refusals["patch Pod"] = Conflict(409, "Conflict", "changed")
    assert await take_over(begin(parts))
    parts.requests.refusals["patch Pod"] = ServerError(500, "InternalError", "etcd")
    with pytest.raises(ServerError):
        await take_over(begin(parts))


async def test_a_mark_that_the_api_server_refuses_to_change_stops_nothing_else() -> None:
    parts = Parts()
    cordoned(parts, THEIRS)
    parts.requests.refusals["patch Pod"] = Forbidden(403, "Forbidden", "a webhook")
    for _ in range(2):
        assert not await take_over(begin(parts))
    assert len(parts.requests.of("patch", "Pod")) == 1


async def test_a_pass_that_takes_cordons_over_does_nothing_else() -> None:
    parts = Parts()
    parts.custom("NodeSet", "slinky", SPEC, finalizers=[WORKERS_TERMINATE_FIRST])
    cordoned(parts, THEIRS)
    assert await reconcile(parts.runtime, parts.operator.nodesets, KEY) == 1.0
    assert [verb for verb, *_ in parts.requests.made] == ["get", "patch"]
