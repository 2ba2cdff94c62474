"""The simulator keeps Slurm's contract: the scenarios that tests/slurm runs against a real
slurmrestd.
"""

import pytest

from sidecars.slurm.protocol import VERSIONS
from tests.contract.external import EXTERNAL, Placeholder
from tests.contract.power import POWER
from tests.contract.scenarios import ACCOUNTING, SCENARIOS, Scenario
from tests.contract.simulated import ModelJobs, ModelRun, simulated


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(
    "scenario", [*SCENARIOS, *ACCOUNTING], ids=lambda scenario: scenario.__name__
)
async def test_the_simulator_keeps_slurms_contract(scenario: Scenario, version: str) -> None:
    async with simulated(version) as target:
        await scenario(target)


@pytest.mark.parametrize("scenario", POWER, ids=lambda scenario: scenario.__name__)
async def test_the_simulator_keeps_the_contract_of_power_saving(scenario: Scenario) -> None:
    async with simulated(VERSIONS[0]) as target:
        await scenario(target)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("scenario", EXTERNAL, ids=lambda scenario: scenario.__name__)
async def test_the_simulator_keeps_the_contract_of_external_jobs(
    scenario: Placeholder, version: str
) -> None:
    async with simulated(version) as target:
        assert isinstance(target.jobs, ModelJobs)
        model = target.jobs.model
        model.users = frozenset({"slurm", "mail"})
        for name in target.nodes:
            model.node_lose(name)
        await scenario(target, ModelRun(model, target.nodes))
