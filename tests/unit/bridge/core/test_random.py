"""Random runs: pods, jobs, deletions, scancel, time limits, preemption, lost nodes, outages, kills
of the bridge.

And suspended jobs, and a slurmctld that is killed and has forgotten the last seconds.
"""

import dataclasses
import random
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sidecars.bridge.core import decide, grants, orphans, requeued
from sidecars.bridge.core import jobs as reading
from sidecars.bridge.core.devices import Device
from sidecars.bridge.core.jobs import JobBook
from sidecars.bridge.core.placeholder import together
from sidecars.bridge.core.records import Job, Phase, Report, Start, View
from sidecars.bridge.core.twice import without_place
from sidecars.slurm.external import ExternalJob
from tests.unit.bridge.core import model, model_claims
from tests.unit.bridge.core.model import CPUS, ENDS, MEMORY, World

STEPS = 40


CREATE, DELETE, DOWN, SUSPEND, ROLL_BACK = 0, 2, 7, 8, 10


def create(world: World) -> None:
    """A user creates a group of pods."""
    rng = world.rng
    size = rng.choice((1, 1, 1, 2, 3))
    cpus = [rng.randrange(1, CPUS + 1)] * size
    if rng.random() < 0.5:
        # Unequal pods: a heterogeneous job.
        cpus = [rng.randrange(1, CPUS + 1) for _ in range(size)]
    owner = rng.choice(("", f"owner{world.serial}"))
    memory, gpus = rng.choice((1, 1, 1, 2, MEMORY)), rng.choice((0, 0, 1, 1, 2))
    world.create(*cpus, memory=memory, owner=owner, unbindable=rng.random() < 0.1, gpus=gpus)


def disturb(world: World, what: int | None = None) -> None:
    """One thing that users, Slurm or hardware do, a random one by default."""
    rng = world.rng
    jobs = [job for job in world.jobs.values() if job.phase is not Phase.ENDED]
    match rng.randrange(11) if what is None else what:
        case 0 | 1:  # CREATE
            create(world)
        case 2 if world.pods:  # DELETE
            world.delete(rng.choice(sorted(world.pods)))
        case 3 | 4 if jobs:
            # scancel, a time limit, preemption, a node that Slurm has lost.
            world.end(rng.choice(jobs), rng.choice(ENDS))
        case 5 if world.pods:
            uid = rng.choice(sorted(world.pods))
            if world.pods[uid].pod.bound:
                world.change(uid, finished=True)
        case 6 if len(world.nodes) > 1 and rng.random() < 0.3:
            world.lose_node(rng.choice(sorted(world.nodes)))
        case 7 if rng.random() < 0.3:  # DOWN
            world.down = world.step + rng.randrange(1, 6)
        case 9 if world.pods and world.nodes:
            # Someone with the rights of an administrator.
            uid = rng.choice(sorted(world.pods))
            if world.pods[uid].pod.gated:
                world.claims.forge(
                    uid, rng.choice(sorted(world.nodes)), rng.randrange(model_claims.GPUS)
                )
        case 8 if jobs:  # SUSPEND
            job = rng.choice(jobs)
            if job.phase is Phase.RUNNING:
                job.phase = Phase.STOPPED
            elif job.phase is Phase.STOPPED:
                world.resume(job)
        case 10 if jobs and rng.random() < 0.3:  # ROLL_BACK
            job = rng.choice(jobs)
            if all(it.phase is Phase.RUNNING for it in world.components(job)):
                world.roll_back(job)


def run(seed: int, often: int | None = None) -> World:
    """One run, checked after each step, until everything has settled. `often`: what happens in each
    step, too.
    """
    world = World(random.Random(seed))  # noqa: S311 - reproducible
    for _ in range(STEPS):
        disturb(world)
        if often is not None:
            disturb(world, often)
        world.go_on(kill=0.15)
    for job in world.jobs.values():
        if job.phase is Phase.STOPPED:
            world.resume(job)
    for job in list(world.jobs.values()):
        # An administrator ends all but one of the jobs that have the same cores.
        if job.phase is Phase.RUNNING and any(world.used(node) > CPUS for node in job.slots):
            world.end(job)
    for it in world.pods.values():
        it.unbindable = False
    for step in range(120):
        if step == 20:
            clean_up(world)
        world.go_on(all_of=True)
    return world


