"""Which changes are sent together."""

import asyncio
import dataclasses
from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest
from prometheus_client import REGISTRY

from sidecars.bridge.core.devices import Claim
from sidecars.bridge.core.manifests import Pod as Manifest
from sidecars.bridge.core.records import (
    Action,
    Cancel,
    Deallocate,
    DeletePod,
    Disruption,
    Grant,
    GroupKey,
    Label,
    Part,
    Pod,
    Release,
    Report,
    Submit,
    Why,
)
from sidecars.bridge.core.shape import Shape
from sidecars.bridge.effects import (
    EVENTS_AT_ONCE,
    EVENTS_SECONDS,
    MANY,
    MOST_AT_ONCE,
    MOST_EVENTS,
    MOST_SUBMISSIONS,
    REPORTS_SECONDS,
    Effects,
)
from sidecars.bridge.memory import Memory
from sidecars.bridge.parts import Books, Clock, Kubernetes, Places
from sidecars.kube import ApiError, Conflict, Forbidden, Invalid, Store
from sidecars.policy.reasons.bridge import BridgeEvent

POD = Pod("u", "team", "p", GroupKey("team", "u"))
REPORT = Report(POD, Why.WAITING, "Slurm job 1 waits")
CANCEL = Cancel(1, "none of its pods exists")
MANIFEST = msgspec.convert({"metadata": {"namespace": "team", "name": "p", "uid": "u"}}, Manifest)


class Recorded(Effects):
    """Sends nothing."""

    def __init__(self, clock: list[float]) -> None:
        nothing: Any = None
        super().__init__(
            Kubernetes(*[nothing] * 5),
            nothing,
            Books(nothing, nothing, nothing),
            nothing,
            nothing,
            Clock(lambda: clock[0], lambda: 0.0),
            lambda: None,
        )
        self.sent: list[Action] = []

    async def _apply(self, action: Action, places: Places) -> None:
        self.sent.append(action)


class Refused(Effects):
    """Changes no claim, for this reason."""

    error: ApiError

    async def _claim(self, action: Grant | Deallocate) -> None:
        raise self.error


@pytest.mark.parametrize(
    ("message", "warnings"),
    [
        ('ResourceClaim "p" is invalid: status.allocation: Forbidden: no right', 1),
        ("the server rejected our request due to an error in our request", 0),
    ],
    ids=["it breaks a rule", "the claim has changed"],
)
async def test_why_a_claim_gets_no_devices_is_logged_once(
    message: str, warnings: int, caplog: pytest.LogCaptureFixture
) -> None:
    nothing: Any = None
    books, clock = Books(nothing, nothing, nothing), Clock(lambda: 0.0, lambda: 0.0)
    kube = Kubernetes(*[nothing] * 5)
    effects = Refused(kube, nothing, books, nothing, nothing, clock, lambda: None)
    effects.error = Invalid(422, "Invalid", message)
    for _ in range(3):
        await effects.apply([Grant(POD, "k1", Claim("c", "p", ()), ())])
    shown = [it for it in caplog.records if message in it.getMessage() and it.levelno >= 30]
    assert len(shown) == warnings


async def test_conditions_that_are_due_are_written_beside_other_changes_every_few_seconds() -> None:
    clock = [100.0]
    effects = Recorded(clock)
    assert await effects.apply([REPORT, CANCEL])
    clock[0] += REPORTS_SECONDS
    await effects.apply([REPORT, CANCEL])
    await effects.apply([REPORT, CANCEL])
    assert effects.sent == [CANCEL, CANCEL, REPORT, CANCEL]
    clock[0] += REPORTS_SECONDS
    await effects.apply([REPORT, CANCEL])
    assert effects.sent[4:] == [CANCEL, REPORT]


async def test_a_pod_that_starts_beside_others_within_seconds_gets_no_condition_before() -> None:
    clock = [100.0]
    effects = Recorded(clock)
    await effects.apply([REPORT, CANCEL])
    clock[0] += REPORTS_SECONDS
    await effects.apply([CANCEL])
    await effects.apply([REPORT, CANCEL])
    assert effects.sent == [CANCEL] * 3


async def test_a_refusal_waits_for_nothing() -> None:
    """The job that lacks something is cancelled in the same pass, and the next pass has no words
    about it.
    """
    effects = Recorded([100.0])
    refusal = Report(
        dataclasses.replace(POD, uid="v"),
        Why.REFUSED,
        "job 1 requests 1 tasks, and its pods need 2",
    )
    await effects.apply([REPORT, refusal, CANCEL])
    assert effects.sent == [CANCEL, refusal]


