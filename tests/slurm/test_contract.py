"""The real slurmrestd keeps the contract that the simulator keeps in the unit tests: the same
scenarios.

All of them in the newest API version, and in the older one those that read most fields of each
kind.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from sidecars.slurm.protocol import VERSIONS
from tests.contract import scenarios
from tests.contract.commands import CommandJobs
from tests.contract.scenarios import SCENARIOS, Scenario
from tests.contract.target import Target
from tests.support.real import as_processes, ports, rendered
from tests.support.real.harness import VALUES

pytestmark = pytest.mark.timeout(400)

READING: list[Scenario] = [
    scenarios.nodes_are_listed_with_the_time_of_the_answer,
    scenarios.nothing_new_is_answered_without_a_list,
    scenarios.drain_sets_the_flag_and_the_reason,
    scenarios.an_unknown_node_is_not_found,
    scenarios.slurmctld_reports_when_it_started_since_api_version_0_0_45,
    scenarios.slurmctld_reports_what_it_allocates_since_api_version_0_0_45,
    scenarios.jobs_are_listed_with_their_nodes_and_limits,
    scenarios.only_api_version_0_0_44_reports_that_a_job_is_exclusive,
    scenarios.no_new_job_is_answered_with_an_empty_list_of_no_time,
    scenarios.a_reservation_is_made_changed_and_deleted,
    scenarios.a_token_of_another_key_is_refused_but_ping_answers,
    scenarios.slurmctld_answers_a_ping_and_counts,
    scenarios.a_partition_of_all_nodes_has_them,
]


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Target]:
    """Two workers, idle again at the end."""
    release = rendered.release("contract", ports.CONTRACT, [VALUES], {})
    with as_processes.running(tmp_path_factory.mktemp("contract"), release) as daemons:
        found = Target(
            daemons.url, daemons.jwt_key, ("slinky-0", "slinky-1"), CommandJobs(daemons.login)
        )
        yield found
        asyncio.run(found.settle())
        daemons.until_idle()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.__name__)
async def test_slurm_keeps_the_contract_of_the_simulator(
    scenario: Scenario, workers: Target
) -> None:
    await workers.settle()
    await scenario(workers)


@pytest.mark.parametrize("scenario", READING, ids=lambda scenario: scenario.__name__)
async def test_slurm_keeps_it_in_the_older_version_as_well(
    scenario: Scenario, workers: Target
) -> None:
    target = replace(workers, version=VERSIONS[-1])
    await target.settle()
    await scenario(target)
