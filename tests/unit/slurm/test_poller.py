"""The poller in virtual time against a simulated Slurm."""

import asyncio
import contextlib
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from sidecars.contract.reasons import NOT_FOREIGN, Owner
from sidecars.simulate import Fault, ModelCarrier, SlurmModel
from sidecars.slurm import protocol
from sidecars.slurm.errands import PATIENCE
from sidecars.slurm.errors import NotFound, NotYet, Refused, Rejected, SlurmError, Unreachable
from sidecars.slurm.poller import CALM_AFTER, CALM_FACTOR, CONFIRM_AFTER, JOBS_WITHIN, MAX_PAUSE, STALE_AFTER, Poller
from sidecars.slurm.protocol import Request

pytestmark = pytest.mark.looptime

EPOCH = 1_800_000_000.5


def loop_time() -> float:
    return asyncio.get_running_loop().time()


class Scene:
    """A simulated Slurm, a poller of it, and what its subscriber was told."""

    def __init__(self, nodes: int = 3, **options: Any) -> None:
        self.model = SlurmModel(lambda: EPOCH + loop_time())
        for number in range(nodes):
            self.model.node_register(f"n{number}")
        self.carrier = ModelCarrier(self.model)
        self.poller = Poller(self.carrier, loop_time, rng=random.Random(1), **options)  # noqa: S311 - a test
        self.told: list[tuple[set[str], set[str]]] = []
        self.poller.subscribe(lambda changed, removed: self.told.append((set(changed), set(removed))))

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["Scene"]:
        """Polling from the start on; what was told of the first list is forgotten."""
        task = asyncio.create_task(self.poller.run())
        await until(lambda: self.poller.known)
        self.told.clear()
        self.model.calls.clear()
        yield self
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await self.poller.close()

    def lists(self) -> list[str | None]:
        """The update times asked for so far; None for a full list."""
        return [call.query.get("update_time") for call in self.model.requests("GET", "nodes/")]


async def until(condition: Callable[[], bool], seconds: float = 300) -> None:
    """Let (virtual) time pass until the condition holds."""
    deadline = loop_time() + seconds
    while not condition():
        assert loop_time() < deadline, "the condition never held"
        await asyncio.sleep(0.05)


async def failure(call: Awaitable[object]) -> SlurmError:
    with pytest.raises(SlurmError) as caught:
        await call
    return caught.value


# --- reading


async def test_nothing_is_known_before_the_first_full_list() -> None:
    scene = Scene()
    assert not scene.poller.known
    assert not scene.poller.fresh(loop_time())
    assert "not answered yet" in scene.poller.trouble
    await scene.poller.poll()
    assert scene.poller.fresh(loop_time())
    assert set(scene.poller.nodes) == {"n0", "n1", "n2"}
    assert scene.told == [({"n0", "n1", "n2"}, set())]
    assert scene.poller.trouble == ""


async def test_a_cluster_that_never_had_a_node_is_believed_to_be_empty_only_after_a_while() -> None:
    scene = Scene(nodes=0)
    await scene.poller.poll()
    assert "no node at all" in scene.poller.trouble
    async with scene.running():
        await asyncio.sleep(CONFIRM_AFTER + 2)
        assert scene.poller.trouble == ""
        assert not scene.poller.nodes


async def test_a_node_is_unsettled_from_a_write_until_an_answer_that_was_asked_for_later() -> None:
    scene = Scene(nodes=2)
    await scene.poller.poll()
    await scene.poller.drain(["n1"], "maintenance")
    assert scene.poller.unsettled == {"n1"}
    await asyncio.sleep(1)
    await scene.poller.poll()
    assert scene.poller.unsettled == frozenset()
    assert "DRAIN" in scene.poller.nodes["n1"].states


async def test_an_unchanged_cluster_with_work_is_asked_once_a_second_for_news_and_every_thirty_for_everything() -> None:
    scene = Scene()
    scene.model.job_start(["n1"])
    async with scene.running():
        await asyncio.sleep(CALM_AFTER)
        scene.model.calls.clear()
        await asyncio.sleep(60)
        asked = scene.lists()
        assert 55 <= len(asked) <= 61
        assert asked.count(None) == 2


