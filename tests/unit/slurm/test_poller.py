"""The poller in virtual time against a simulated Slurm: polls, notifications, trust, deletions."""

import asyncio
import contextlib
import itertools
import random
from collections.abc import Callable

import pytest

from sidecars.simulate import Fault
from sidecars.slurm.errors import Rejected, SlurmError
from sidecars.slurm.node_cache import CALM_AFTER, CONFIRM_AFTER
from sidecars.slurm.schedule import CALM_FACTOR, MAX_PAUSE, STALE_AFTER
from tests.unit.slurm.scene import EPOCH, Scene, failure, loop_time, show_time, until

pytestmark = pytest.mark.looptime


async def test_nothing_is_known_before_the_first_full_list() -> None:
    scene = Scene()
    assert not scene.poller.known
    assert not scene.poller.fresh(loop_time())
    assert "not answered yet" in scene.poller.trouble
    await scene.poller.poll()
    assert scene.poller.fresh(loop_time())
    assert set(scene.poller.nodes) == {"n0", "n1", "n2"}
    assert scene.received == [({"n0", "n1", "n2"}, set())]
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


async def test_nodes_are_read_at_once_only_if_the_last_answer_was_asked_for_too_early() -> None:
    scene = Scene(nodes=1)
    await scene.poller.poll()
    asked = scene.poller.last_good
    assert asked is not None
    scene.model.calls.clear()
    await scene.poller.nodes_since(asked)
    assert scene.lists() == []
    await asyncio.sleep(1)
    await scene.poller.nodes_since(asked + 0.5)
    assert len(scene.lists()) == 1
    assert scene.poller.last_good is not None
    assert scene.poller.last_good > asked
    scene.model.fail(Fault.SERVER_ERROR)
    with pytest.raises(SlurmError):
        await scene.poller.nodes_since(loop_time() + 1)


async def test_a_cluster_stays_known_although_its_slurmrestd_cannot_report_changes() -> None:
    scene = Scene()
    scene.model.release = (25, 11, 7)
    async with scene.running():
        known = 0
        for second in range(300):
            if second % 2:
                scene.model.node_register("n1", features=[f"at-{second}"])
            await asyncio.sleep(1)
            known += scene.poller.known
        assert known == 300
        assert scene.poller.generation == 1
        seen = [number for changed, _ in scene.received for number in changed]
        assert seen == ["n1"] * len(seen)
        assert len(seen) >= 149


@pytest.mark.parametrize("shown", [-5, 0, 2**63, 2**64 - 1])
async def test_a_cluster_stays_known_whatever_time_its_answers_have(shown: int) -> None:
    """slurmrestd refuses to read a negative one when it is asked for the changes since then."""
    scene = Scene()
    show_time(scene.model, shown)
    async with scene.running():
        for second in range(60):
            await asyncio.sleep(1)
            assert scene.poller.known, (second, scene.poller.trouble)
        scene.model.job_start("n1")
        await asyncio.sleep(31)
        assert "MIXED" in scene.poller.nodes["n1"].states


@pytest.mark.parametrize("reported", [(25, 11, 7), (26, 5, 5), (99, 11, 0)])
async def test_a_slurmrestd_without_change_reports_is_read_in_full_until_nothing_changes(
    reported: tuple[int, ...],
) -> None:
    """Whichever release it reports: what it refuses counts."""
    scene = Scene(full_every=1e9)
    scene.model.release, scene.model.reported = (25, 11, 7), reported
    scene.model.job_start(["n1"])
    async with scene.running():
        await asyncio.sleep(3)
        scene.model.calls.clear()
        await asyncio.sleep(10)
        assert None not in scene.lists(), "that nothing has changed is reported"
        for _ in range(10):
            scene.model.node_register("n1")
            await asyncio.sleep(1)
        scene.model.calls.clear()
        scene.model.node_register("n1")
        await asyncio.sleep(1)
        assert scene.lists() == [None], "its refusal is remembered"
        await asyncio.sleep(3)
        scene.model.calls.clear()
        await asyncio.sleep(30)
        assert None not in scene.lists()
        assert len(scene.lists()) >= 28


async def test_a_slurmrestd_that_can_report_changes_after_an_upgrade_is_asked_for_them_again() -> (
    None
):
    scene = Scene(full_every=1e9)
    scene.model.release = (25, 11, 7)
    scene.model.job_start(["n1"])
    async with scene.running():
        changes = itertools.count()

        async def seconds(number: int) -> None:
            for _ in range(4 * number):
                scene.model.node_register("n1", features=[f"at-{next(changes)}"])
                await asyncio.sleep(0.25)

        await seconds(1)
        scene.model.fail(Fault.RESET, 1)
        scene.model.release = (26, 5, 3)
        await seconds(5)
        scene.model.calls.clear()
        await seconds(5)
        assert scene.lists()
        assert None not in scene.lists()


async def test_an_unchanged_busy_cluster_is_polled_each_second_and_fully_every_30() -> None:
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
    ids=["a caller wakes it", "a record is about to go", "a job starts"],
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


