"""The real slurmdbd keeps the contract that the simulator keeps in the unit tests: the same
scenarios.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from sidecars.slurm.protocol import VERSIONS
from tests.contract.commands import CommandJobs
from tests.contract.scenarios import ACCOUNTING, Scenario
from tests.contract.target import Target
from tests.support.real import as_processes, ports, rendered
from tests.support.real.harness import VALUES

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def slurmdbd(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """One with a real MariaDB. None of these scenarios uses a node."""
    values = [VALUES, VALUES.with_name("accounting-values.yaml")]
    more = {"nodesets": {"slinky": {"replicas": 1}}}
    release = rendered.release("accounted", ports.SLURMDBD_CONTRACT, values, more)
    with as_processes.running(tmp_path_factory.mktemp("slurmdbd"), release) as daemons:
        nodes = ("slinky-0", "slinky-0")
        cluster = release.controller.cluster_name
        yield Target(
            daemons.url, daemons.jwt_key, nodes, CommandJobs(daemons.login), cluster=cluster
        )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("scenario", ACCOUNTING, ids=lambda scenario: scenario.__name__)
async def test_slurmdbd_keeps_the_contract_of_the_simulator(
    scenario: Scenario, slurmdbd: Target, version: str
) -> None:
    await scenario(replace(slurmdbd, version=version))