def clean_up(world: World) -> None:
    """An administrator deletes the pods that Slurm doesn't know, or not there: they keep others
    from their nodes.
    """
    misplaced = without_place(world.view())
    for uid, it in list(world.pods.items()):
        if (
            it.pod.job is not None
            and not it.pod.gated
            and (it.pod.job not in world.jobs or uid in misplaced)
        ):
            world.delete(uid)


def ignore_blockers(monkeypatch: pytest.MonkeyPatch, of: str) -> None:
    """A defect: pods that keep others from a node don't, if the reason has these words."""
    blockers = decide._blockers

    def ignores(view: View) -> dict[str, str]:
        return {node: words for node, words in blockers(view).items() if of not in words}

    monkeypatch.setattr(decide, "_blockers", ignores)


def run_many(look: Callable[[World], None] = lambda _: None, often: int | None = None) -> None:
    """Enough runs to find a defect."""
    for seed in range(300):
        look(run(seed, often))


# A job gets the devices that the bridge has just taken back from its pod's claim, which still shows
# them.
@example(seed=971)
# A pod gets the label of a job whose last other pod vanishes, which the cache shows first.
@example(seed=900075)
@given(seed=st.integers(0, 2**32))
def test_no_cpu_mib_or_device_has_two_owners_and_all_is_settled_at_the_end(seed: int) -> None:
    settled(run(seed))


def settled(world: World) -> None:
    """Nothing is left to do, each pod has its job and each job its pods."""
    world.observe(all_of=True)
    assert not world.run_bridge(), "a settled bridge still acts"
    assert not world.leaks()
    for it in world.pods.values():
        its = world.jobs.get(it.pod.job or 0)
        if it.pod.gated and its is not None and not it.pod.finished:
            incomplete = its.phase is Phase.SUBMITTED and it.pod.reported[0] == "GroupIncomplete"
            assert its.phase is Phase.PENDING or incomplete, f"{it.pod} waits for {its}"


def test_the_model_finds_a_bridge_that_ignores_the_pods_of_ended_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decide, "_blockers", lambda view: {})
    with pytest.raises(AssertionError, match="are in use by"):
        run_many()


def test_the_model_finds_memory_with_two_owners_where_cpus_are_plenty(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model, "CPUS", 100)
    monkeypatch.setattr(decide, "_blockers", lambda view: {})
    with pytest.raises(AssertionError, match="MiB are in use by"):
        run_many()


def test_the_model_finds_a_bridge_that_lets_pods_of_suspended_jobs_share_their_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ignore_blockers(monkeypatch, "suspended")
    with pytest.raises(AssertionError, match="are in use by"):
        run_many()


def test_the_model_finds_a_bridge_that_releases_pods_to_cores_that_slurm_has_given_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decide, "given_twice", lambda view: {})
    with pytest.raises(AssertionError, match="are in use by"):
        run_many(often=SUSPEND)