async def test_an_idle_cluster_is_asked_less_often_once_nothing_has_stirred_for_a_while() -> None:
    async with Scene().running() as scene:
        await asyncio.sleep(CALM_AFTER)
        scene.model.calls.clear()
        await asyncio.sleep(120)
        asked = scene.lists()
        assert len(asked) <= 120 / CALM_FACTOR + 1
        assert asked.count(None) >= 3
        assert scene.poller.known


@pytest.mark.parametrize(
    "stir",
    [
        lambda scene: scene.poller.wake(),
        lambda scene: scene.poller.expect_removal(["n0"]),
        lambda scene: scene.model.job_start(["n0"]),
    ],
    ids=["somebody wakes it", "a record is about to go", "a job starts"],
)
async def test_an_idle_cluster_in_which_something_stirs_is_asked_every_second_again(
    stir: Callable[[Scene], object],
) -> None:
    async with Scene().running() as scene:
        await asyncio.sleep(2 * CALM_AFTER)
        stir(scene)
        await asyncio.sleep(CALM_FACTOR)
        scene.model.calls.clear()
        await asyncio.sleep(10)
        assert len(scene.lists()) >= 9


async def test_a_change_is_told_within_a_second_with_just_its_name() -> None:
    async with Scene().running() as scene:
        await asyncio.sleep(5.3)
        scene.model.job_start("n1")
        await until(lambda: bool(scene.told), 1.1)
        assert scene.told == [({"n1"}, set())]
        assert "MIXED" in scene.poller.nodes["n1"].states


async def test_a_change_within_the_second_of_the_last_answer_is_not_missed() -> None:
    scene = Scene()
    await scene.poller.poll()
    scene.model.nodes["n2"].comment = "at once"
    scene.model.job_start("n2")
    scene.told.clear()
    await scene.poller.poll()
    assert scene.told == [({"n2"}, set())]


@pytest.mark.parametrize("partial", [False, True])
async def test_a_deletion_by_others_is_found_also_when_answers_hold_only_changes(partial: bool) -> None:
    scene = Scene(nodes=8)
    scene.model.partial_answers = partial
    async with scene.running():
        await asyncio.sleep(5)
        scene.model.node_lose("n1")
        await until(lambda: bool(scene.told), 31)
        assert scene.told == [(set(), {"n1"})]
        assert "n1" not in scene.poller.nodes


async def test_a_deletion_is_found_within_a_second_when_answers_hold_all_nodes() -> None:
    async with Scene(nodes=8).running() as scene:
        await asyncio.sleep(5)
        scene.model.node_lose("n1")
        await until(lambda: bool(scene.told), 1.1)


async def test_a_server_that_tells_only_of_changes_is_not_asked_for_everything_each_time() -> None:
    scene = Scene(nodes=20)
    scene.model.partial_answers = True
    async with scene.running():
        for number in range(15):
            scene.model.job_start(f"n{number}")
            await asyncio.sleep(1.5)
        assert scene.lists().count(None) <= 2
        assert all("MIXED" in scene.poller.nodes[f"n{number}"].states for number in range(14))


async def test_a_server_whose_time_goes_backwards_is_asked_for_everything() -> None:
    scene = Scene()
    await scene.poller.poll()
    scene.model.clock = lambda: EPOCH - 3600
    scene.model.restart()
    scene.model._last_node_update = EPOCH + 60
    await scene.poller.poll()
    await scene.poller.poll()
    scene.model.calls.clear()
    scene.model._last_node_update = EPOCH - 3600
    scene.model.job_start("n0")
    await scene.poller.poll()
    assert "MIXED" in scene.poller.nodes["n0"].states


async def test_an_expensive_list_makes_the_pause_longer() -> None:
    scene = Scene()
    scene.model.fail(Fault.SLOW, seconds=0.8)
    async with scene.running():
        for _ in range(20):
            scene.model._touch("n0")
            await asyncio.sleep(1)
        assert len(scene.lists()) <= 7


async def test_a_single_late_list_does_not_make_the_pause_longer() -> None:
    async with Scene().running() as scene:
        for _ in range(3):
            scene.model._touch("n0")
            await asyncio.sleep(1)
        scene.model.fail(Fault.SLOW, 1, seconds=1.8)
        scene.model._touch("n0")
        await until(lambda: "1800000003" in scene.lists(), 2)
        asked = len(scene.lists())
        await until(lambda: len(scene.lists()) > asked, 1.8 + 1.1)


