"""Nothing is decided in a namespace that the operator may not read, and it is reported."""

from typing import TYPE_CHECKING

import pytest

from sidecars.operator.runtime import permissions
from tests.support.operator_parts import CONTROLLER, Parts

if TYPE_CHECKING:
    from sidecars.operator.runtime.queues import Key

pytestmark = pytest.mark.looptime
DELETED = "2026-01-01T00:00:00Z"


async def passes(parts: Parts, *keys: "Key") -> tuple[list["Key"], list[float | None]]:
    """The Controllers that are reconciled, and when to look again at each of `keys`."""
    reconciled: list[Key] = []

    async def reconcile(key: "Key") -> None:
        reconciled.append(key)

    one_pass = permissions.when_readable(parts.runtime, parts.runtime.caches.controllers, reconcile)
    return reconciled, [await one_pass(key) for key in keys]


async def test_a_resource_in_a_namespace_that_is_not_readable_only_names_the_remedy() -> None:
    parts = Parts()
    parts.controller()
    parts.runtime.caches.pods.refused["slurm"] = False
    parts.runtime.caches.own_secrets.refused["slurm"] = False
    reconciled, again = await passes(parts, CONTROLLER)
    assert reconciled == []
    assert again == [permissions.RETRY_SECONDS]
    ready = parts.condition("Controller")
    assert (ready["status"], ready["reason"]) == ("False", "Forbidden")
    assert "may not list pods, secrets in namespace slurm" in ready["message"]
    assert "helm upgrade" in ready["message"]
    assert permissions.unreadable(parts.runtime.caches) == {"slurm": ready["message"]}


async def test_a_resource_in_another_namespace_is_reconciled_as_ever() -> None:
    parts = Parts()
    parts.controller()
    parts.runtime.caches.pods.refused["other"] = False
    assert await passes(parts, CONTROLLER) == ([CONTROLLER], [None])


async def test_it_is_reconciled_when_the_rights_are_there() -> None:
    parts = Parts()
    parts.controller()
    refused = parts.runtime.caches.pods.refused
    refused["slurm"] = False
    await passes(parts, CONTROLLER)
    del refused["slurm"]
    assert await passes(parts, CONTROLLER) == ([CONTROLLER], [None])
    assert permissions.unreadable(parts.runtime.caches) == {}


async def test_what_is_remembered_of_a_resource_that_is_gone_can_be_forgotten() -> None:
    parts = Parts()
    parts.runtime.caches.pods.refused["slurm"] = False
    assert await passes(parts, CONTROLLER) == ([CONTROLLER], [None])


@pytest.mark.parametrize(("leaving", "reconciled"), [(True, [CONTROLLER]), (False, [])])
async def test_finalizers_are_removed_without_rights_only_if_the_namespace_is_being_deleted(
    leaving: bool, reconciled: list["Key"]
) -> None:
    parts = Parts()
    parts.custom("Controller", "slurm", {}, deletionTimestamp=DELETED)
    parts.runtime.caches.pods.refused["slurm"] = leaving
    assert (await passes(parts, CONTROLLER))[0] == reconciled


async def test_a_namespace_that_was_deleted_is_not_worked_in_until_it_has_been_read_again() -> None:
    parts = Parts()
    parts.controller()
    parts.runtime.caches.pods.refused["slurm"] = True
    assert (await passes(parts, CONTROLLER))[0] == []
    # A namespace that doesn't exist needs no remedy.
    assert permissions.unreadable(parts.runtime.caches) == {}


async def test_a_worker_pod_waits_without_a_condition() -> None:
    parts = Parts()
    parts.pod("slinky-0")
    parts.runtime.caches.pods.refused["slurm"] = False

    async def reconcile(_: "Key") -> None:
        raise AssertionError("reconciled")

    one_pass = permissions.when_readable(parts.runtime, parts.runtime.caches.pods, reconcile)
    assert await one_pass(("slurm", "slinky-0")) == permissions.RETRY_SECONDS
    assert parts.requests.made == []
