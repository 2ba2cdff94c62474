"""What a check sends to Slurm, recorded by a double of the client."""

from typing import Any, TypeVar

from sidecars.checks.slurm import MOST_READS, Slurm, names_of
from sidecars.policy.checks.declared import Check
from sidecars.slurm.checks import CheckJob, WaitingJob
from sidecars.slurm.errors import ErrorEntry, NotFound, ServerFault, SlurmError
from sidecars.slurm.protocol import Request
from sidecars.slurm.records import Job, Jobs, Node, Nodes, Reservation

T = TypeVar("T")
CHECK = Check("net", "#!/bin/sh\n", timeout=61, env={"CHECK_SECONDS": "3"})


class Recorder:
    """Answers each request with the next of the answers for it, and the last one again and
    again.
    """

    def __init__(self, **answers: list[Any]) -> None:
        self.sent: list[Request[Any]] = []
        self.answers = answers

    async def call(self, request: Request[T], *, timeout: float | None = None) -> T:
        self.sent.append(request)
        answers = self.answers.get(str(request), [None])
        answer: Any = answers.pop(0) if len(answers) > 1 else answers[0]
        if isinstance(answer, SlurmError):
            raise answer
        return answer  # type: ignore[no-any-return]


def of(answers: dict[str, list[Any]], submitter: Recorder | None = None) -> tuple[Slurm, Recorder]:
    recorder = Recorder(**answers)
    return Slurm(CHECK, recorder, submitter or Recorder(), "daemon", now=lambda: 1000.0), recorder


def unknown(request: str) -> NotFound:
    return NotFound(request, 500, (ErrorEntry(2017),))


async def test_jobs_are_submitted_by_their_user_and_cancelled_by_slurms() -> None:
    user = Recorder(**{"POST job/submit": [7]})
    slurm, admin = of({}, user)
    assert await slurm.submit("#!/bin/sh\n", ["a", "b"], "all", 15, "") == 7
    await slurm.cancel(7)
    [submitted] = user.sent
    assert submitted.body is not None
    job = submitted.body["job"]
    assert (job["name"], job["time_limit"]["number"], job["deadline"]) == ("check-net", 3, 1195)
    assert "CHECK_SECONDS=3" in job["environment"]
    assert [str(it) for it in admin.sent] == ["DELETE job/7"]


async def test_nodes_are_read_in_full_when_slurmrestd_cannot_report_changes() -> None:
    refusal = ServerFault("GET nodes/", 500, (ErrorEntry(-1),))
    first, second = (Nodes((Node(name),), 100 + number) for number, name in enumerate("ab"))
    slurm, admin = of({"GET nodes/": [first, refusal, second]})
    assert set(await slurm.nodes()) == {"a"}
    assert set(await slurm.nodes()) == {"b"}
    assert [dict(it.query) for it in admin.sent] == [{}, {"update_time": "99"}, {}]


async def test_a_job_without_a_record_is_none_and_can_be_cancelled() -> None:
    slurm, _ = of({"GET job/7": [unknown("GET job/7")], "DELETE job/7": [unknown("DELETE job/7")]})
    assert await slurm.job(7) is None
    await slurm.cancel(7)
    slurm, _ = of({"GET job/7": [CheckJob(7)]})
    assert await slurm.job(7) == CheckJob(7)


async def test_nodes_are_asked_for_changes_from_one_second_earlier() -> None:
    slurm, admin = of({"GET nodes/": [Nodes((Node("a"),), 900), None]})
    assert set(await slurm.nodes()) == {"a"}
    assert set(await slurm.nodes()) == {"a"}
    assert [it.query for it in admin.sent] == [(), (("update_time", "899"),)]


async def test_all_nodes_are_asked_for_again_each_minute_as_slurmctlds_clock_may_be_set_back() -> (
    None
):
    recorder = Recorder(**{"GET nodes/": [Nodes((Node("a"),), 5000), None, Nodes((Node("b"),), 9)]})
    times = iter((1000.0, 1059.0, 1060.0, 900.0))  # At last, the own clock was set back, too.
    slurm = Slurm(CHECK, recorder, Recorder(), "daemon", now=lambda: next(times))
    for name in "aabb":
        assert set(await slurm.nodes()) == {name}
    assert [dict(it.query) for it in recorder.sent] == [{}, {"update_time": "4999"}, {}, {}]