def test_the_model_finds_a_bridge_that_ignores_the_pods_of_jobs_whose_start_slurm_has_forgotten(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ignore_blockers(monkeypatch, "no place there")
    with pytest.raises(AssertionError, match="are in use by"):
        run_many(often=ROLL_BACK)


# The defect is rare.
def test_the_model_finds_a_bridge_whose_job_keeps_the_place_of_a_start_that_slurm_forgot(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    details = JobBook.details

    def keeps(self: JobBook, job_id: int, record: ExternalJob | None) -> bool:
        former = self._records.get(job_id)
        if record is not None and former is not None and not record.allocations:
            record = dataclasses.replace(record, allocations=former[0].allocations)
        return details(self, job_id, record)

    monkeypatch.setattr(JobBook, "details", keeps)
    with pytest.raises(AssertionError, match="are in use by"):
        run_many(often=ROLL_BACK)


def test_the_model_finds_a_bridge_that_submits_again_while_a_submission_is_open(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Superfluous held jobs are cancelled in the end, but a bridge that starts both is found."""
    cancelled, with_job = orphans.cancelled, decide._with_job

    def starts_all(*args: Any) -> Any:
        view = args[3]
        yield from with_job(*args)
        for job in view.jobs.values():
            if job.phase is Phase.SUBMITTED:
                yield Start(job)

    monkeypatch.setattr(decide, "_with_job", starts_all)
    monkeypatch.setattr(orphans, "cancelled", lambda view, _: cancelled(view, frozenset(view.jobs)))
    with pytest.raises(AssertionError, match=r"jobs .* of"):
        run_many(often=CREATE)


def test_the_model_finds_a_bridge_that_looks_at_the_first_component_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def first_alone(components: Iterable[Job]) -> Job:
        its = sorted(components, key=lambda it: it.offset)
        whole = together(its)
        return (
            whole
            if whole.phase is Phase.SUBMITTED
            else dataclasses.replace(whole, phase=its[0].phase)
        )

    monkeypatch.setattr(reading, "together", first_alone)
    with pytest.raises(AssertionError):
        run_many()


def test_the_model_finds_a_bridge_that_leaves_components_running_when_another_one_has_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        reading, "together", lambda its: dataclasses.replace(together(its), remaining=())
    )
    with pytest.raises(AssertionError, match=r"has no pod|jobs .* of"):
        run_many(settled)


def test_the_model_finds_a_bridge_that_gives_devices_by_number_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """As a scheduler does that doesn't know which devices Slurm has given to the job."""
    by_node = grants._by_node

    def any_of_the_node(component: Job) -> dict[str, dict[str, tuple[Device, ...]]]:
        return {
            node: {
                gres: tuple(model_claims.gpu(node, index) for index in range(model_claims.GPUS))
                for gres in found
            }
            for node, found in by_node(component).items()
        }

    monkeypatch.setattr(grants, "_by_node", any_of_the_node)
    with pytest.raises(AssertionError, match=r"and its job|two owners"):
        run_many()


def test_the_model_finds_a_bridge_that_does_not_look_at_what_other_claims_have(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(model_claims.SimClaims, "holders", lambda self: {})
    # While Slurm is unknown, pods that wait keep what they have.
    with pytest.raises(AssertionError, match="two owners"):
        run_many(often=DOWN)


def test_the_model_finds_a_bridge_that_releases_before_the_claims_show_their_devices(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(grants, "plan", lambda *_: grants.Plan())
    with pytest.raises(AssertionError, match=r"without (its )?devices|and its job"):
        run_many()


def test_the_runs_reach_devices_that_are_taken_back() -> None:
    taken_back = 0
    for seed in range(60):
        taken_back += run(seed).claims.taken_back
    assert taken_back


def test_the_runs_reach_heterogeneous_jobs_that_run_and_lose_a_component() -> None:
    seen: set[tuple[Phase, ...]] = set()
    for seed in range(30):
        seen |= run(seed).seen
    assert {(Phase.RUNNING, Phase.RUNNING), (Phase.RUNNING, Phase.ENDED)} <= seen


def test_nothing_happens_while_slurm_is_unknown() -> None:
    world = World(random.Random(1))  # noqa: S311 - reproducible
    world.create(1, 1)
    world.down = 10
    world.observe(all_of=True)
    assert world.run_bridge() == []


def test_the_runs_reach_pods_that_are_queued_again() -> None:
    assert sum(run(seed).requeued for seed in range(10)) > 0


def test_the_model_finds_a_bridge_that_deletes_pods_that_never_ran(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requeued, "ended_by_slurm", lambda _: False)
    with pytest.raises(AssertionError, match="never ran and is deleted"):
        run_many()


def test_the_model_finds_a_bridge_whose_jobs_wait_for_a_lost_node_for_ever(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(requeued, "overdue", lambda *_: None)
    with pytest.raises(AssertionError, match="waits for"):
        run_many(settled)


def test_a_waiting_group_is_reported_once() -> None:
    world = World(random.Random(1))  # noqa: S311 - reproducible
    world.create(1, 1)
    del world.pods[min(world.pods)]
    world.observe(all_of=True)
    first = world.run_bridge()
    world.observe(all_of=True)
    assert [type(it) for it in first] == [Report]
    assert world.run_bridge() == []