async def test_a_subscriber_that_has_left_is_told_nothing() -> None:
    scene = Scene()
    told: list[object] = []
    leave = scene.poller.subscribe(lambda changed, removed: told.append(changed))
    leave()
    await scene.poller.poll()
    assert told == []


# --- faults


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault not in (Fault.SLOW, Fault.EMPTY)])
async def test_after_three_faults_nothing_is_known_until_an_answer_comes(fault: Fault) -> None:
    async with Scene().running() as scene:
        scene.model.fail(fault)
        await until(lambda: not scene.poller.known, 60)
        assert scene.poller.trouble
        assert set(scene.poller.nodes) == {"n0", "n1", "n2"}
        assert scene.poller.suspect == set()
        scene.model.heal()
        await until(lambda: scene.poller.known, 2 * MAX_PAUSE + 15)
        assert scene.poller.trouble == ""
        assert all(changed == removed == set() for changed, removed in scene.told)


async def test_a_sick_server_is_asked_few_times_a_minute() -> None:
    async with Scene().running() as scene:
        scene.model.fail(Fault.SERVER_ERROR)
        await asyncio.sleep(60)
        assert len(scene.model.calls) <= 12


async def test_nothing_is_known_while_an_answer_stays_out() -> None:
    async with Scene().running() as scene:
        scene.model.fail(Fault.HANG)
        await asyncio.sleep(STALE_AFTER + 2)
        assert not scene.poller.known
        assert "no recent good answer" in scene.poller.trouble


async def test_one_fault_does_not_make_nodes_unknown() -> None:
    async with Scene().running() as scene:
        scene.model.fail(Fault.SERVER_ERROR, 1)
        for _ in range(50):
            assert scene.poller.known
            await asyncio.sleep(0.1)


async def test_waking_does_not_hammer_a_sick_server() -> None:
    async with Scene().running() as scene:
        scene.model.fail(Fault.SERVER_ERROR)
        for _ in range(600):
            scene.poller.wake()
            await asyncio.sleep(0.1)
        assert len(scene.model.calls) <= 12


async def test_waking_polls_soon_but_at_most_five_times_a_second() -> None:
    async with Scene().running() as scene:
        for _ in range(100):
            scene.poller.wake()
            await asyncio.sleep(0.1)
        assert 20 <= len(scene.lists()) <= 51


# --- lost state


@pytest.mark.parametrize("nodes", [1, 3, 8])
async def test_a_cluster_that_is_suddenly_empty_is_suspect_and_not_gone(nodes: int) -> None:
    async with Scene(nodes).running() as scene:
        scene.model.restart(lost_state=True)
        await until(lambda: not scene.poller.known, 35)
        assert len(scene.poller.suspect) == len(scene.poller.nodes) == nodes
        assert "lost its state" in scene.poller.trouble
        await asyncio.sleep(CONFIRM_AFTER - 10)
        assert all(not removed for _, removed in scene.told)


async def test_nodes_that_stay_away_are_gone_after_a_minute() -> None:
    async with Scene(8).running() as scene:
        scene.model.restart(lost_state=True)
        await until(lambda: not scene.poller.known, 35)
        lost_at = loop_time()
        await until(lambda: scene.poller.known, 120)
        assert loop_time() - lost_at >= CONFIRM_AFTER - 1
        assert scene.told[-1] == (set(), {f"n{number}" for number in range(8)})
        assert scene.poller.nodes == {}


async def test_nodes_that_come_back_were_never_gone() -> None:
    async with Scene(8).running() as scene:
        scene.model.fail(Fault.EMPTY, path="nodes/")
        await until(lambda: not scene.poller.known, 35)
        scene.model.heal()
        await until(lambda: scene.poller.known, 35)
        assert all(not removed for _, removed in scene.told)
        assert len(scene.poller.nodes) == 8


async def test_most_nodes_vanishing_at_once_is_suspect_and_half_of_them_is_not() -> None:
    async with Scene(8).running() as scene:
        scene.model.node_lose(*(f"n{number}" for number in range(4)))
        await until(lambda: bool(scene.told), 31)
        assert scene.told == [(set(), {"n0", "n1", "n2", "n3"})]
        scene.model.node_lose("n4", "n5", "n6")
        await until(lambda: not scene.poller.known, 31)
        assert scene.poller.suspect == {"n4", "n5", "n6"}


