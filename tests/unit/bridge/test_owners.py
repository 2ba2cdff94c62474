"""Reading the objects that have the sizes of groups."""

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from sidecars.bridge import owners
from sidecars.bridge.core.groups import Source, SourceKind
from sidecars.bridge.owners import AGAIN_SECONDS, FAILED_SECONDS, NEWER, RESOURCES, Owners
from sidecars.kube import Forbidden, Manifest, NotFound, Resource, Unreachable

JOB_SET = Source(SourceKind.JOB_SET, "team", "js")
FOUND = {"spec": {"replicatedJobs": [{"name": "w", "replicas": 3, "template": {"spec": {}}}]}}


@dataclass
class Kube:
    """Answers `answer`, or raises it, when `open` is set."""

    answer: Manifest | Exception
    asked: list[tuple[Resource, str | None, str]] = field(default_factory=list)
    open: asyncio.Event = field(default_factory=asyncio.Event)

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Manifest:
        self.asked.append((resource, namespace, name))
        await self.open.wait()
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class Bench:
    def __init__(self, answer: Manifest | Exception) -> None:
        self.time = 0.0
        self.woken = 0
        self.kube = Kube(answer)
        self.owners = Owners(self.kube, lambda: self.time, self.wake)
        self.kube.open.set()

    def wake(self) -> None:
        self.woken += 1

    async def read(self, *sources: Source, once: Iterable[Source] = ()) -> None:
        """Until all that was begun is over."""
        self.owners.read(sources, once)
        await asyncio.gather(*self.owners._tasks.values())


async def test_an_object_is_read_once_and_again_after_a_minute() -> None:
    bench = Bench(FOUND)
    for _ in range(3):
        await bench.read(JOB_SET)
    assert bench.kube.asked == [(RESOURCES[SourceKind.JOB_SET], "team", "js")]
    assert bench.owners.facts[JOB_SET].sizes == {"": 3}
    assert not bench.owners.waiting
    bench.time += AGAIN_SECONDS
    await bench.read(JOB_SET)
    assert len(bench.kube.asked) == 2
    assert bench.woken == 1, "the same size is no news"


@pytest.mark.parametrize(
    ("error", "words", "refused"),
    [
        (NotFound(404), "doesn't exist", False),
        (Forbidden(403), "may not read", True),
        (Unreachable("cut"), "can't be read: cut", False),
        (ValueError("'a/b' can't name a JobSet"), "can't name", True),
    ],
)
async def test_a_failure_is_reported_and_tried_again(
    error: Exception, words: str, refused: bool
) -> None:
    bench = Bench(error)
    await bench.read(JOB_SET)
    found = bench.owners.facts[JOB_SET]
    assert words in found.problem
    assert (found.sizes, found.refused) == (None, refused)
    assert bench.owners.waiting
    await bench.read(JOB_SET)
    assert len(bench.kube.asked) == 1
    bench.time += FAILED_SECONDS
    bench.kube.answer = FOUND
    await bench.read(JOB_SET)
    assert bench.owners.facts[JOB_SET].sizes == {"": 3}
    assert bench.woken == 2


async def test_the_first_read_of_an_object_delays_nothing_as_its_answer_wakes_a_pass() -> None:
    bench = Bench(FOUND)
    bench.kube.open.clear()
    bench.owners.read([JOB_SET])
    assert not bench.owners.waiting
    bench.kube.open.set()
    await bench.read(JOB_SET)
    assert (bench.woken, bench.owners.waiting) == (1, False)


async def test_an_object_that_failed_is_to_be_read_soon_also_while_it_is_read_again() -> None:
    bench = Bench(Unreachable("cut"))
    await bench.read(JOB_SET)
    bench.time += FAILED_SECONDS
    bench.kube.open.clear()
    bench.owners.read([JOB_SET])
    assert bench.owners.waiting
    await bench.owners.close()


async def test_an_answer_that_does_not_come_delays_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(owners, "_SECONDS", 0.01)
    bench = Bench(FOUND)
    bench.kube.open.clear()
    bench.owners.read([JOB_SET])
    assert JOB_SET not in bench.owners.facts
    await bench.read(JOB_SET)
    assert "no answer within" in bench.owners.facts[JOB_SET].problem


async def test_only_some_objects_are_read_at_the_same_time() -> None:
    bench = Bench(FOUND)
    many = [
        Source(SourceKind.JOB_SET, "team", f"js{index}") for index in range(owners._AT_ONCE + 3)
    ]
    await bench.read(*many)
    assert len(bench.kube.asked) == owners._AT_ONCE
    await bench.read(*many)
    assert len(bench.kube.asked) == len(many)


