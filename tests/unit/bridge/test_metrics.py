"""The bridge's metrics, against doubles of Kubernetes and of Slurm."""

import aiohttp
import pytest
from prometheus_client import REGISTRY, CollectorRegistry

from sidecars.bridge import metrics
from sidecars.contract import bridge
from sidecars.kube import NODES, PODS
from sidecars.simulate.records import Fault
from tests.support.bridge import node, pod
from tests.unit.bridge.world import World, served


def value(name: str, **labels: str) -> float | None:
    return REGISTRY.get_sample_value(f"slurm_bridge_{name}", labels)


def count(name: str, **labels: str) -> float:
    return value(name, **labels) or 0.0


def test_before_the_bridge_leads_it_reports_no_pods_jobs_and_nodes() -> None:
    registry = CollectorRegistry()
    registry.register(metrics.Reported())
    assert list(registry.collect()) == []


def test_every_metric_is_listed() -> None:
    metrics.REPORTED.source = Empty()
    found = {
        family.name for family in REGISTRY.collect() if family.name.startswith("slurm_bridge_")
    }
    assert found == {metric.value.removesuffix("_total") for metric in metrics.Metric}


class Empty:
    """A bridge that leads and has seen nothing."""

    def waiting(self) -> dict[tuple[str, str], int]:
        return {}

    def phases(self) -> dict[str, int]:
        return {}

    def node_states(self) -> dict[str, int]:
        return {}

    def answer_age(self) -> float | None:
        return None


def test_an_age_is_absent_before_the_first_answer() -> None:
    metrics.REPORTED.source = Empty()
    assert value("answer_age_seconds") is None


async def test_a_pod_is_counted_from_its_creation_to_the_end_of_its_job(world: World) -> None:
    waits, binds = count("wait_seconds_count"), count("bind_seconds_count")
    ended, passes = count("pods_ended_total", state="TIMEOUT"), count("pass_seconds_count")
    async with world.bridge():
        await world.until("the record in service", lambda: value("nodes", state="in_service") == 1)
        created = pod("team", "p")
        created["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
        world.kube.put(PODS, created)
        job = await world.job()
        await world.until(
            "the reason", lambda: value("pods_waiting", reason="Waiting", cause="Resources") == 1
        )
        assert value("jobs", phase="pending") == 1
        world.slurm.job_run(job.job_id, {"k1": 1})
        await world.until("the release", lambda: count("wait_seconds_count") == waits + 1)
        assert value("jobs", phase="running") == 1
        assert count("wait_seconds_sum") > 86_400
        assert count("bind_seconds_count") == binds
        world.bind()
        await world.until("the binding", lambda: count("bind_seconds_count") == binds + 1)
        assert value("pods_waiting", reason="Waiting", cause="Resources") in (0, None)
        world.slurm.job_end(job.job_id, state="TIMEOUT")
        await world.until(
            "the end", lambda: count("pods_ended_total", state="TIMEOUT") == ended + 1
        )
    assert count("pass_seconds_count") > passes


async def test_pods_that_can_have_no_job_are_counted_by_the_reason_and_submissions_by_their_error(
    world: World,
) -> None:
    errors = count("submit_errors_total", cause="ServerFault")
    world.slurm.users = frozenset({"slurm"})
    world.kube.put(PODS, pod("nobody", "p"))
    world.kube.put(PODS, pod("team", "p"))
    async with world.bridge():
        await world.until(
            "the conditions", lambda: value("pods_waiting", reason="Refused", cause="") == 2
        )
    assert count("submit_errors_total", cause="ServerFault") > errors


async def test_nodes_are_counted_by_the_state_of_their_record(world: World) -> None:
    world.kube.put(NODES, {**node("k2"), "spec": {"unschedulable": True}})
    unusable = node("k3")
    unusable["status"]["addresses"] = []
    world.kube.put(NODES, unusable)

    def states() -> list[float | None]:
        return [
            value("nodes", state=state) for state in ("in_service", "drained", "missing", "refused")
        ]

    async with world.bridge():
        await world.until("the records", lambda: states() == [1, 1, 0, 1])


async def test_the_age_of_the_last_answer_grows_while_slurm_is_silent(world: World) -> None:
    async with world.bridge():
        await world.until("an answer", lambda: value("answer_age_seconds") is not None)
        world.slurm.fail(Fault.SERVER_ERROR)
        await world.until("an old answer", lambda: count("answer_age_seconds") > 1.0)
        world.slurm.heal()
        await world.until("a new answer", lambda: count("answer_age_seconds") < 0.5)


async def test_a_pod_that_is_not_bound_is_counted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    from sidecars.bridge.core import decide

    monkeypatch.setattr(decide, "UNTRIED_SECONDS", 0.3)
    before = count("not_bound_total")
    world.kube.put(PODS, pod("team", "p"))
    async with world.bridge():
        job = await world.job()
        world.slurm.job_run(job.job_id, {"k1": 1})
        await world.until("the cancellation", lambda: count("not_bound_total") == before + 1)
        assert world.pod()["metadata"]["annotations"][bridge.NODE_ANNOTATION] == "k1"


async def test_the_port_of_health_serves_them(port: int) -> None:
    url = f"http://127.0.0.1:{port}/metrics"
    async with (
        served(port),
        aiohttp.ClientSession() as session,
        session.get(url) as answer,
    ):
        text = await answer.text()
    assert answer.headers["Content-Type"].startswith("text/plain")
    assert (
        "# HELP slurm_bridge_wait_seconds Time from the creation of a pod to its release." in text
    )