async def test_a_change_is_reported_within_a_second_with_just_its_name() -> None:
    async with Scene().running() as scene:
        await asyncio.sleep(5.3)
        scene.model.job_start("n1")
        await until(lambda: bool(scene.received), 1.1)
        assert scene.received == [({"n1"}, set())]
        assert "MIXED" in scene.poller.nodes["n1"].states


async def test_a_change_within_the_second_of_the_last_answer_is_not_missed() -> None:
    scene = Scene()
    await scene.poller.poll()
    scene.model.nodes["n2"].comment = "at once"
    scene.model.job_start("n2")
    scene.received.clear()
    await scene.poller.poll()
    assert scene.received == [({"n2"}, set())]


@pytest.mark.parametrize("partial", [False, True])
async def test_a_deletion_by_others_is_found_also_when_answers_contain_only_changes(
    partial: bool,
) -> None:
    scene = Scene(nodes=8)
    scene.model.partial_answers = partial
    async with scene.running():
        await asyncio.sleep(5)
        scene.model.node_lose("n1")
        await until(lambda: bool(scene.received), 31)
        assert scene.received == [(set(), {"n1"})]
        assert "n1" not in scene.poller.nodes


async def test_a_deletion_is_found_within_a_second_when_answers_contain_all_nodes() -> None:
    async with Scene(nodes=8).running() as scene:
        await asyncio.sleep(5)
        scene.model.node_lose("n1")
        await until(lambda: bool(scene.received), 1.1)


async def test_a_server_that_reports_changes_only_is_not_asked_for_everything_each_time() -> None:
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


async def test_a_poll_that_confirms_with_a_second_list_that_nodes_are_gone_adds_no_pause() -> None:
    scene = Scene(nodes=40)
    scene.model.fail(Fault.SLOW, seconds=0.3)
    async with scene.running():
        await asyncio.sleep(2)
        scene.model.calls.clear()
        for number in range(18):
            scene.model.node_lose(f"n{number}")
            await asyncio.sleep(1)
    # Two lists of 0.3 s, and a pause of four times 0.3 s: 1.8 s.
    assert 18 <= len(scene.lists()) <= 22
    assert len(scene.poller.nodes) <= 40 - 16


async def test_a_subscriber_that_has_left_gets_nothing() -> None:
    scene = Scene()
    received: list[object] = []
    leave = scene.poller.subscribe(lambda changed, removed: received.append(changed))
    leave()
    await scene.poller.poll()
    assert received == []


LOOK_GOOD = (Fault.SLOW, Fault.EMPTY, Fault.PARTIAL, Fault.STALE)
"""Faults whose answers can't be distinguished from good ones alone."""


@pytest.mark.parametrize("fault", [fault for fault in Fault if fault not in LOOK_GOOD])
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
        assert all(changed == removed == set() for changed, removed in scene.received)


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


async def test_who_saw_slurm_become_unknown_with_time_is_notified_that_it_is_known_again() -> None:
    scene = Scene()
    await scene.poller.poll()
    scene.received.clear()
    generation = scene.poller.generation
    await asyncio.sleep(STALE_AFTER + 1)
    known = [scene.poller.known]
    await scene.poller.poll()
    known.append(scene.poller.known)
    assert known == [False, True]
    assert scene.received == [(set(), set())]
    assert scene.poller.generation == generation + 1
    await scene.poller.poll()
    assert scene.received == [(set(), set())]


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


@pytest.mark.parametrize("nodes", [1, 3, 8])
async def test_a_cluster_that_is_suddenly_empty_is_suspect_and_not_gone(nodes: int) -> None:
    async with Scene(nodes).running() as scene:
        scene.model.restart(lost_state=True)
        await until(lambda: not scene.poller.known, 35)
        assert len(scene.poller.suspect) == len(scene.poller.nodes) == nodes
        assert "lost its state" in scene.poller.trouble
        await asyncio.sleep(CONFIRM_AFTER - 10)
        assert all(not removed for _, removed in scene.received)


async def test_nodes_that_stay_away_are_gone_after_a_minute() -> None:
    async with Scene(8).running() as scene:
        scene.model.restart(lost_state=True)
        await until(lambda: not scene.poller.known, 35)
        lost_at = loop_time()
        await until(lambda: scene.poller.known, 120)
        assert loop_time() - lost_at >= CONFIRM_AFTER - 1
        assert scene.received[-1] == (set(), {f"n{number}" for number in range(8)})
        assert scene.poller.nodes == {}


async def test_nodes_that_come_back_were_never_gone() -> None:
    async with Scene(8).running() as scene:
        scene.model.fail(Fault.EMPTY, path="nodes/")
        await until(lambda: not scene.poller.known, 35)
        scene.model.heal()
        await until(lambda: scene.poller.known, 35)
        assert all(not removed for _, removed in scene.received)
        assert len(scene.poller.nodes) == 8