async def test_a_few_that_vanish_while_others_are_suspect_are_told_of() -> None:
    async with Scene(20).running() as scene:
        scene.model.node_lose(*(f"n{number}" for number in range(12)))
        await until(lambda: not scene.poller.known, 31)
        scene.model.node_lose("n19")
        await until(lambda: "n19" not in scene.poller.nodes, 31)
        assert len(scene.poller.suspect) == 12


async def test_announced_removals_are_no_loss_however_many() -> None:
    async with Scene(8).running() as scene:
        names = [f"n{number}" for number in range(8)]
        scene.poller.expect_removal(names)
        scene.model.node_lose(*names)
        await until(lambda: bool(scene.told), 31)
        assert scene.told == [(set(), set(names))]
        assert scene.poller.known


# --- writing


async def test_writes_made_together_with_one_reason_are_one_request() -> None:
    async with Scene(500).running() as scene:
        await asyncio.gather(*(scene.poller.drain([f"n{number}"], "slurm-operator: scale-in") for number in range(500)))
        (call,) = scene.model.requests("POST")
        assert call.body == {"name": ["n[0-499]"], "state": ["DRAIN"], "reason": "slurm-operator: scale-in"}
        await until(lambda: all("DRAIN" in node.states for node in scene.poller.nodes.values()), 1.5)


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
        # What comes later in the order of the calls is held up by what comes first.
        scene.model.fail(Fault.SLOW, method="POST", times=1, seconds=1.0)
        first = asyncio.create_task(scene.poller.drain(["n0", "n2", "n3"], "slurm-operator: update", owners=own))
        await until(lambda: len(scene.model.requests("POST")) > 1)
        later = [
            asyncio.create_task(scene.poller.undrain(["n0", "n1"], owners=own)),
            asyncio.create_task(scene.poller.drain(["n2", "n3"], "slurm-operator: scale-in", owners=own)),
            asyncio.create_task(scene.poller.down(["n2", "n3"], "slurm-operator: gone", owners=own)),
        ]
        await scene.carrier.call(protocol.update_nodes(["n1", "n2"], state=("DRAIN",), reason="bad disk"))
        await until(lambda: scene.poller.nodes["n2"].reason == "bad disk")
        await asyncio.gather(first, *later)
        now = {name: ("DRAIN" in it.flags, it.base, it.reason) for name, it in scene.model.nodes.items()}
        assert now == {
            "n0": (False, "IDLE", ""),
            "n1": (True, "IDLE", "bad disk"),
            "n2": (True, "IDLE", "bad disk"),
            "n3": (True, "DOWN", "slurm-operator: gone"),
        }
        await scene.poller.down(["n1"], None, owners=own)
        marked = scene.model.nodes["n1"]
        assert (marked.base, marked.reason) == ("DOWN", "bad disk")


async def test_a_drain_that_only_slurmctld_gave_a_reason_for_is_written_over_and_a_foreign_one_is_not() -> None:
    async with Scene(2).running() as scene:
        await scene.carrier.call(protocol.update_nodes(["n0"], state=("DRAIN",), reason="Not responding"))
        await scene.carrier.call(protocol.update_nodes(["n1"], state=("DRAIN",), reason="bad disk"))
        await until(lambda: scene.poller.nodes["n1"].reason == "bad disk")
        await scene.poller.down(["n0", "n1"], "slurm-operator: gone", owners=NOT_FOREIGN)
        now = {name: (it.base, it.reason) for name, it in scene.model.nodes.items()}
        assert now == {"n0": ("DOWN", "slurm-operator: gone"), "n1": ("IDLE", "bad disk")}


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
        calls = [asyncio.create_task(scene.poller.drain([f"n{number}"], "r")) for number in range(3)]
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
            assert "held back" in str(error)
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


async def test_each_write_does_what_it_says() -> None:
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
    await poller.resume(["n0"])
    assert now() == ({"IDLE"}, "")
    await poller.update(["n0"], comment="c", features=["f", "g"], active_features=["f"], topology="default:s1")
    assert (node.comment, node.features, node.active_features, node.topology) == ("c", ["f", "g"], ["f"], "default:s1")


async def test_closing_tells_those_whose_write_was_not_sent() -> None:
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


# --- deleting


