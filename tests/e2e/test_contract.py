"""The real slurmrestd keeps the contract that the simulator keeps in the unit tests: the same scenarios.

All of them in the newest API version, and in the older one those that read most fields of each kind.
"""

import asyncio
import base64
import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from sidecars.slurm.protocol import VERSIONS
from tests.cluster.install import unready
from tests.cluster.local import existing, named_by
from tests.contract import scenarios
from tests.contract.commands import CommandJobs
from tests.contract.scenarios import SCENARIOS, Scenario
from tests.contract.target import Target
from tests.support.real.harness import Kubernetes, Slurm, condition, until

READING: list[Scenario] = [
    scenarios.nodes_are_listed_with_the_time_of_the_answer,
    scenarios.nothing_new_is_answered_without_a_list,
    scenarios.drain_sets_the_flag_and_the_reason,
    scenarios.an_unknown_node_is_not_found,
    scenarios.slurmctld_tells_when_it_started_since_api_version_0_0_45,
    scenarios.slurmctld_tells_what_it_allocates_since_api_version_0_0_45,
    scenarios.jobs_are_listed_with_their_nodes_and_limits,
    scenarios.only_api_version_0_0_44_reports_that_a_job_is_exclusive,
    scenarios.no_new_job_is_answered_with_an_empty_list_of_no_time,
    scenarios.a_reservation_is_made_changed_and_deleted,
    scenarios.a_token_of_another_key_is_refused_but_ping_answers,
    scenarios.slurmctld_answers_a_ping_and_counts,
    scenarios.a_partition_of_all_nodes_has_them,
]


def slurmrestd(kubernetes: Kubernetes, namespace: str) -> str:
    """Where the slurmrestd of a namespace answers, seen from this machine. A NetworkPolicy `contract` admits it."""

    def alone() -> dict[str, Any] | None:
        restapi = kubernetes.get("-n", namespace, "restapis.slinky.slurm.net", "slurm")
        deployment = kubernetes.get("-n", namespace, "deployment", "slurm-restapi")
        status = deployment["status"]
        counts = [status.get(key, 0) for key in ("replicas", "updatedReplicas", "readyReplicas")]
        seen = status.get("observedGeneration") == deployment["metadata"]["generation"]
        if unready(restapi) or not seen or counts != [1, 1, 1]:
            return None
        pods = kubernetes.items("-n", namespace, "pods", "-l", "app.kubernetes.io/name=slurmrestd")
        return pods[0] if len(pods) == 1 and condition(pods[0], "Ready").get("status") == "True" else None

    host = existing(named_by(str(kubernetes.kubeconfig)) or "").plan.host_address
    policy = {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": {"name": "contract"},
        "spec": {
            "podSelector": {"matchLabels": {"app.kubernetes.io/name": "slurmrestd"}},
            "ingress": [{"from": [{"ipBlock": {"cidr": f"{host}/32"}}]}],
        },
    }
    kubernetes.kubectl("-n", namespace, "apply", "-f", "-", stdin=json.dumps(policy))
    # A changed configuration may just have replaced it.
    return f"http://{until('one slurmrestd to be ready', alone, 90)['status']['podIP']}:6820"


def jwt_key(kubernetes: Kubernetes, namespace: str) -> bytes:
    """The key that signs tokens for that slurmrestd."""
    return base64.b64decode(kubernetes.get("-n", namespace, "secret", "slurm-auth-jwt")["data"]["jwt.key"])


@pytest.fixture(scope="module")
def workers(kubernetes: Kubernetes, slurm: Slurm) -> Iterator[Target]:
    """Two workers, idle again at the end."""
    key, url = jwt_key(kubernetes, slurm.namespace), slurmrestd(kubernetes, slurm.namespace)
    found = Target(url, key, ("slinky-0", "slinky-1"), CommandJobs(slurm.login))
    yield found
    asyncio.run(found.settle())
    slurm.until_idle(2)
    kubernetes.kubectl("-n", slurm.namespace, "delete", "networkpolicy", "contract")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_slurm_keeps_the_contract_of_the_simulator(scenario: Scenario, workers: Target) -> None:
    await workers.settle()
    await scenario(workers)


@pytest.mark.parametrize("scenario", READING, ids=lambda scenario: scenario.__name__)
async def test_slurm_keeps_it_in_the_older_version_as_well(scenario: Scenario, workers: Target) -> None:
    target = replace(workers, version=VERSIONS[-1])
    await target.settle()
    await scenario(target)
