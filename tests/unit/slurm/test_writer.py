"""Batched writes through a poller, in virtual time against a simulated Slurm."""

import asyncio
from typing import Any

import pytest

from sidecars.contract.reasons import OURS, REPLACEABLE, Owner
from sidecars.simulate import Fault
from sidecars.slurm import protocol
from sidecars.slurm.errors import NotFound, SlurmError, Unreachable
from sidecars.slurm.poller import Poller
from sidecars.slurm.protocol import Request
from tests.unit.slurm.scene import Scene, failure, loop_time, until

pytestmark = pytest.mark.looptime


async def test_writes_made_together_with_one_reason_are_one_request() -> None:
    async with Scene(500).running() as scene:
        await asyncio.gather(
            *(
                scene.poller.drain([f"n{number}"], "slurm-operator: scale-in")
                for number in range(500)
            )
        )
        (call,) = scene.model.requests("POST")
        assert call.body == {
            "name": ["n[0-499]"],
            "state": ["DRAIN"],
            "reason": "slurm-operator: scale-in",
        }
        await until(
            lambda: all("DRAIN" in node.states for node in scene.poller.nodes.values()), 1.5
        )


async def test_writes_of_one_node_arrive_in_the_order_of_the_calls() -> None:
    async with Scene().running() as scene:
        await asyncio.gather(
            scene.poller.drain(["n0"], "a"),
            scene.poller.undrain(["n0"]),
            scene.poller.drain(["n0", "n1"], "a"),
            scene.poller.drain(["n2"], "b"),
        )
        bodies = [call.body for call in scene.model.requests("POST")]
        assert [(body["name"], body["state"]) for body in bodies if body] == [
            (["n0"], ["DRAIN"]),
            (["n0"], ["UNDRAIN"]),
            (["n[0-1]"], ["DRAIN"]),
            (["n2"], ["DRAIN"]),
        ]
        assert "DRAIN" in scene.model.states("n0")


async def test_what_somebody_else_drains_while_a_write_waits_is_left_as_it_is() -> None:
    own = frozenset({Owner.OPERATOR})
    async with Scene(4).running() as scene:
        await scene.poller.drain(["n0", "n1"], "slurm-operator: scale-in")
        # What comes later in the order of the calls is delayed by what comes first.
        scene.model.fail(Fault.SLOW, method="POST", times=1, seconds=1.0)
        first = asyncio.create_task(
            scene.poller.drain(["n0", "n2", "n3"], "slurm-operator: update", owners=own)
        )
        await until(lambda: len(scene.model.requests("POST")) > 1)
        later = [
            asyncio.create_task(scene.poller.undrain(["n0", "n1"], owners=own)),
            asyncio.create_task(
                scene.poller.drain(["n2", "n3"], "slurm-operator: scale-in", owners=own)
            ),
            asyncio.create_task(
                scene.poller.down(["n2", "n3"], "slurm-operator: gone", owners=own)
            ),
        ]
        await scene.carrier.call(
            protocol.update_nodes(["n1", "n2"], state=("DRAIN",), reason="bad disk")
        )
        await until(lambda: scene.poller.nodes["n2"].reason == "bad disk")
        await asyncio.gather(first, *later)
        now = {
            name: ("DRAIN" in it.flags, it.base, it.reason)
            for name, it in scene.model.nodes.items()
        }
        assert now == {
            "n0": (False, "IDLE", ""),
            "n1": (True, "IDLE", "bad disk"),
            "n2": (True, "IDLE", "bad disk"),
            "n3": (True, "DOWN", "slurm-operator: gone"),
        }
        await scene.poller.down(["n1"], None, owners=own)
        marked = scene.model.nodes["n1"]
        assert (marked.base, marked.reason) == ("DOWN", "bad disk")


async def test_a_reason_of_slurmctld_or_an_administrator_is_overwritten_in_no_state() -> None:
    async with Scene(5).running() as scene:
        call = scene.carrier.call
        await call(
            protocol.update_nodes(["n0"], state=("DRAIN",), reason="slurm-node: slurmd has stopped")
        )
        await call(protocol.update_nodes(["n1"], state=("DRAIN",), reason="Not responding"))
        await call(protocol.update_nodes(["n2"], state=("DRAIN",), reason="bad disk"))
        await call(protocol.update_nodes(["n3"], state=("DOWN",), reason="bad disk"))
        await call(protocol.update_nodes(["n4"], reason="watch this node"))
        await until(lambda: scene.poller.nodes["n4"].reason == "watch this node")
        everything = [f"n{number}" for number in range(5)]
        await scene.poller.down(everything, "slurm-operator: gone", owners=REPLACEABLE)
        now = {name: (it.base, it.reason) for name, it in scene.model.nodes.items()}
        assert now == {
            "n0": ("DOWN", "slurm-operator: gone"),
            "n1": ("IDLE", "Not responding"),
            "n2": ("IDLE", "bad disk"),
            "n3": ("DOWN", "bad disk"),
            "n4": ("IDLE", "watch this node"),
        }
        await until(lambda: scene.poller.nodes["n0"].reason == "slurm-operator: gone")
        await scene.poller.drain(
            everything, "slurm-operator: scale-in", owners=frozenset({Owner.OPERATOR})
        )
        assert {name: it.reason for name, it in scene.model.nodes.items()} == {
            "n0": "slurm-operator: scale-in",
            "n1": "Not responding",
            "n2": "bad disk",
            "n3": "bad disk",
            "n4": "watch this node",
        }


