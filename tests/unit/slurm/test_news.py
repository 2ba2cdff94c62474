"""A slurmrestd that can't report changes: what real ones answer, and how the changes are read from
it.
"""

import json
from pathlib import Path
from typing import TypeVar, cast

import pytest

from sidecars.simulate import Fault, ModelCarrier, SlurmModel
from sidecars.slurm import protocol
from sidecars.slurm.errors import ErrorEntry, Refused, ServerFault, SlurmError, Unreachable
from sidecars.slurm.news import read_news, refuses_changes
from sidecars.slurm.protocol import Request, decode

FIXTURES = Path(__file__).parent / "fixtures"
NOW = 1_800_000_000.0
OLD = (25, 11, 7)
T = TypeVar("T")


def refused(status: int, *numbers: int) -> ServerFault:
    return ServerFault("GET nodes/", status, tuple(ErrorEntry(number) for number in numbers))


@pytest.mark.parametrize(
    "recorded", ["v0.0.44-nodes_changed_25.11.7", "v0.0.45-nodes_changed_26.05.1"]
)
def test_the_answer_of_slurmrestd_before_26_05_3_shows_that_it_cannot_report_a_change(
    recorded: str,
) -> None:
    found = json.loads((FIXTURES / f"{recorded}.json").read_text())
    with pytest.raises(Refused) as caught:
        decode(protocol.get_nodes(17), found["status"], json.dumps(found["body"]).encode())
    assert refuses_changes(caught.value)


@pytest.mark.parametrize("recorded", ["25.11.7-v0.0.44", "26.05.1-v0.0.44", "26.05.1-v0.0.45"])
def test_a_time_that_slurmrestd_can_not_read_gets_no_changes_from_it_either(recorded: str) -> None:
    found = json.loads((FIXTURES / "releases" / f"{recorded}-bad_query.json").read_text())
    with pytest.raises(Refused) as caught:
        decode(protocol.get_nodes(-5), found["status"], json.dumps(found["body"]).encode())
    assert refuses_changes(caught.value)


@pytest.mark.parametrize(
    "other",
    [
        refused(502, 1800),
        refused(500),
        refused(200, -1),
        refused(500, -1, 1007),
        Unreachable("GET nodes/", "timed out"),
    ],
    ids=str,
)
def test_no_other_fault_reports_it(other: SlurmError) -> None:
    assert not refuses_changes(other)


@pytest.mark.parametrize("release", [OLD, (26, 5, 2), (26, 5, 3)])
async def test_the_changes_are_read_from_each_release(release: tuple[int, ...]) -> None:
    model = SlurmModel(lambda: NOW)
    model.release = release
    model.node_register("n0")
    for since in (None, int(NOW)):
        answer = await read_news(ModelCarrier(model), protocol.get_nodes, since)
        assert answer is not None
        assert [node.name for node in answer.nodes] == ["n0"]
        full = "update_time" not in model.requests("GET", "nodes/")[-1].query
        assert full == (since is None or release < (26, 5, 3))
    assert await read_news(ModelCarrier(model), protocol.get_nodes, int(NOW) + 1) is None
    assert "update_time" in model.requests("GET", "nodes/")[-1].query


@pytest.mark.parametrize(
    "everything", [refused(500, -1), refused(500), None], ids=["refused", "failed", "no change"]
)
async def test_a_server_that_answers_no_full_list_either_is_asked_twice_and_no_more(
    everything: SlurmError | None,
) -> None:
    """Whatever it answers, nothing counts as known."""
    asked: list[str] = []

    class Hostile:
        async def call(self, request: Request[T], *, timeout: float | None = None) -> T:
            asked.append(str(request))
            if len(asked) == 1:
                raise refused(500, -1)
            if everything is not None:
                raise everything
            return cast("T", None)

    with pytest.raises(SlurmError) as caught:
        await read_news(Hostile(), protocol.get_nodes, 5)
    assert len(asked) == 2
    if everything is None:
        assert "reports no change in answer to a request for everything" in str(caught.value)


async def test_a_server_that_is_out_of_order_is_asked_once() -> None:
    model = SlurmModel(lambda: NOW)
    model.fail(Fault.SERVER_ERROR)
    with pytest.raises(ServerFault):
        await read_news(ModelCarrier(model), protocol.get_nodes, 5)
    assert len(model.requests("GET", "nodes/")) == 1
