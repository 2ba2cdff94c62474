"""The real slurmrestd keeps the contract that the simulator keeps in the unit tests: the same scenarios.

All of them in the newest API version; tests/unit/slurm holds what the other one answers differently.
"""

import base64
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.contract.commands import CommandJobs
from tests.contract.scenarios import SCENARIOS, Scenario
from tests.contract.target import Target
from tests.e2e.harness import Kubernetes, Slurm


def slurmrestd(kubernetes: Kubernetes, namespace: str) -> str:
    """Where the slurmrestd of a namespace answers, seen from this machine, which reaches the pods of its nodes."""
    [pod] = kubernetes.items("-n", namespace, "pods", "-l", "app.kubernetes.io/name=slurmrestd")
    return f"http://{pod['status']['podIP']}:6820"


def jwt_key(kubernetes: Kubernetes, namespace: str) -> bytes:
    """The key that signs tokens for that slurmrestd."""
    return base64.b64decode(kubernetes.get("-n", namespace, "secret", "slurm-auth-jwt")["data"]["jwt.key"])


@pytest_asyncio.fixture
async def target(kubernetes: Kubernetes, slurm: Slurm) -> AsyncIterator[Target]:
    """Two idle workers, and idle again afterwards."""
    key, url = jwt_key(kubernetes, slurm.namespace), slurmrestd(kubernetes, slurm.namespace)
    found = Target(url, key, ("slinky-0", "slinky-1"), CommandJobs(slurm.login))
    await found.settle()
    yield found
    await found.settle()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_slurm_keeps_the_contract_of_the_simulator(scenario: Scenario, target: Target) -> None:
    await scenario(target)