async def test_a_deleted_node_is_gone_at_once_and_confirmed_by_a_full_list() -> None:
    async with Scene(8).running() as scene:
        await asyncio.sleep(5)
        scene.model.calls.clear()
        await scene.poller.delete("n3")
        assert scene.told == [(set(), {"n3"})]
        assert "n3" not in scene.poller.nodes
        await until(lambda: None in scene.lists(), 1.1)


async def test_deleting_all_nodes_one_by_one_is_no_loss_of_state() -> None:
    async with Scene(8).running() as scene:
        await asyncio.gather(*(scene.poller.delete(f"n{number}") for number in range(8)))
        await asyncio.sleep(40)
        assert scene.poller.known
        assert scene.poller.nodes == {}


async def test_deleting_a_node_that_is_gone_is_success() -> None:
    async with Scene().running() as scene:
        await scene.poller.delete("zz")
        scene.model.node_lose("n1")
        await scene.poller.delete("n1")
        assert scene.told == [(set(), {"n1"})]


async def test_a_busy_node_is_not_deleted() -> None:
    async with Scene().running() as scene:
        scene.model.job_start("n1")
        assert isinstance(await failure(scene.poller.delete("n1")), Rejected)
        assert "n1" in scene.poller.nodes


async def test_an_answer_from_before_a_deletion_does_not_bring_the_node_back() -> None:
    scene = Scene(8)
    await scene.poller.poll()
    scene.told.clear()
    scene.model.fail(Fault.SLOW, 1, method="GET", seconds=2)
    scene.model.job_start("n0")
    poll = asyncio.create_task(scene.poller.poll())
    await asyncio.sleep(1)
    await scene.poller.delete("n3")
    await poll
    assert "n3" not in scene.poller.nodes
    assert scene.told == [(set(), {"n3"}), ({"n0"}, set())]


async def test_a_node_that_registers_again_after_its_deletion_is_new() -> None:
    async with Scene(8).running() as scene:
        await scene.poller.delete("n3")
        scene.model.node_register("n3")
        await until(lambda: "n3" in scene.poller.nodes, 1.5)
        assert ({"n3"}, set()) in scene.told


# --- what is read when asked for


async def test_jobs_are_read_when_asked_for_and_shared_for_a_second() -> None:
    async with Scene().running() as scene:
        await asyncio.sleep(5)
        assert scene.model.requests("GET", "jobs/") == []
        job = scene.model.job_start("n0")
        both = await asyncio.gather(scene.poller.jobs(), scene.poller.jobs())
        assert [[found.job_id for found in listed.value.jobs] for listed in both] == [[job], [job]]
        assert len(scene.model.requests("GET", "jobs/")) == 1


async def test_jobs_that_did_not_change_are_not_read_again_and_those_that_did_are() -> None:
    scene = Scene()
    scene.model.job_start("n0")
    await asyncio.sleep(3)
    first = (await scene.poller.jobs()).value.jobs
    await asyncio.sleep(3)
    assert (await scene.poller.jobs()).value.jobs is first
    scene.model.job_end(first[0].job_id)
    await asyncio.sleep(1)
    assert (await scene.poller.jobs()).value.jobs[0].states == {"COMPLETED"}


async def test_nobody_waits_for_tens_of_thousands_of_jobs_and_who_asked_is_told_when_they_are_there() -> None:
    scene = Scene()
    job = scene.model.job_start("n0")
    scene.model.fail(Fault.SLOW, 1, seconds=100)
    began = loop_time()
    assert isinstance(await failure(scene.poller.jobs()), NotYet)
    assert loop_time() == began + PATIENCE
    # Who comes later doesn't wait at all.
    assert isinstance(await failure(scene.poller.jobs()), NotYet)
    assert loop_time() == began + PATIENCE
    await until(lambda: scene.told == [(set(), set())], 100)
    assert loop_time() >= began + 100
    listed = await scene.poller.jobs()
    assert ([found.job_id for found in listed.value.jobs], listed.asked_at) == ([job], began)
    assert len(scene.model.requests("GET", "jobs/")) == 1


async def test_a_reading_of_jobs_without_end_is_ended_and_who_asked_is_told() -> None:
    scene = Scene()
    scene.model.fail(Fault.HANG, 1)
    assert isinstance(await failure(scene.poller.jobs()), NotYet)
    began = loop_time()
    await until(lambda: scene.told == [(set(), set())], JOBS_WITHIN)
    assert loop_time() <= began + JOBS_WITHIN
    assert (await scene.poller.jobs()).value.jobs == ()


