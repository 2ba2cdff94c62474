"""When sources are read, what is served while Slurm is down, slow or lying, and when it is
withdrawn.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Self

import pytest

from sidecars.autoscaling.records import Shape
from sidecars.exporter.collector import FULL_EVERY, SHARE, TIME_LIMITS, Collector
from sidecars.exporter.declared import Declared
from sidecars.exporter.external import NoData, NoNodeSet
from sidecars.exporter.metrics import Family, NameSet, Source
from sidecars.exporter.settings import Settings
from sidecars.simulate import ModelCarrier, SlurmModel
from sidecars.simulate.records import Fault, SimLicense
from sidecars.slurm.node_cache import CONFIRM_AFTER
from tests.unit.exporter.exposition import parsed
from tests.unit.slurm.scene import show_time

pytestmark = pytest.mark.looptime

EPOCH = 1_800_000_000.0
INTERVAL = 30.0


async def inline(work: Callable[[], None]) -> None:
    """Threads don't exist in virtual time."""
    work()


def loop_time() -> float:
    return asyncio.get_running_loop().time()


class Scene:
    """A simulated Slurm with three nodes, a running and a pending job, and a collector of it."""

    def __init__(self, **options: Any) -> None:
        self.model = SlurmModel(lambda: EPOCH + loop_time())
        for number in range(3):
            self.model.node_register(f"n{number}")
        self.model.job_start("n0", cpus=2, user="anna")
        self.model.job_submit(user="ben")
        self.model.licenses.append(SimLicense("matlab", 5, 2))
        settings = Settings("http://slurmrestd:6820", interval=INTERVAL, **options)
        carrier = ModelCarrier(self.model)
        self.collector = Collector(
            carrier, settings, clock=loop_time, now=lambda: EPOCH + loop_time(), offload=inline
        )

    def values(self) -> dict[str, dict[tuple[str, ...], float]]:
        return parsed(self.collector.page()[1])

    def reads(self, path: str) -> int:
        return len(self.model.requests("GET", path))

    async def __aenter__(self) -> Self:
        self.collector.start()
        await asyncio.sleep(1)
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.collector.close()


async def test_a_healthy_slurm_is_up_and_all_families_are_fresh() -> None:
    async with Scene() as scene:
        found = scene.values()
        assert found["slurm_exporter_up"] == {(): 1}
        assert set(found["slurm_exporter_stale"].values()) == {0}
        assert found["slurm_nodes"]["mixed",] == 1
        assert found["slurm_user_jobs"]["pending", "ben"] == 1
        assert found["slurm_licenses_used"] == {("matlab",): 2}
        assert found["slurm_partition_nodes"]["all", "idle"] == 2
        assert found["slurm_exporter_last_success_timestamp_seconds"]["nodes",] == pytest.approx(
            EPOCH, abs=1
        )
        assert scene.collector.healthy


async def test_nodes_are_served_although_slurmrestd_cannot_report_changes() -> None:
    async with Scene() as scene:
        scene.model.release = (25, 11, 7)
        for _ in range(10):
            scene.model.node_register("n1")
            await asyncio.sleep(INTERVAL)
            found = scene.values()
            assert found["slurm_exporter_up"] == {(): 1}
            assert found["slurm_nodes"]["mixed",] == 1
        scene.model.node_vanish("n1")
        await asyncio.sleep(INTERVAL)
        assert scene.values()["slurm_nodes"]["down",] == 1


@pytest.mark.parametrize("shown", [-5, 2**63])
async def test_nodes_and_jobs_are_served_whatever_time_slurms_answers_have(shown: int) -> None:
    scene = Scene()
    show_time(scene.model, shown)
    async with scene:
        scene.model.job_end(1)
        for _ in range(int(FULL_EVERY / INTERVAL)):
            await asyncio.sleep(INTERVAL)
            assert scene.values()["slurm_exporter_up"] == {(): 1}
        found = scene.values()
        assert (found["slurm_nodes"]["idle",], found["slurm_jobs"]["completed",]) == (3, 1)


