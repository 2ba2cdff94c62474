"""Changes of pods that the API server refuses."""

import msgspec
import pytest

from sidecars.bridge import refused
from sidecars.bridge.core.manifests import Pod as Manifest
from sidecars.bridge.core.records import (
    Action,
    Cancel,
    GroupKey,
    Label,
    Pod,
    Release,
    Report,
    Requeue,
    Why,
)
from sidecars.bridge.refused import FIRST_SECONDS, Refused, is_refusal
from sidecars.contract import bridge
from sidecars.kube import PODS, Unreachable
from sidecars.kube.errors import api_error
from tests.support.bridge import live, pod
from tests.support.kube_double import MOST_ANNOTATIONS
from tests.unit.bridge.world import World

POD = Pod("u", "team", "p", GroupKey("team", "u"))
LABEL, RELEASE, REPORT = (
    Label(POD, 1),
    Release(POD, 1, "k1", 0),
    Report(POD, Why.WAITING, "Slurm job 1 waits"),
)
CANCEL = Cancel(1, "none of its pods exists")
WORDS = Report(POD, Why.REFUSED, "Kubernetes refuses to change this pod: too long")


def manifest(version: str) -> Manifest:
    metadata = {"namespace": "team", "name": "p", "uid": "u", "resourceVersion": version}
    return msgspec.convert({"metadata": metadata}, Manifest)


class Bench:
    def __init__(self) -> None:
        self.time = 100.0
        self.cached: Manifest | None = manifest("5")
        self.refused = Refused(lambda _: self.cached, lambda: self.time)

    def note(self, *changes: Label | Release | Report | Requeue) -> None:
        for it in changes:
            self.refused.note(it, self.refused.version(it), "too long")

    def replaced(self, *actions: Action) -> tuple[Action, ...]:
        return self.refused.replaced(actions)


@pytest.mark.parametrize("change", [LABEL, RELEASE])
def test_a_change_that_was_refused_is_shown_instead_of_sent_again(change: Label | Release) -> None:
    bench = Bench()
    assert bench.replaced(change, CANCEL) == (change, CANCEL)
    bench.note(change)
    assert bench.replaced(change, CANCEL) == (WORDS, CANCEL)


def test_what_is_shown_already_or_cannot_be_shown_is_not_sent() -> None:
    bench = Bench()
    bench.note(LABEL)
    shown = Pod("u", "team", "p", POD.key, reported=("Refused", WORDS.message))
    assert bench.replaced(Label(shown, 1)) == ()
    bench.note(REPORT)
    assert bench.replaced(LABEL, REPORT) == ()


@pytest.mark.parametrize("now", [manifest("6"), None], ids=["changed", "another"])
def test_a_pod_that_has_changed_is_tried_again(now: Manifest | None) -> None:
    bench = Bench()
    bench.note(LABEL)
    bench.cached = now
    assert bench.replaced(LABEL) == (LABEL,)
    bench.cached = manifest("5")
    assert bench.replaced(LABEL) == (LABEL,), "it is forgotten"


def test_a_refused_release_is_known_until_the_pod_is_gone_however_it_changes() -> None:
    bench = Bench()
    bench.note(LABEL)
    assert bench.refused.releases() == {}
    bench.note(RELEASE)
    bench.cached = manifest("6")
    assert bench.replaced(RELEASE) == (RELEASE,)
    assert bench.refused.releases() == {"u": "too long"}
    bench.cached = None
    assert bench.refused.releases() == {}


def test_a_pod_is_tried_again_after_a_while() -> None:
    bench = Bench()
    bench.note(LABEL)
    bench.time += FIRST_SECONDS - 1
    assert bench.replaced(LABEL) == (WORDS,)
    bench.time += 1
    assert bench.replaced(LABEL) == (LABEL,)


async def test_a_pod_without_room_for_another_annotation_shows_why_it_waits_and_costs_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refused, "FIRST_SECONDS", 3600.0)
    full = pod("team", "p")
    full["metadata"]["annotations"] = {"a": "x" * (MOST_ANNOTATIONS - 2)}
    async with world.bridge() as passes:
        await world.until("the node's record", lambda: "k1" in world.slurm.nodes)
        world.kube.put(PODS, full)
        await world.until("the reason", lambda: world.condition().get("reason") == "Refused")
        assert "metadata.annotations: Too long" in world.condition()["message"]
        assert [job.blocked for job in live(world.slurm)] == [True]
        await world.until("the change to be tried with the condition", lambda: not passes[0]._busy)
        before, asked = len(world.kube.calls), len(world.slurm.calls)
        await world.until("several passes", lambda: len(world.slurm.calls) > asked + 9)
        patches = [
            it.path
            for it in world.kube.calls[before:]
            if it.method == "PATCH" and it.path.endswith("/p")
        ]
        assert patches == []
    assert bridge.JOB_LABEL not in world.pod()["metadata"]["labels"]


def test_a_change_that_is_refused_again_is_sent_later_each_time() -> None:
    bench = Bench()
    pauses = []
    for _ in range(9):
        bench.note(LABEL)
        since = bench.time
        while bench.replaced(LABEL) != (LABEL,):
            bench.time += 1
        pauses.append(bench.time - since)
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300, 300]
    bench.cached = None
    assert bench.replaced() == ()
    bench.cached = manifest("5")
    bench.note(LABEL)
    bench.time += FIRST_SECONDS
    assert bench.replaced(LABEL) == (LABEL,)


def test_the_job_of_a_pod_that_can_not_lose_it_is_known_until_the_pod_is_gone() -> None:
    bench = Bench()
    bench.note(Requeue(POD, 7, "because"))
    assert (bench.refused.requeues(), bench.refused.releases()) == ({"u": 7}, {})
    bench.cached = None
    assert bench.refused.requeues() == {}


@pytest.mark.parametrize(
    ("status", "message", "refused"),
    [
        (403, "no", True),
        (422, "no", True),
        (400, "no", True),
        (500, 'failed calling webhook "x": connection refused', True),
        (500, "etcdserver: request timed out", False),
        (503, "the API server is starting", False),
        (404, 'pods "p" not found', False),
        (409, "the object has been modified", False),
        (429, "too many requests", False),
    ],
)
def test_only_what_the_api_server_or_a_webhook_does_not_take_is_a_refusal(
    status: int, message: str, refused: bool
) -> None:
    assert is_refusal(api_error(status, message=message)) == refused
    assert not is_refusal(Unreachable("the API server's webhook"))


@pytest.mark.parametrize(
    "words", ["", "no\n::error::\x1b]0;title\x07", "x" * 1_000_000, "\u202etxt.exe \ufeff"]
)
async def test_what_a_webhook_answers_is_shown_bounded_and_printable(
    world: World, words: str
) -> None:
    async with world.bridge():
        await world.until("the node's record", lambda: "k1" in world.slurm.nodes)
        world.kube.webhook = lambda body: (
            f"hostile {words}" if bridge.JOB_LABEL.rpartition("/")[2] in str(body) else ""
        )
        world.kube.put(PODS, pod("team", "p"))
        await world.until("the reason", lambda: world.condition().get("reason") == "Refused")
        message = world.condition()["message"]
    assert "hostile" in message
    assert message.isprintable()
    assert len(message) < 2000
