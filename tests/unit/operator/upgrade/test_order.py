"""A changed image waits until what Slurm's order puts before it is up to date and ready."""

from typing import Any

import pytest

from sidecars.kube import DEPLOYMENTS, STATEFUL_SETS, Manifest
from sidecars.operator.upgrade import order
from sidecars.policy import upgrades
from sidecars.policy.reasons import Ready
from sidecars.workloads.resources import Controller, read
from tests.support.operator_parts import NAMESPACE, Parts

pytestmark = pytest.mark.looptime
OLD, NEW = "slurm:25.11", "slurm:26.05"


def rendered(kind: str, daemon: str, image: str) -> list[Manifest]:
    spec: dict[str, Any] = {"containers": [{"name": daemon, "image": image}]}
    metadata = {"namespace": NAMESPACE, "name": "slurm-restapi"}
    return [{"kind": kind, "metadata": metadata, "spec": {"template": {"spec": spec}}}]


def cluster(parts: Parts, wanted: str) -> Controller:
    manifest = parts.controller(slurmctld={"image": wanted})
    return read(Controller, manifest)


async def test_slurmrestd_waits_with_its_new_image_until_slurmctld_has_its_own() -> None:
    parts = Parts()
    controller = cluster(parts, NEW)
    parts.workload(STATEFUL_SETS, "slurm-controller", "slurmctld", OLD)
    parts.workload(DEPLOYMENTS, "slurm-restapi", "slurmrestd", OLD)
    manifests = rendered("Deployment", "slurmrestd", NEW)
    blocked = order.arrange(
        parts.runtime, manifests, "slurmrestd", order.before_clients(parts.runtime, controller)
    )
    assert blocked is not None
    assert blocked.reason == Ready.WAITING_FOR_UPGRADE
    assert "Controller 'slurm'" in blocked.condition.message
    assert manifests[0]["spec"]["template"]["spec"]["containers"][0]["image"] == OLD
    assert order.again(blocked) == order.AGAIN_SECONDS


async def test_slurmrestd_gets_its_new_image_when_slurmctld_is_ready_with_its_own() -> None:
    parts = Parts()
    controller = cluster(parts, NEW)
    parts.workload(STATEFUL_SETS, "slurm-controller", "slurmctld", NEW)
    parts.workload(DEPLOYMENTS, "slurm-restapi", "slurmrestd", OLD)
    manifests = rendered("Deployment", "slurmrestd", NEW)
    assert (
        order.arrange(
            parts.runtime, manifests, "slurmrestd", order.before_clients(parts.runtime, controller)
        )
        is None
    )
    assert manifests[0]["spec"]["template"]["spec"]["containers"][0]["image"] == NEW


async def test_a_new_cluster_s_slurmrestd_is_not_created_before_slurmctld_is_ready() -> None:
    parts = Parts()
    controller = cluster(parts, NEW)
    parts.workload(STATEFUL_SETS, "slurm-controller", "slurmctld", NEW, ready=False)
    manifests = rendered("Deployment", "slurmrestd", NEW)
    blocked = order.arrange(
        parts.runtime, manifests, "slurmrestd", order.before_clients(parts.runtime, controller)
    )
    assert (blocked is None) == (manifests != [])


async def test_slurmctld_waits_for_the_slurmdbd_of_its_accounting_and_for_no_external_one() -> None:
    parts = Parts()
    manifest = parts.controller(accountingRef={"name": "db"})
    controller = read(Controller, manifest)
    assert order.before_slurmctld(parts.runtime, controller) == upgrades.NOTHING
    parts.custom("Accounting", "db", {"slurmdbd": {"image": NEW}})
    parts.workload(STATEFUL_SETS, "db-accounting", "slurmdbd", OLD)
    assert "Accounting 'db'" in order.before_slurmctld(parts.runtime, controller).waits
    parts.custom("Accounting", "db", {"external": True})
    assert order.before_slurmctld(parts.runtime, controller) == upgrades.NOTHING


async def test_nodesets_come_after_slurmrestd_and_login_nodes_of_their_cluster_alone() -> None:
    parts = Parts()
    controller = cluster(parts, NEW)
    parts.workload(STATEFUL_SETS, "slurm-controller", "slurmctld", NEW)
    parts.custom(
        "RestApi", "elsewhere", {"controllerRef": {"name": "other"}, "slurmrestd": {"image": NEW}}
    )
    assert order.before_workers(parts.runtime, controller).waits == ""
    parts.custom(
        "RestApi", "slurm", {"controllerRef": {"name": "slurm"}, "slurmrestd": {"image": NEW}}
    )
    parts.workload(DEPLOYMENTS, "slurm-restapi", "slurmrestd", OLD)
    assert "RestApi 'slurm'" in order.before_workers(parts.runtime, controller).waits
