"""What a client of the simulated slurmrestd sees of a connection that fails:
`sidecars.simulate.carriers`.
"""

import aiohttp
import pytest

from sidecars.simulate import Fault, SlurmModel, serve


async def test_a_connection_that_is_reset_has_no_answer() -> None:
    model = SlurmModel()
    model.fail(Fault.RESET)
    async with serve(model) as url, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.get(f"{url}/slurm/v0.0.45/ping/")


async def test_an_answer_that_is_cut_begins_and_does_not_end() -> None:
    model = SlurmModel()
    model.fail(Fault.CUT)
    async with serve(model) as url, aiohttp.ClientSession() as session:
        answer = await session.get(
            f"{url}/slurm/v0.0.45/nodes/", headers={"X-SLURM-USER-TOKEN": "t"}
        )
        assert answer.status == 200
        with pytest.raises(aiohttp.ClientPayloadError):
            await answer.read()