async def test_what_no_pod_names_is_forgotten() -> None:
    bench = Bench(FOUND)
    await bench.read(JOB_SET)
    bench.owners.forget(frozenset({JOB_SET}))
    assert JOB_SET in bench.owners.facts
    bench.owners.forget(frozenset())
    assert not bench.owners.facts
    await bench.read(JOB_SET)
    assert len(bench.kube.asked) == 2


async def test_reading_ends_with_the_bridge() -> None:
    bench = Bench(FOUND)
    bench.kube.open.clear()
    bench.owners.read([JOB_SET])
    await bench.owners.close()
    assert not bench.owners.facts


async def test_the_object_of_pods_that_have_a_job_is_read_until_its_sizes_are_known() -> None:
    bench = Bench(Unreachable("cut"))
    await bench.read(once=[JOB_SET])
    assert bench.owners.waiting
    bench.kube.answer = FOUND
    for _ in range(3):
        bench.time += AGAIN_SECONDS
        await bench.read(once=[JOB_SET])
    assert len(bench.kube.asked) == 2
    assert not bench.owners.waiting


async def test_an_object_that_can_not_be_read_counts_only_while_a_pod_waits_for_it() -> None:
    """Otherwise everything would be looked at each second for as long as its pods run."""
    bench = Bench(NotFound(404))
    found = []
    for named in ([JOB_SET], []):
        await bench.read(once=named)
        found.append(bench.owners.waiting)
    assert found == [True, False]


async def test_an_object_that_can_not_be_read_is_tried_less_often_the_longer_that_lasts() -> None:
    bench = Bench(NotFound(404))
    times: list[float] = []
    for second in range(200):
        bench.time = float(second)
        before = len(bench.kube.asked)
        await bench.read(JOB_SET)
        times += [second] * (len(bench.kube.asked) - before)
    assert times == [0, 5, 10, 20, 40, 80, 140]


async def test_what_a_pod_names_first_is_read_however_many_objects_do_not_exist() -> None:
    """Anyone who may create pods can have them name such objects."""
    bench = Bench(NotFound(404))
    absent = [
        Source(SourceKind.JOB_SET, "team", f"js{index}") for index in range(10 * owners._AT_ONCE)
    ]
    for _ in range(20):
        bench.time += FAILED_SECONDS
        await bench.read(*absent)
    await bench.read(*absent, JOB_SET)
    assert ("team", "js") in [it[1:] for it in bench.kube.asked]


async def test_an_object_is_read_again_in_time_however_many_of_another_namespace_do_not_exist() -> (
    None
):
    bench = Bench(NotFound(404))
    absent = [
        Source(SourceKind.JOB_SET, "attacker", f"js{index}")
        for index in range(300 * owners._AT_ONCE)
    ]
    times: list[float] = []
    for second in range(30):
        bench.time = float(second)
        before = len(bench.kube.asked)
        await bench.read(*absent, JOB_SET)
        times += [second for it in bench.kube.asked[before:] if it[1] == "team"]
    assert times == [0, 5, 10, 20]


async def test_what_is_too_much_at_once_is_read_soon() -> None:
    bench = Bench(FOUND)
    many = [
        Source(SourceKind.JOB_SET, "team", f"js{index}") for index in range(owners._AT_ONCE + 3)
    ]
    found = []
    for _ in range(2):
        await bench.read(*many)
        found.append(bench.owners.waiting)
    assert found == [True, False]
    assert {it[2] for it in bench.kube.asked} == {it.name for it in many}


class Versions(Kube):
    """Has objects of one version alone."""

    def __init__(self, version: str, found: Manifest) -> None:
        super().__init__(found)
        self.version = version

    async def get(self, resource: Resource, namespace: str | None, name: str) -> Manifest:
        manifest = await super().get(resource, namespace, name)
        if resource.version != self.version:
            raise NotFound(404)
        return manifest


@pytest.mark.parametrize("version", ["v1alpha2", "v1beta1"])
async def test_a_pod_group_is_read_by_the_version_that_kubernetes_has(version: str) -> None:
    bench = Bench({})
    bench.kube = Versions(version, {"spec": {"schedulingPolicy": {"gang": {"minCount": 3}}}})
    bench.kube.open.set()
    bench.owners = Owners(bench.kube, lambda: bench.time, bench.wake)
    source = Source(SourceKind.POD_GROUP, "team", "pg")
    await bench.read(source)
    assert bench.owners.facts[source].sizes == {"": 3}


async def test_a_pod_group_that_no_version_has_does_not_exist() -> None:
    bench = Bench(NotFound(404))
    source = Source(SourceKind.POD_GROUP, "team", "pg")
    await bench.read(source)
    assert "PodGroup pg (podgroups.scheduling.k8s.io) doesn't exist" in (
        bench.owners.facts[source].problem
    )
    assert [it[0] for it in bench.kube.asked] == [NEWER[source.kind], RESOURCES[source.kind]]
