"""One pass over one RestApi."""

import pytest

from sidecars.kube import DEPLOYMENTS, STATEFUL_SETS
from sidecars.operator.restapi.reconcile import reconcile
from tests.support.operator_parts import NAMESPACE, Parts

pytestmark = pytest.mark.looptime
KEY = (NAMESPACE, "slurm")


async def test_without_its_controller_nothing_is_applied_and_the_condition_names_it() -> None:
    parts = Parts()
    parts.restapi()
    await reconcile(parts.runtime, KEY)
    assert parts.condition("RestApi")["reason"] == "ControllerMissing"
    assert not [verb for verb, _, _ in parts.requests.made if verb == "apply"]


async def test_slurmrestd_is_applied_and_reported_with_its_counts() -> None:
    parts = Parts()
    parts.keys()
    parts.controller()
    parts.restapi(slurmrestd={"image": "slurmrestd:26.05"})
    parts.accepted(slurm_conf="ClusterName=lab\n")
    parts.workload(STATEFUL_SETS, "slurm-controller", "slurmctld", "slurmctld:26.05")
    parts.workload(DEPLOYMENTS, "slurm-restapi", "slurmrestd", "slurmrestd:26.05")
    await reconcile(parts.runtime, KEY)
    assert {"Deployment", "Service"} <= {
        kind for verb, kind, _ in parts.requests.made if verb == "apply"
    }
    status = parts.requests.of("patch status", "RestApi")[-1]["status"]
    assert (status["replicas"], status["readyReplicas"]) == (1, 1)


async def config_hash(parts: Parts) -> str:
    """What restarts slurmrestd if it changes."""
    await reconcile(parts.runtime, KEY)
    [*_, last] = parts.requests.of("apply", "Deployment")
    return str(
        last["spec"]["template"]["metadata"]["annotations"]["slinky.slurm.net/slurm-config-hash"]
    )


def slurmrestd() -> Parts:
    """A RestApi whose Controller's configuration was accepted."""
    parts = Parts()
    parts.keys()
    parts.controller()
    parts.restapi()
    parts.accepted(slurm_conf="ClusterName=lab\nSelectType=select/cons_tres\n")
    return parts


@pytest.mark.parametrize(
    "lines", ["SelectType=select/linear", "SlurmctldPort=abc", "TopologyPlugin=topology/nope"]
)
async def test_a_configuration_that_slurmctld_has_not_accepted_restarts_no_slurmrestd(
    lines: str,
) -> None:
    parts = slurmrestd()
    before = await config_hash(parts)
    parts.controller(extraConf=lines)
    assert await config_hash(parts) == before


async def test_an_accepted_line_that_slurmrestd_reads_restarts_it() -> None:
    parts = slurmrestd()
    before = await config_hash(parts)
    parts.accepted(slurm_conf="ClusterName=lab\nSelectType=select/linear\n")
    assert await config_hash(parts) != before


async def test_slurmrestd_waits_until_a_configuration_was_accepted_and_reports_it() -> None:
    parts = Parts()
    parts.keys()
    parts.controller()
    parts.restapi()
    await reconcile(parts.runtime, KEY)
    assert parts.requests.of("apply", "Deployment") == []
    assert parts.condition("RestApi")["reason"] == "WaitingForConfiguration"


async def test_a_restapi_that_is_being_deleted_stays_while_nodesets_need_it() -> None:
    parts = Parts()
    parts.controller()
    deleting = {
        "deletionTimestamp": "2026-01-01T00:00:00Z",
        "finalizers": ["slinky.slurm.net/in-use"],
    }
    parts.custom("RestApi", "slurm", {"controllerRef": {"name": "slurm"}}, **deleting)
    parts.custom("NodeSet", "slinky", {"controllerRef": {"name": "slurm"}})
    await reconcile(parts.runtime, KEY)
    assert parts.condition("RestApi")["reason"] == "InUse"
    assert parts.requests.of("patch", "RestApi") == []