async def test_conditions_are_written_at_once_while_nothing_else_is_to_do() -> None:
    effects = Recorded([100.0])
    await effects.apply([REPORT])
    assert effects.sent == [REPORT]


async def test_many_conditions_each_wait_for_pods_that_start_soon_and_for_no_other_one() -> None:
    clock = [100.0]
    effects = Recorded(clock)
    reports = [
        dataclasses.replace(REPORT, pod=dataclasses.replace(POD, uid=f"u{it}"))
        for it in range(MANY + 1)
    ]
    await effects.apply(reports)
    assert effects.sent == []
    clock[0] += REPORTS_SECONDS
    for _ in range(2):
        await effects.apply(reports)
        assert effects.sent == reports
        effects.sent.clear()


async def test_of_many_changes_each_has_its_turn_and_no_kind_waits_for_another() -> None:
    effects = Recorded([100.0])
    cancels = [Cancel(number, "none of its pods exists") for number in range(2 * MOST_AT_ONCE)]
    delete = DeletePod(POD, "Slurm job 1 has ended (TIMEOUT)")
    assert not await effects.apply([*cancels, delete])
    assert effects.sent == [*cancels[:MOST_AT_ONCE], delete]
    effects.sent.clear()
    assert not await effects.apply(cancels)
    assert effects.sent == cancels[MOST_AT_ONCE:]
    effects.sent.clear()
    assert await effects.apply([delete])
    assert effects.sent == [delete]


async def test_only_some_submissions_are_under_way_in_their_order() -> None:
    effects = Recorded([100.0])
    part = (Part(Shape("ada", "p"), 1),)
    submits = [
        Submit(GroupKey("team", f"u{number}"), part) for number in range(MOST_SUBMISSIONS + 1)
    ]
    assert not await effects.apply(submits)
    assert effects.sent == submits[:-1]
    effects._submissions = {cast("Any", number) for number in range(MOST_SUBMISSIONS)}
    effects.sent.clear()
    assert not await effects.apply(submits)
    assert effects.sent == []


def effects_of(
    memory: Memory,
    *,
    slurm: object = None,
    client: object = None,
    store: Store[Manifest] | None = None,
    now: Callable[[], float] = lambda: 100.0,
) -> Effects:
    """Effects with these parts. `client` also takes the Events."""
    nothing: Any = None
    taking = cast("Any", client)
    kube = Kubernetes(taking, taking, cast("Any", store), nothing, nothing)
    books, clock = Books(memory, nothing, nothing), Clock(now, lambda: 0.0)
    return Effects(kube, cast("Any", slurm), books, nothing, nothing, clock, lambda: None)


class Cancelled:
    """Notes the jobs that are cancelled."""

    def __init__(self) -> None:
        self.jobs: list[int] = []

    async def cancel(self, job_id: int) -> None:
        self.jobs.append(job_id)


async def test_a_group_whose_job_requests_too_little_gets_no_other_one_at_once() -> None:
    memory, slurm = Memory(), Cancelled()
    effects = effects_of(memory, slurm=slurm)
    await effects.apply(
        [Cancel(7, "job 7 requests 1 tasks, and its pods need 2", rest=(8,), refused=POD.key)]
    )
    assert slurm.jobs == [7, 8]
    assert memory.open_groups(101.0) == {POD.key}
    assert memory.open_groups(110.0) == frozenset()


class Kube:
    """Has one pod."""

    def __init__(self, node: str, uid: str = "u") -> None:
        self.pod = {
            "metadata": {"namespace": "team", "name": "p", "uid": uid},
            "spec": {"nodeName": node},
        }

    async def get(self, _: object, namespace: str, name: str, kind: type[Manifest]) -> Manifest:
        assert (namespace, name) == ("team", "p")
        return msgspec.convert(self.pod, kind)


@pytest.mark.parametrize(("node", "uid", "jobs"), [("", "u", [7]), ("k1", "u", []), ("", "v", [])])
async def test_a_job_is_cancelled_for_an_unbound_pod_only_if_it_is_unbound_at_this_moment(
    node: str, uid: str, jobs: list[int]
) -> None:
    """Of a connection that has broken without a word, the watch shows nothing for a minute."""
    slurm = Cancelled()
    effects = effects_of(Memory(), slurm=slurm, client=Kube(node, uid))
    await effects.apply([Cancel(7, "pod p was not bound to k1 within 15 s: taint", unbound=POD)])
    assert slurm.jobs == jobs


class Taking:
    """Takes each patch and each Event."""

    async def json_patch(self, *_: object, **__: object) -> None:
        return None

    def emit(self, *_: object) -> None:
        return None


