"""The real slurmdbd keeps the contract that the simulator keeps in the unit tests: the same
scenarios.
"""

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from sidecars.contract import bridge
from sidecars.slurm import protocol
from sidecars.slurm.external import ExternalJob
from sidecars.slurm.protocol import VERSIONS
from tests.contract import external
from tests.contract.commands import CommandJobs
from tests.contract.scenarios import ACCOUNTING, Scenario
from tests.contract.target import Target
from tests.support.real import as_processes, ports, rendered
from tests.support.real.harness import VALUES

pytestmark = pytest.mark.timeout(400)


@pytest.fixture(scope="module")
def daemons(tmp_path_factory: pytest.TempPathFactory) -> Iterator[as_processes.Daemons]:
    """Those of a cluster with a real MariaDB."""
    values = [VALUES, VALUES.with_name("accounting-values.yaml")]
    more = {"nodesets": {"slinky": {"replicas": 1}}}
    release = rendered.release("accounted", ports.SLURMDBD_CONTRACT, values, more)
    with as_processes.running(tmp_path_factory.mktemp("slurmdbd"), release) as found:
        yield found


@pytest.fixture(scope="module")
def slurmdbd(daemons: as_processes.Daemons) -> Target:
    """None of these scenarios uses a node."""
    return Target(
        *(daemons.url, daemons.jwt_key, ("slinky-0", "slinky-0"), CommandJobs(daemons.login)),
        cluster=daemons.release.controller.cluster_name,
    )


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("scenario", ACCOUNTING, ids=lambda scenario: scenario.__name__)
async def test_slurmdbd_keeps_the_contract_of_the_simulator(
    scenario: Scenario, slurmdbd: Target, version: str
) -> None:
    await scenario(replace(slurmdbd, version=version))


async def test_what_the_bridge_writes_on_a_job_about_its_end_is_in_slurmdbd(
    slurmdbd: Target, daemons: as_processes.Daemons
) -> None:
    target = replace(slurmdbd, nodes=("external-0", "external-0"))
    await external.exists(target, "external-0")
    job_id = await target.call(protocol.submit_external(external.ONE), user=external.USER)
    await target.call(protocol.start_external(job_id, "ours"))

    async def runs() -> ExternalJob | None:
        """Once slurmdbd has what slurmctld sends it after the start."""
        found = await target.call(protocol.get_stored_job(job_id))
        return found if found is not None and found.states == {"RUNNING"} else None

    lives = await target.until("the job to run in slurmdbd", runs)
    assert lives.admin_comment == ""
    comment = bridge.encode(bridge.Comment("team", "group/g", "abc", exit_code=3))
    await target.call(protocol.start_again(job_id, comment))
    await target.call(protocol.cancel_job(job_id))

    async def stored() -> str | None:
        words = ("sacct", f"--jobs={job_id}", "-nPX", "--format=State,AdminComment")
        shown = await asyncio.to_thread(daemons.login, *words)
        return shown if shown.startswith("CANCELLED") else None

    text = await target.until("the job's end in slurmdbd", stored)
    assert text.strip().endswith(f"|{comment}")
    ended = await target.call(protocol.get_stored_job(job_id))
    assert ended is not None
    assert ended.external
    found = (ended.states, ended.admin_comment, ended.user_name)
    assert found == (frozenset({"CANCELLED"}), comment, external.USER)
    assert await target.call(protocol.get_stored_job(job_id + 1000)) is None