async def test_jobs_that_are_a_moment_old_count_only_until_a_node_changes() -> None:
    scene = Scene()
    await scene.poller.poll()
    before = await scene.poller.jobs()
    await asyncio.sleep(0.2)
    scene.model.job_start("n1")
    await scene.poller.poll()
    assert scene.poller.changed_after(before.asked_at, scene.poller.nodes) == {"n1"}
    after = await scene.poller.jobs()
    assert [found.nodes for found in after.value.jobs] == ["n1"]
    assert scene.poller.changed_after(after.asked_at, scene.poller.nodes) == set()


async def test_who_waits_for_jobs_when_the_poller_ends_is_told_so() -> None:
    scene = Scene()
    scene.model.fail(Fault.HANG, 1)
    asking = asyncio.create_task(failure(scene.poller.jobs()))
    await asyncio.sleep(1)
    await scene.poller.close()
    assert isinstance(await asking, Unreachable)


async def test_a_fault_while_reading_jobs_is_the_askers() -> None:
    scene = Scene()
    scene.model.fail(Fault.TRUNCATED, 1)
    with pytest.raises(SlurmError):
        await scene.poller.jobs()
    assert (await scene.poller.jobs()).value.jobs == ()


async def test_reservations_are_read_when_asked_for() -> None:
    scene = Scene()
    scene.model.reserve("maint", "n[0-1]", start=2_000_000_000, minutes=1)
    (reservation,) = await scene.poller.reservations()
    assert (reservation.node_list, reservation.end_time) == ("n[0-1]", 2_000_000_060)
    await scene.poller.reservations()
    assert len(scene.model.requests("GET", "reservations/")) == 1


async def test_nobody_waits_for_reservations_or_partitions_either() -> None:
    scene = Scene()
    scene.model.reserve("maint", "n[0-1]", start=2_000_000_000, minutes=1)
    scene.model.fail(Fault.SLOW, 2, path="reservations/", seconds=14)
    scene.model.fail(Fault.SLOW, 2, path="partitions/", seconds=14)
    reads: tuple[Callable[[], Awaitable[object]], ...] = (
        scene.poller.reservations,
        lambda: scene.poller.partitions(0.0),
    )
    for number, read in enumerate(reads, 1):
        began = loop_time()
        assert isinstance(await failure(read()), NotYet)
        assert loop_time() == began + PATIENCE
        await until(lambda number=number: len(scene.told) == number, 14)  # type: ignore[misc]  # bound now
        at = loop_time()
        await read()
        assert loop_time() == at
    assert scene.told == [(set(), set())] * 2


async def test_partitions_are_as_they_were_at_the_time_asked_for_or_later() -> None:
    scene = Scene()
    await scene.poller.partitions(loop_time())
    await asyncio.sleep(0.5)
    await scene.poller.partitions(0.0)
    assert len(scene.model.requests("GET", "partitions/")) == 1
    await scene.poller.partitions(loop_time())
    assert len(scene.model.requests("GET", "partitions/")) == 2
    # A reading that has begun before is not enough, nor is one that came late.
    await asyncio.sleep(2)
    scene.model.fail(Fault.SLOW, 1, path="partitions/", seconds=1)
    early = asyncio.create_task(scene.poller.partitions(0.0))
    await asyncio.sleep(0.5)
    await scene.poller.partitions(loop_time())
    await early
    assert len(scene.model.requests("GET", "partitions/")) == 4


async def test_reservations_show_our_own_changes() -> None:
    scene = Scene()
    assert await scene.poller.reservations() == ()
    await asyncio.sleep(0.01)
    await scene.poller.reserve("maint", maintenance("n0"))
    assert [it.name for it in await scene.poller.reservations()] == ["maint"]
    await asyncio.sleep(0.01)
    await scene.poller.reserve("maint", protocol.delete_reservation("maint"))
    assert await scene.poller.reservations() == ()


def maintenance(*nodes: str) -> Request[None]:
    return protocol.save_reservation("maint", start_time=2_000_000_000, minutes=1, nodes=nodes, users=["slurm"])