async def test_nodes_and_jobs_are_right_within_minutes_after_slurmctlds_clock_was_set_back() -> (
    None
):
    async with Scene() as scene:
        before = scene.model.clock
        scene.model.clock = lambda: before() - 3600
        scene.model.restart()
        scene.model.job_start("n1", user="zoe")
        await asyncio.sleep(FULL_EVERY + INTERVAL)
        found = scene.values()
        assert found["slurm_nodes"]["mixed",] == 2
        assert found["slurm_user_jobs"]["running", "zoe"] == 1


async def test_however_many_scrapes_each_source_is_read_once_per_interval() -> None:
    async with Scene() as scene:
        for _ in range(1000):
            scene.collector.page()
            scene.collector.page(openmetrics=True)
            await asyncio.sleep(0.1)
        for path in ("nodes/", "jobs/", "partitions/", "diag/", "licenses/", "reservations/"):
            assert scene.reads(path) == 1 + 100 // INTERVAL


async def test_scrapes_between_two_reads_get_the_very_same_bytes() -> None:
    async with Scene() as scene:
        first = scene.collector.page()[1]
        await asyncio.sleep(INTERVAL / 2)
        assert scene.collector.page()[1] is first


async def test_nodes_and_jobs_are_asked_for_changes_only() -> None:
    async with Scene() as scene:
        await asyncio.sleep(INTERVAL)
        assert [call.query for call in scene.model.requests("GET", "jobs/")] == [
            {},
            {"update_time": str(int(EPOCH))},
        ]
        assert scene.values()["slurm_jobs"]["running",] == 1
        scene.model.job_end(1)
        await asyncio.sleep(INTERVAL)
        assert scene.values()["slurm_jobs"]["completed",] == 1


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault.NO_SLURMCTLD, "refused"),
        (Fault.ERRORS_WITH_200, "refused"),
        (Fault.SERVER_ERROR, "refused"),
        (Fault.BAD_TOKEN, "token"),
        (Fault.NO_TOKEN, "token"),
        (Fault.TRUNCATED, "malformed"),
        (Fault.CUT, "unreachable"),
        (Fault.RESET, "unreachable"),
        (Fault.HANG, "unreachable"),
    ],
)
async def test_a_fault_shows_at_once_and_stale_data_is_withdrawn(fault: Fault, kind: str) -> None:
    async with Scene() as scene:
        scene.model.fail(fault, times=None)
        await asyncio.sleep(INTERVAL + 20)
        found = scene.values()
        assert found["slurm_exporter_errors_total"][kind, "statistics"] == 1
        assert found["slurm_exporter_up"] == {(): 0}
        assert found["slurm_nodes"]["mixed",] == 1
        await asyncio.sleep(3 * INTERVAL)
        found = scene.values()
        assert not {name for name in found if not name.startswith("slurm_exporter_")}
        assert set(found["slurm_exporter_stale"].values()) == {1}
        assert set(found["slurm_exporter_series"].values()) == {0}
        assert found["slurm_exporter_last_success_timestamp_seconds"]["jobs",] == pytest.approx(
            EPOCH, abs=1
        )
        assert scene.collector.healthy
        scene.model.heal()
        await asyncio.sleep(INTERVAL + TIME_LIMITS[Source.JOBS])
        assert scene.values()["slurm_exporter_up"] == {(): 1}
        assert scene.values()["slurm_nodes"]["mixed",] == 1


async def test_slurm_that_never_answered_is_down_and_nothing_is_invented() -> None:
    scene = Scene()
    scene.model.fail(Fault.NO_SLURMCTLD, times=None)
    async with scene:
        found = scene.values()
        assert found["slurm_exporter_up"] == {(): 0}
        assert "slurm_nodes" not in found
        assert "slurm_exporter_last_success_timestamp_seconds" not in found