async def test_a_label_is_remembered_before_it_is_sent() -> None:
    memory, store = Memory(), Store[Manifest]()
    store.put(MANIFEST)
    effects = effects_of(memory, client=Taking(), store=store)
    await effects.apply([Label(POD, 7)])
    assert memory.labelling(101.0) == {"u": 7}


class Submitted(Cancelled):
    """Accepts each submission."""

    async def submit(self, *_: object) -> int:
        return 7


async def test_a_group_whose_jobs_always_request_too_little_gets_the_next_one_later_each_time() -> (
    None
):
    """Such as by a plugin of slurmctld."""
    memory, clock = Memory(), [100.0]
    effects = effects_of(memory, slurm=Submitted(), store=Store(), now=lambda: clock[0])
    submit, pauses = Submit(POD.key, (Part(Shape("ada", "p"), 1),)), []
    for job in (7, 8, 9):
        await effects.apply([submit])
        await asyncio.gather(*effects._submissions)
        # Slurm shows for a moment that the job is blocked.
        for _ in range(2):
            await effects.apply(
                [Cancel(job, "job requests 1 tasks, and its pods need 2", refused=POD.key)]
            )
        pauses.append(memory.refusals[POD.key].again_at - clock[0])
        clock[0] += 1000
    assert pauses == [5, 10, 20]
    await effects.apply([Label(POD, 10)])
    assert POD.key in memory.refusals
    await effects.apply([Release(POD, 10, "k1")])
    assert memory.refusals == {}


class Ending(Taking):
    """Has a newer pod than the cache, and answers patches of its status in turn."""

    def __init__(self, *answers: ApiError | None, uid: str = "u") -> None:
        self.answers = list(answers)
        self.uid = uid
        self.sent: list[str] = []

    async def get(self, _: object, namespace: str, name: str, kind: type[Manifest]) -> Manifest:
        newest = {"namespace": namespace, "name": name, "uid": self.uid, "resourceVersion": "2"}
        return msgspec.convert({"metadata": newest}, kind)

    async def json_patch(self, *what: object, **how: object) -> None:
        patch: Any = what[3]
        assert how == {"subresource": "status"}
        [version] = [it["value"] for it in patch if it["path"] == "/metadata/resourceVersion"]
        self.sent.append(f"{patch[-1]['value']['reason']} on {version or 'the cached one'}")
        answer = self.answers.pop(0)
        if answer is not None:
            raise answer

    async def delete(self, _: object, namespace: str, name: str, *, uid: str) -> None:
        self.sent.append(f"delete {uid}")


CHANGED = Conflict(409, "Conflict", "the object has been modified")
REFUSED = Forbidden(403, "Forbidden", "no right")


@pytest.mark.parametrize(
    ("kube", "sent"),
    [
        (Ending(None), ["SlurmNodeFail on the cached one", "delete u"]),
        (
            Ending(CHANGED, None),
            ["SlurmNodeFail on the cached one", "SlurmNodeFail on 2", "delete u"],
        ),
        (
            Ending(Invalid(422, "Invalid", "the test failed"), REFUSED),
            ["SlurmNodeFail on the cached one", "SlurmNodeFail on 2", "delete u"],
        ),
        (Ending(REFUSED), ["SlurmNodeFail on the cached one", "delete u"]),
        (Ending(CHANGED, uid="v"), ["SlurmNodeFail on the cached one", "delete u"]),
        (
            Ending(ApiError(500, "InternalError", "etcdserver: no leader")),
            ["SlurmNodeFail on the cached one"],
        ),
    ],
)
async def test_a_disrupted_pod_shows_it_before_its_deletion_unless_kubernetes_refuses_that(
    kube: Ending, sent: list[str]
) -> None:
    store = Store[Manifest]()
    store.put(MANIFEST)
    effects = effects_of(Memory(), client=kube, store=store)
    await effects.apply([DeletePod(POD, "it has ended", "NODE_FAIL", Disruption.NODE_FAIL)])
    assert kube.sent == sent


async def test_a_pod_whose_own_job_ends_is_deleted_without_a_condition() -> None:
    store, kube = Store[Manifest](), Ending()
    store.put(MANIFEST)
    await effects_of(Memory(), client=kube, store=store).apply(
        [DeletePod(POD, "it has ended", "TIMEOUT")]
    )
    assert kube.sent == ["delete u"]