async def test_resume_returns_only_down_nodes_of_the_owners() -> None:
    async with Scene(2).running() as scene:
        for name, reason in (("n0", "slurm-node: slurmd has stopped"), ("n1", "bad disk")):
            await scene.carrier.call(protocol.update_nodes([name], state=("DOWN",), reason=reason))
        await until(lambda: scene.poller.nodes["n1"].reason == "bad disk")
        await scene.poller.resume(["n0", "n1"], owners=OURS)
        now = {name: (it.base, it.reason) for name, it in scene.model.nodes.items()}
        assert now == {"n0": ("IDLE", ""), "n1": ("DOWN", "bad disk")}


async def test_a_drain_without_a_reason_keeps_the_present_reason_whoever_set_it() -> None:
    async with Scene(1).running() as scene:
        await scene.carrier.call(protocol.update_nodes(["n0"], state=("DOWN",), reason="bad disk"))
        await scene.poller.drain(["n0"], None)
        marked = scene.model.nodes["n0"]
        assert (marked.base, "DRAIN" in marked.flags, marked.reason) == ("DOWN", True, "bad disk")


async def test_a_spoiled_name_fails_alone_and_only_for_its_caller() -> None:
    async with Scene(16).running() as scene:
        good = asyncio.create_task(scene.poller.drain([f"n{number}" for number in range(16)], "r"))
        bad = await failure(scene.poller.drain(["zz"], "r"))
        await good
        assert isinstance(bad, NotFound)
        assert all("DRAIN" in scene.model.states(f"n{number}") for number in range(16))
        assert len(scene.model.requests("POST")) <= 11


async def test_a_fault_fails_the_write_for_each_caller_and_is_not_tried_again() -> None:
    async with Scene().running() as scene:
        scene.model.fail(Fault.SERVER_ERROR, method="POST")
        calls = [
            asyncio.create_task(scene.poller.drain([f"n{number}"], "r")) for number in range(3)
        ]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert all(isinstance(result, SlurmError) for result in results)
        assert len(scene.model.requests("POST")) == 1


async def test_nothing_is_written_while_the_breaker_is_open() -> None:
    async with Scene().running() as scene:
        scene.model.fail(Fault.SERVER_ERROR, path="nodes/", method="GET")
        await until(lambda: not scene.poller.known, 60)
        for call in (scene.poller.drain(["n0"], "r"), scene.poller.delete("n0")):
            error = await failure(call)
            assert isinstance(error, Unreachable)
            assert "not sent while polls" in str(error)
        assert scene.model.requests("POST") == scene.model.requests("DELETE") == []


async def test_a_caller_that_is_cancelled_does_not_stop_the_write_of_another() -> None:
    async with Scene().running() as scene:
        first = asyncio.create_task(scene.poller.drain(["n0"], "r"))
        second = asyncio.create_task(scene.poller.drain(["n1"], "r"))
        await asyncio.sleep(0)
        first.cancel()
        await second
        assert "DRAIN" in scene.model.states("n1")


async def test_writing_to_no_nodes_does_nothing() -> None:
    scene = Scene()
    await scene.poller.drain([], "r")
    assert scene.model.calls == []


async def test_each_write_does_what_its_name_states() -> None:
    scene = Scene(1)
    poller, node = scene.poller, scene.model.nodes["n0"]

    def now() -> tuple[set[str], str]:
        return {*scene.model.states("n0")} & {"IDLE", "DOWN", "DRAIN"}, node.reason

    await poller.drain(["n0"], "a")
    assert now() == ({"IDLE", "DRAIN"}, "a")
    await poller.down(["n0"], "b")
    assert now() == ({"DOWN", "DRAIN"}, "b")
    await poller.undrain(["n0"])
    assert now() == ({"DOWN"}, "b")
    await poller.update(["n0"], features=["f", "g"], active_features=["f"], topology="default:s1")
    assert (node.features, node.active_features, node.topology) == (["f", "g"], ["f"], "default:s1")


async def test_closing_notifies_those_whose_write_was_not_sent() -> None:
    scene = Scene()
    write = asyncio.create_task(scene.poller.drain(["n0"], "r"))
    await asyncio.sleep(0)
    await scene.poller.close()
    assert isinstance(await failure(write), Unreachable)
    assert scene.model.calls == []


async def test_closing_never_reports_a_write_on_its_way_as_done() -> None:
    scene = Scene()
    scene.model.fail(Fault.HANG)
    write = asyncio.create_task(scene.poller.drain(["n0"], "r"))
    await asyncio.sleep(1)
    await scene.poller.close()
    assert "not known to be done" in str(await failure(write))


class Unused:
    """A carrier that must not be called."""

    async def call(self, request: Request[Any], *, timeout: float | None = None) -> Any:
        raise AssertionError(request)


async def test_a_bad_name_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(ValueError, match="node name"):
        await Poller(Unused(), loop_time).drain(["a b"], "r")