async def test_jobs_that_hang_delay_nothing_else() -> None:
    async with Scene() as scene:
        scene.model.fail(Fault.HANG, times=None, path="jobs/")
        await asyncio.sleep(10 * INTERVAL)
        found = scene.values()
        assert found["slurm_nodes"]["mixed",] == 1
        assert found["slurm_exporter_stale"]["nodes",] == 0
        assert found["slurm_exporter_stale"]["users",] == 1
        assert found["slurm_exporter_stale"]["partitions",] == 1
        assert "slurm_user_jobs" not in found
        assert found["slurm_partition_nodes"]["all", "idle"] == 2


async def test_a_slow_slurmctld_is_asked_less_often_and_its_data_stays_valid_longer() -> None:
    scene = Scene()
    scene.model.fail(Fault.SLOW, times=None, path="jobs/", seconds=14.0)
    async with scene:
        await asyncio.sleep(14)
        assert scene.values()["slurm_exporter_interval_seconds"]["jobs",] == pytest.approx(
            14 * (1 + SHARE), abs=0.1
        )
        await asyncio.sleep(600)
        assert scene.reads("jobs/") == 1 + 614 // 70
        assert scene.values()["slurm_exporter_stale"]["jobs",] == 0
        assert scene.values()["slurm_exporter_collection_duration_seconds"][
            "jobs",
        ] == pytest.approx(14, abs=0.1)


async def test_only_what_the_families_need_is_read() -> None:
    async with Scene(families=frozenset({Family.SCHEDULER})) as scene:
        assert scene.collector.sources == (Source.STATISTICS,)
        assert {call.path for call in scene.model.calls} == {"diag/"}
        assert set(scene.values()["slurm_exporter_stale"]) == {("scheduler",)}


async def test_name_sets_of_other_exporters_are_served_beside_the_own_one() -> None:
    async with Scene(name_sets=frozenset(NameSet)) as scene:
        found = scene.values()
        assert found["slurm_jobs_running_total"] == found["slurm_queue_running"] == {(): 1}
        assert found["slurm_jobs"]["running",] == 1
        assert (
            parsed(scene.collector.page(openmetrics=True)[1], openmetrics=True).keys()
            == found.keys()
        )


async def test_single_jobs_beyond_the_bound_are_counted() -> None:
    async with Scene(families=frozenset(Family), most_jobs=1) as scene:
        found = scene.values()
        assert [labels[1] for labels in found["slurm_job_info"]] == ["1"]
        assert found["slurm_exporter_jobs_dropped"] == {(): 1}


async def test_a_defect_is_counted_and_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr("sidecars.exporter.controller.add_licenses", broken)
    async with Scene() as scene:
        found = scene.values()
        assert found["slurm_exporter_errors_total"]["internal", "licenses"] == 1
        assert found["slurm_nodes"]["mixed",] == 1
        assert scene.collector.healthy


async def test_the_wanted_replicas_are_withdrawn_with_the_data_that_they_come_from() -> None:
    nodesets = (Declared("n", max=4, shape=Shape(1, 4, 1, 8000)),)
    async with Scene(nodesets=nodesets) as scene:
        assert scene.collector.wanted("n") == (0, EPOCH)
        with pytest.raises(NoNodeSet, match="'m'; it has n"):
            scene.collector.wanted("m")
        scene.model.fail(Fault.NO_SLURMCTLD, times=None)
        await asyncio.sleep(4 * INTERVAL)
        with pytest.raises(NoData, match="too old"):
            scene.collector.wanted("n")
        assert "slurm_nodeset_wanted_replicas" not in scene.values()
        scene.model.heal()
        await asyncio.sleep(2 * INTERVAL)
        assert scene.values()["slurm_nodeset_wanted_replicas"] == {("n",): 0.0}


async def test_a_nodeset_of_unknown_shape_has_no_number() -> None:
    async with Scene(nodesets=(Declared("n", max=4),)) as scene:
        with pytest.raises(NoData, match="no node of NodeSet n has registered yet"):
            scene.collector.wanted("n")


