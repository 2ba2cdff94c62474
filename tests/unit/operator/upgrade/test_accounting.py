"""The wait for an Accounting, as a pass meets it."""

import pytest

from sidecars.operator.core.accounting import DEADLINE_SECONDS
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.operator.upgrade import accounting
from sidecars.policy.reasons import Ready
from sidecars.workloads.resources import Controller, read
from tests.support.operator_parts import CONTROLLER, Parts

pytestmark = pytest.mark.looptime


def controller(parts: Parts) -> Controller:
    return read(Controller, parts.controller(accountingRef={"name": "db"}))


async def test_a_missing_accounting_is_a_reason_and_an_unready_one_wakes_at_the_deadline() -> None:
    parts = Parts()
    waiting = controller(parts)
    with pytest.raises(NotUsableError) as caught:
        accounting.check(parts.runtime, waiting)
    assert caught.value.reason == Ready.ACCOUNTING_MISSING
    parts.custom("Accounting", "db", {}, creationTimestamp="2023-11-14T22:13:20Z")
    await parts.woken()
    with pytest.raises(NotUsableError) as caught:
        accounting.check(parts.runtime, waiting)
    assert caught.value.reason == Ready.WAITING_FOR_ACCOUNTING
    assert "controllers" not in await parts.woken(DEADLINE_SECONDS - 1)
    assert (await parts.woken(2))["controllers"] == {CONTROLLER}


async def test_a_published_configuration_that_names_slurmdbd_goes_on_without_it() -> None:
    parts = Parts()
    going_on = controller(parts)
    parts.custom("Accounting", "db", {}, creationTimestamp="2023-11-14T22:13:20Z")
    named = {"slurm.conf": "AccountingStorageType=accounting_storage/slurmdbd\n"}
    parts.config_map("slurm-config", named, own=True)
    accounting.check(parts.runtime, going_on)


async def test_without_a_reference_nothing_is_waited_for() -> None:
    parts = Parts()
    accounting.check(parts.runtime, read(Controller, parts.controller()))
