"""What the wirings of the kinds share: who is woken by a change of a Controller, RestApi,
Accounting or reference.
"""

from typing import Literal

import pytest

from sidecars.custom_resources import ACCOUNTINGS
from sidecars.policy.conditions import Condition
from sidecars.policy.reasons import Ready
from tests.support.operator_parts import CONTROLLER, NAMESPACE, Parts

pytestmark = pytest.mark.looptime
REFERENCE = {"controllerRef": {"name": "slurm"}}


def key(name: str) -> tuple[str, str]:
    return NAMESPACE, name


async def two_clusters() -> Parts:
    """Controllers `slurm` and `other`, each with a NodeSet, a LoginSet and a RestApi."""
    parts = Parts()
    parts.keys()
    parts.controller()
    parts.custom("Controller", "other", {})
    for name in ("slurm", "other"):
        parts.custom("RestApi", f"{name}-api", {"controllerRef": {"name": name}})
        parts.custom("NodeSet", f"{name}-workers", {"controllerRef": {"name": name}})
        login = {"controllerRef": {"name": name}, "sssdConfRef": {"name": f"{name}-sssd"}}
        parts.custom("LoginSet", f"{name}-login", login)
    await parts.woken()
    return parts


async def test_a_changed_controller_wakes_what_refers_to_it_and_no_other_cluster() -> None:
    parts = await two_clusters()
    parts.custom("Controller", "other", {}, generation=2)
    assert await parts.woken() == {
        "controllers": {key("other")},
        "declared_users": {key("other")},
        "restapis": {key("other-api")},
        "loginsets": {key("other-login")},
        "nodesets": {key("other-workers")},
    }


async def test_a_restapi_that_changes_wakes_its_whole_cluster() -> None:
    parts = await two_clusters()
    parts.custom("RestApi", "slurm-api", REFERENCE, generation=2)
    assert await parts.woken() == {
        "controllers": {CONTROLLER},
        "restapis": {key("slurm-api")},
        "loginsets": {key("slurm-login")},
        "nodesets": {key("slurm-workers")},
    }


async def test_a_secret_that_one_loginset_refers_to_wakes_that_one() -> None:
    parts = await two_clusters()
    parts.secret("other-sssd", {"sssd.conf": b"a"})
    assert await parts.woken() == {"loginsets": {key("other-login")}}


@pytest.mark.parametrize(
    ("status", "woken"), [("True", {"controllers", "restapis"}), ("False", set())]
)
async def test_an_accounting_that_becomes_ready_wakes_controllers_and_restapis_of_its_namespace(
    status: Literal["True", "False"], woken: set[str]
) -> None:
    parts = await two_clusters()
    manifest = parts.custom("Accounting", "db", {})
    await parts.woken()
    await parts.runtime.status.report(
        ACCOUNTINGS, manifest, [Condition("Ready", status, Ready.READY, "")]
    )
    [patch] = parts.requests.of("patch status", "Accounting")
    parts.custom("Accounting", "db", {}, patch["status"])
    assert set(await parts.woken()) == woken


async def test_a_nodeset_that_changes_wakes_a_restapi_that_waits_for_it_to_be_deleted() -> None:
    parts = await two_clusters()
    parts.custom("RestApi", "slurm-api", REFERENCE, deletionTimestamp="2026-01-01T00:00:00Z")
    await parts.woken()
    parts.custom("NodeSet", "slurm-workers", REFERENCE, generation=2)
    assert (await parts.woken())["restapis"] == {key("slurm-api")}


async def test_a_configuration_that_is_published_wakes_the_restapis_of_its_controller() -> None:
    parts = await two_clusters()
    owners = [{"kind": "Controller", "name": "slurm", "uid": "uid-of-slurm"}]
    parts.config_map("slurm-config", {"slurm.conf": "a"}, own=True, ownerReferences=owners)
    assert await parts.woken() == {"controllers": {CONTROLLER}, "restapis": {key("slurm-api")}}