NODESETS = (Declared("n", min=1, max=4, shape=Shape(1, 4, 1, 8000)),)


@pytest.mark.parametrize("path", ["", "nodes/", "jobs/", "partitions/"])
async def test_a_list_that_is_empty_at_once_is_not_served_and_no_fewer_replicas_are_wanted(
    path: str,
) -> None:
    async with Scene(nodesets=NODESETS) as scene:
        wanted = scene.collector.wanted("n")
        scene.model.fail(Fault.EMPTY, times=None, path=path)
        await asyncio.sleep(INTERVAL)
        found = scene.values()
        assert found["slurm_exporter_up"] == {(): 0}
        assert found["slurm_exporter_errors_total"]["suspect", "autoscaling"] == 1
        assert found["slurm_nodes"]["mixed",] == 1
        assert found["slurm_jobs"]["pending",] == 1
        assert found["slurm_partition_nodes"]["all", "idle"] == 2
        assert scene.collector.wanted("n") == wanted
        assert found["slurm_exporter_last_success_timestamp_seconds"][
            "autoscaling",
        ] == pytest.approx(EPOCH, abs=1)
        scene.model.heal()
        await asyncio.sleep(INTERVAL)
        assert scene.values()["slurm_exporter_up"] == {(): 1}


async def test_an_empty_list_of_an_exporter_that_has_seen_no_other_is_unknown_for_a_minute() -> (
    None
):
    scene = Scene(nodesets=NODESETS)
    scene.model.fail(Fault.EMPTY, times=None)
    async with scene:
        with pytest.raises(NoData, match="unknown"):
            scene.collector.wanted("n")
        assert "slurm_nodes" not in scene.values()
        await asyncio.sleep(INTERVAL)
        with pytest.raises(NoData, match="unknown"):
            scene.collector.wanted("n")
        await asyncio.sleep(CONFIRM_AFTER)
        assert scene.collector.wanted("n")[0] == 1


async def test_nodes_that_stay_away_for_a_minute_are_gone() -> None:
    async with Scene(nodesets=NODESETS) as scene:
        scene.model.node_lose("n0", "n1", "n2")
        await asyncio.sleep(INTERVAL)
        assert scene.values()["slurm_nodes"]["mixed",] == 1
        await asyncio.sleep(CONFIRM_AFTER)
        found = scene.values()
        assert found["slurm_exporter_up"] == {(): 1}
        assert set(found["slurm_nodes"].values()) == {0}


async def test_most_nodes_that_vanish_at_once_are_doubted_and_a_few_are_not() -> None:
    scene = Scene()
    for number in range(3, 9):
        scene.model.node_register(f"n{number}")
    async with scene:
        scene.model.node_lose("n3", "n4", "n5")
        await asyncio.sleep(INTERVAL)
        assert scene.values()["slurm_nodes"]["idle",] == 5
        scene.model.node_lose("n2", "n6", "n7", "n8")
        await asyncio.sleep(INTERVAL)
        found = scene.values()
        assert found["slurm_nodes"]["idle",] == 5
        assert found["slurm_exporter_errors_total"]["suspect", "nodes"] == 1


async def test_a_doubted_answer_is_compared_with_all_records_and_not_with_changes() -> None:
    async with Scene() as scene:
        scene.model.fail(Fault.EMPTY, times=1, path="nodes/")
        await asyncio.sleep(2 * INTERVAL)
        assert ["update_time" in call.query for call in scene.model.requests("GET", "nodes/")] == [
            False,
            True,
            False,
        ]


async def test_a_queue_that_has_emptied_by_itself_counts_at_once() -> None:
    async with Scene() as scene:
        scene.model.job_end(1)
        scene.model.job_end(2)
        await asyncio.sleep(INTERVAL)
        assert scene.values()["slurm_jobs"]["completed",] == 2
        assert scene.values()["slurm_exporter_up"] == {(): 1}