async def test_nobody_waits_for_a_slow_change_of_a_reservation_and_who_asks_again_gets_its_outcome() -> None:
    scene = Scene()
    scene.model.fail(Fault.SLOW, 1, method="POST", seconds=14)
    began = loop_time()
    assert isinstance(await failure(scene.poller.reserve("maint", maintenance("n0"))), NotYet)
    assert loop_time() == began + PATIENCE
    # Meanwhile neither the same is sent again nor another one.
    assert isinstance(await failure(scene.poller.reserve("maint", maintenance("n0"))), NotYet)
    assert isinstance(await failure(scene.poller.reserve("maint", maintenance("n1"))), NotYet)
    await until(lambda: bool(scene.told), 14)
    await scene.poller.reserve("maint", maintenance("n0"))
    assert len(scene.model.requests("POST")) == 1
    await scene.poller.reserve("maint", maintenance("n0"))
    assert len(scene.model.requests("POST")) == 2


async def test_a_refusal_that_comes_late_is_told_to_who_asks_again_and_to_nobody_else() -> None:
    scene = Scene()
    for again in (maintenance("nosuch"), maintenance("n0")):
        scene.model.fail(Fault.SLOW, 1, method="POST", seconds=14)
        assert isinstance(await failure(scene.poller.reserve("maint", maintenance("nosuch"))), NotYet)
        await until(lambda: bool(scene.told), 14)
        scene.told.clear()
        if again == maintenance("nosuch"):
            assert isinstance(await failure(scene.poller.reserve("maint", again)), Refused)
        else:
            await scene.poller.reserve("maint", again)
    scene.model.fail(Fault.SLOW, 1, method="DELETE", seconds=14)
    delete = protocol.delete_reservation("maint")
    assert isinstance(await failure(scene.poller.reserve("maint", delete)), NotYet)
    await asyncio.sleep(60)
    # Too long ago to say anything of now.
    assert isinstance(await failure(scene.poller.reserve("maint", delete)), NotFound)


async def test_who_waits_for_a_reservation_when_the_poller_ends_is_told_so() -> None:
    scene = Scene()
    scene.model.fail(Fault.HANG, 1)
    asking = asyncio.create_task(failure(scene.poller.reserve("maint", maintenance("n0"))))
    await asyncio.sleep(1)
    await scene.poller.close()
    assert isinstance(await asking, Unreachable)


# --- any script of events and faults


@pytest.mark.parametrize("seed", range(30))
async def test_after_any_script_of_changes_and_faults_the_nodes_are_slurms(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - a test
    scene = Scene(12)
    scene.model.partial_answers = rng.random() < 0.3
    view: set[str] = set()

    def follow(changed: frozenset[str], removed: frozenset[str]) -> None:
        view.update(changed)
        view.difference_update(removed)

    scene.poller.subscribe(follow)
    async with scene.running():
        for _ in range(rng.randrange(5, 40)):
            step, name = rng.randrange(9), f"n{rng.randrange(14)}"
            match step:
                case 0:
                    scene.model.node_register(name, extra=str(rng.random()))
                case 1 if name in scene.model.nodes:
                    scene.model.node_lose(name)
                case 2:
                    scene.model.restart(lost_state=rng.random() < 0.2)
                case 3:
                    faults = [fault for fault in Fault if fault is not Fault.HANG]
                    scene.model.fail(rng.choice(faults), rng.randrange(1, 5), seconds=rng.random() * 20)
                case 4 | 5:
                    with contextlib.suppress(SlurmError):
                        await (scene.poller.drain([name], "r") if step == 4 else scene.poller.delete(name))
                case 6 if name in scene.model.nodes:
                    scene.model.job_start(name)
                case 7 if scene.model.jobs:
                    scene.model.job_end(rng.choice(list(scene.model.jobs)))
            await asyncio.sleep(rng.random() * 3)
        scene.model.heal()
        await asyncio.sleep(2 * CONFIRM_AFTER + 40)
        assert scene.poller.known
        assert view == set(scene.poller.nodes) == set(scene.model.nodes)
        for name, node in scene.poller.nodes.items():
            assert node.states == scene.model.states(name)
            assert node.extra == scene.model.nodes[name].extra


class Unused:
    """A carrier that must not be called."""

    async def call(self, request: Request[Any], *, timeout: float | None = None) -> Any:
        raise AssertionError(request)


async def test_a_bad_name_is_refused_before_anything_is_sent() -> None:
    with pytest.raises(ValueError, match="node name"):
        await Poller(Unused(), loop_time).drain(["a b"], "r")