async def test_a_job_that_waits_for_nodes_is_read_again_later_than_other_waiting_ones() -> None:
    depends, wants = WaitingJob(1, reason="Dependency"), WaitingJob(2, reason="Resources")
    now = [1000.0]
    answers: dict[str, list[Any]] = {
        "GET jobs/state/": [frozenset({1, 2, 3, 5})],
        "GET job/1": [depends],
        "GET job/2": [wants],
        "GET job/3": [WaitingJob(3, name="check-net")],
        "GET job/5": [unknown("GET job/5")],
    }
    recorder = Recorder(**answers)
    slurm = Slurm(CHECK, recorder, Recorder(), "daemon", now=lambda: now[0])
    for at, reads in ((1000.0, (1, 1)), (1000.5, (1, 1)), (1001.0, (2, 1)), (1006.0, (3, 2))):
        now[0] = at
        found = await slurm.waiting()
        assert found is not None
        assert {job.job_id for job in found} == {1, 2}
        sent = [str(it) for it in recorder.sent]
        assert (sent.count("GET job/1"), sent.count("GET job/2"), sent.count("GET job/3")) == (
            *reads,
            1,
        )


async def test_while_many_jobs_are_unread_nothing_is_known_of_them() -> None:
    ids = range(1, 2 * MOST_READS + 2)
    answers: dict[str, list[Any]] = {
        f"GET job/{number}": [WaitingJob(number, reason="Dependency")] for number in ids
    }
    answers["GET jobs/state/"] = [frozenset(ids)]
    recorder = Recorder(**answers)
    now = [1000.0]
    slurm = Slurm(CHECK, recorder, Recorder(), "daemon", now=lambda: now[0])
    assert await slurm.waiting() is None
    assert str(recorder.sent[1]) == f"GET job/{ids[-1]}"
    assert len(recorder.sent) == 1 + MOST_READS
    assert await slurm.waiting() is None
    found = await slurm.waiting()
    assert found is not None
    assert len(found) == len(ids)


async def test_only_the_checks_own_jobs_and_reservations_are_leftovers() -> None:
    running = frozenset({"RUNNING"})
    jobs = (
        Job(1, running, "check-net", user_name="daemon"),
        Job(2, running, "check-net", user_name="mallory"),
        Job(3, frozenset({"COMPLETED"}), "check-net", user_name="daemon"),
        Job(4, running, "check-network", user_name="daemon"),
    )
    own, pair = Reservation("check-net.a", "a"), Reservation("check-net.n2.n1", "n[1-2]")
    others = (Reservation("check-network.a", "a"), Reservation("check-net.replacement", "n[1-2]"))
    slurm, _ = of({"GET jobs/": [Jobs(jobs, 1)], "GET reservations/": [(own, pair, *others)]})
    assert await slurm.leftovers() == [1]
    assert await slurm.reservations() == [own, pair]


async def test_a_reservation_is_for_the_jobs_user_alone_and_names_the_lifted_node_first() -> None:
    slurm, admin = of({})
    name = await slurm.reserve(["n2", "n1"])
    assert name == "check-net.n2.n1"
    body = admin.sent[0].body
    assert body is not None
    assert (body["users"], body["node_list"]) == (["daemon"], ["n[1-2]"])
    assert slurm.lifted(Reservation(name, "n[1-2]")) == ["n2"]
    assert slurm.lifted(Reservation("check-net.n1", "n1")) == ["n1"]
    await slurm.release(name)
    assert str(admin.sent[-1]) == "DELETE reservation/check-net.n2.n1"


async def test_writes_change_one_node() -> None:
    slurm, admin = of({})
    await slurm.drain("a", "reason")
    await slurm.undrain("a")
    await slurm.comment("a", "text")
    assert [it.body for it in admin.sent] == [
        {"name": ["a"], "state": ["DRAIN"], "reason": "reason"},
        {"name": ["a"], "state": ["UNDRAIN"]},
        {"name": ["a"], "comment": "text"},
    ]


def test_a_text_that_is_no_hostlist_has_no_nodes() -> None:
    assert names_of(Reservation("x", "a[1-")) == []


async def test_jobs_of_all_checks_are_no_users_jobs_and_others_with_a_similar_name_are() -> None:
    names = {1: "check-net", 2: "check-disk", 3: "check-results"}
    answers: dict[str, list[Any]] = {
        f"GET job/{it}": [WaitingJob(it, name=name)] for it, name in names.items()
    }
    answers["GET jobs/state/"] = [frozenset(names)]
    slurm = Slurm(
        CHECK, Recorder(**answers), Recorder(), "daemon", now=lambda: 1000.0, checks={"net", "disk"}
    )
    found = await slurm.waiting()
    assert [job.name for job in found or ()] == ["check-results"]