class Announced(Effects):
    """Sends nothing, and has a Normal Event for each cancellation, but a Warning for that of job
    0.
    """

    def __init__(self, clock: list[float]) -> None:
        self.notes: list[str] = []
        self.written = asyncio.Event()
        nothing: Any = None
        super().__init__(
            Kubernetes(nothing, cast("Any", self), nothing, nothing, nothing),
            nothing,
            Books(nothing, nothing, nothing),
            nothing,
            nothing,
            Clock(lambda: clock[0], lambda: 0.0),
            lambda: None,
        )

    def emit(self, about: object, kind: str, reason: str, action: str, note: str) -> None:
        self.notes.append(note)

    async def flush(self) -> None:
        await self.written.wait()

    async def _apply(self, action: Action, places: Places) -> None:
        assert isinstance(action, Cancel)
        if action.job:
            self._event(MANIFEST, "Normal", BridgeEvent.RELEASED, str(action.job))
        else:
            self._event(MANIFEST, "Warning", BridgeEvent.NOT_BOUND, "0")

    async def announced(self) -> list[str]:
        """The Events that are written, when no more follow."""
        self.written.set()
        if self._writing is not None:
            await self._writing
        return self.notes


def cancels(*numbers: int) -> list[Action]:
    return [Cancel(number, "") for number in numbers]


def texts(first: int, last: int) -> list[str]:
    return [str(number) for number in range(first, last + 1)]


async def test_events_of_few_changes_are_written_with_them() -> None:
    effects = Announced([100.0])
    await effects.apply(cancels(*range(1, MANY + 1)))
    assert effects.notes == texts(1, MANY)


async def test_events_wait_in_their_order_while_there_are_many_changes_but_for_warnings() -> None:
    effects = Announced([100.0])
    await effects.apply(cancels(*range(MANY + 1)))
    assert await effects.announced() == ["0"]
    await effects.apply(cancels(MANY + 1))
    assert await effects.announced() == texts(0, MANY + 1)


async def test_no_event_waits_for_long() -> None:
    clock = [100.0]
    effects = Announced(clock)
    await effects.apply(cancels(*range(1, EVENTS_AT_ONCE + 1), 0))
    clock[0] += EVENTS_SECONDS
    await effects.apply(cancels(*range(EVENTS_AT_ONCE + 1, EVENTS_AT_ONCE + MANY + 2)))
    assert await effects.announced() == ["0", *texts(1, EVENTS_AT_ONCE)]


async def test_of_the_events_that_waited_only_some_are_under_way() -> None:
    effects = Announced([100.0])
    await effects.apply(cancels(*range(1, MOST_AT_ONCE + 1)))
    await effects.apply([])
    await effects.apply([])
    await asyncio.sleep(0)
    assert effects.notes == texts(1, EVENTS_AT_ONCE)
    assert await effects.announced() == texts(1, MOST_AT_ONCE)


async def test_events_that_waited_stop_when_there_are_many_changes_again() -> None:
    effects = Announced([100.0])
    await effects.apply(cancels(*range(1, MOST_AT_ONCE + 1)))
    await effects.apply([])
    await asyncio.sleep(0)
    await effects.apply(cancels(*range(MOST_AT_ONCE + 1, MOST_AT_ONCE + MANY + 2)))
    assert await effects.announced() == texts(1, EVENTS_AT_ONCE)
    await effects.apply([])
    assert await effects.announced() == texts(1, MOST_AT_ONCE + MANY + 1)


async def test_of_too_many_events_the_oldest_are_only_counted_and_some_written_at_once() -> None:
    def dropped() -> float:
        return REGISTRY.get_sample_value("slurm_bridge_events_dropped_total") or 0.0

    effects, before = Announced([100.0]), dropped()
    numbers = range(1, MOST_EVENTS + 2 * MOST_AT_ONCE + 1)
    for start in numbers[::MOST_AT_ONCE]:
        await effects.apply(cancels(*range(start, start + MOST_AT_ONCE)))
    assert dropped() == before + 2 * MOST_AT_ONCE - EVENTS_AT_ONCE
    await asyncio.sleep(0)
    assert len(effects.notes) == EVENTS_AT_ONCE, (
        "nothing is calm, and the first has not waited for long"
    )
    await effects.apply([])
    written = await effects.announced()
    assert len(written) == MOST_EVENTS + EVENTS_AT_ONCE
    assert written[-1] == str(numbers[-1])
    assert written == sorted(written, key=int)


async def test_a_bridge_that_ends_does_not_wait_for_its_events() -> None:
    effects = Announced([100.0])
    await effects.apply(cancels(*range(1, MOST_AT_ONCE + 1)))
    await effects.apply([])
    await effects.close()
    assert len(effects.notes) <= EVENTS_AT_ONCE


async def test_pods_are_released_before_others_get_their_label() -> None:
    effects = Recorded([100.0])
    await effects.apply([Label(POD, 1), Release(POD, 1, "k1", 0), CANCEL])
    assert effects.sent == [Release(POD, 1, "k1", 0), CANCEL, Label(POD, 1)]