async def test_most_nodes_vanishing_at_once_is_suspect_and_half_of_them_is_not() -> None:
    async with Scene(8).running() as scene:
        scene.model.node_lose(*(f"n{number}" for number in range(4)))
        await until(lambda: bool(scene.received), 31)
        assert scene.received == [(set(), {"n0", "n1", "n2", "n3"})]
        scene.model.node_lose("n4", "n5", "n6")
        await until(lambda: not scene.poller.known, 31)
        assert scene.poller.suspect == {"n4", "n5", "n6"}


async def test_a_few_that_vanish_while_others_are_suspect_are_reported() -> None:
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
        await until(lambda: bool(scene.received), 31)
        assert scene.received == [(set(), set(names))]
        assert scene.poller.known


async def test_a_deleted_node_is_gone_at_once_and_confirmed_by_a_full_list() -> None:
    async with Scene(8).running() as scene:
        await asyncio.sleep(5)
        scene.model.calls.clear()
        await scene.poller.delete("n3")
        assert scene.received == [(set(), {"n3"})]
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
        assert scene.received == [(set(), {"n1"})]


async def test_a_busy_node_is_not_deleted() -> None:
    async with Scene().running() as scene:
        scene.model.job_start("n1")
        assert isinstance(await failure(scene.poller.delete("n1")), Rejected)
        assert "n1" in scene.poller.nodes


async def test_an_answer_from_before_a_deletion_does_not_bring_the_node_back() -> None:
    scene = Scene(8)
    await scene.poller.poll()
    scene.received.clear()
    scene.model.fail(Fault.SLOW, 1, method="GET", seconds=2)
    scene.model.job_start("n0")
    poll = asyncio.create_task(scene.poller.poll())
    await asyncio.sleep(1)
    await scene.poller.delete("n3")
    await poll
    assert "n3" not in scene.poller.nodes
    assert scene.received == [(set(), {"n3"}), ({"n0"}, set())]


async def test_a_node_that_registers_again_after_its_deletion_is_new() -> None:
    async with Scene(8).running() as scene:
        await scene.poller.delete("n3")
        scene.model.node_register("n3")
        await until(lambda: "n3" in scene.poller.nodes, 1.5)
        assert ({"n3"}, set()) in scene.received


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
                    scene.model.fail(
                        rng.choice(faults), rng.randrange(1, 5), seconds=rng.random() * 20
                    )
                case 4 | 5:
                    with contextlib.suppress(SlurmError):
                        await (
                            scene.poller.drain([name], "r")
                            if step == 4
                            else scene.poller.delete(name)
                        )
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


async def test_records_that_were_created_are_known_at_once_with_their_extra() -> None:
    async with Scene(1).running() as scene:
        await scene.poller.create(
            "State=CLOUD CPUs=2 RealMemory=1000", ["p0", "p1"], '{"podUid":""}'
        )
        found = [scene.poller.nodes[name] for name in ("p0", "p1")]
        assert [(node.cpus, node.extra, "POWERED_DOWN" in node.states) for node in found] == [
            (2, '{"podUid":""}', True)
        ] * 2
        with pytest.raises(SlurmError):
            await scene.poller.create("State=CLOUD", ["p0"], "")


async def test_records_are_replaced_one_by_one_where_slurm_creates_no_two_at_once() -> None:
    gpus = "State=CLOUD CPUs=2 RealMemory=1000 Gres=gpu:{0} GresConf=name=gpu,count={0}"
    async with Scene(1).running() as scene:
        await scene.poller.create(gpus.format(1), ["p0", "p1"], "first")
        begun = len(scene.model.calls)
        scene.model.fail(Fault.SLOW, 3, method="POST", seconds=0.01)
        await scene.poller.create(gpus.format(2), ["p0", "p1"], "second", replacing=True)
        sent = [call for call in scene.model.calls[begun:] if call.method != "GET"]
        assert [f"{call.method} {call.path}" for call in sent] == [
            *("DELETE node/p0", "POST new/node/", "DELETE node/p1", "POST new/node/"),
            "POST nodes/",
        ]
        found = [scene.poller.nodes[name] for name in ("p0", "p1")]
        assert [(node.gres, node.extra) for node in found] == [("gpu:2", "second")] * 2


async def test_records_that_exist_before_another_was_refused_are_known_with_their_extra() -> None:
    conf = "State=CLOUD Gres=gpu:1 GresConf=name=gpu,count=1"
    async with Scene(1).running() as scene:
        await scene.poller.create(conf, ["p1"], "former")
        with pytest.raises(SlurmError):
            await scene.poller.create(conf, ["p0", "p1", "p2"], "new")
        found = {name: node.extra for name, node in scene.poller.nodes.items() if name != "n0"}
        assert found == {"p0": "new", "p1": "former"}


async def test_a_job_that_has_ended_does_not_stop_the_others_from_starting_now() -> None:
    async with Scene(1).running() as scene:
        job = scene.model.job_submit()
        await scene.poller.start_now([job + 1, job])
        assert [call.path for call in scene.model.requests("POST", "job/")] == [
            f"job/{job + 1}",
            f"job/{job}",
        ]
