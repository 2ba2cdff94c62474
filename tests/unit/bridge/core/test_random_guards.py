"""Random runs on nodes with a slurmd: pods beside Slurm's own jobs, lost slurmd, and what happens
in `test_random`.

But groups of unequal pods and claims, which are refused there.
"""

import dataclasses
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecars.bridge.core import alone, guards, jobs, placeholder
from sidecars.bridge.core.nodes import Drain
from sidecars.bridge.core.records import Job, Phase
from tests.unit.bridge.core.guard_model import GuardWorld
from tests.unit.bridge.core.model import CPUS, ENDS, MEMORY
from tests.unit.bridge.core.model_claims import GPUS
from tests.unit.bridge.core.test_random import STEPS, clean_up, ignore_blockers, settled

SUSPEND, CHANGE = 8, 10


def disturb(world: GuardWorld, what: int | None = None) -> None:
    """One thing that users, Slurm or hardware do, a random one by default."""
    rng = world.rng
    jobs = [job for job in world.jobs.values() if job.phase is not Phase.ENDED]
    match rng.randrange(11) if what is None else what:
        case 0 | 1:
            size = rng.choice((1, 1, 2, 3))
            gpus = rng.choice((0, 0, 0, 1, GPUS))
            world.create(
                *[rng.randrange(1, CPUS + 1)] * size,
                memory=rng.choice((1, 1, 1, 2, MEMORY)),
                owner=rng.choice(("", f"owner{world.serial}")),
                unbindable=rng.random() < 0.1,
                gpus=gpus,
                # Without whole nodes, pods with devices get none.
                exclusive=rng.random() < (0.8 if gpus else 0.1),
            )
        case 2 if world.pods:
            world.delete(rng.choice(sorted(world.pods)))
        case 3 | 4 if jobs:
            world.end(rng.choice(jobs), rng.choice(ENDS))
        case 5 if world.pods:
            uid = rng.choice(sorted(world.pods))
            if world.pods[uid].pod.bound:
                world.change(uid, finished=True)
        case 6 if rng.random() < 0.4:
            world.lose_slurmd(rng.choice(sorted(world.nodes)))
        case 7 if rng.random() < 0.3:
            if rng.random() < 0.3 and len(world.nodes) > 1:
                world.lose_node(rng.choice(sorted(world.nodes)))
            else:
                world.down = world.step + rng.randrange(1, 6)
        case 8 if jobs:  # SUSPEND
            job = rng.choice(jobs)
            if job.phase is Phase.RUNNING:
                world.suspend(job)
            elif job.phase is Phase.STOPPED:
                world.resume(job)
        case 9 if jobs and rng.random() < 0.3:
            job = rng.choice(jobs)
            if job.phase is Phase.RUNNING:
                world.roll_back(job)
        case 10 if jobs and rng.random() < 0.3:  # CHANGE
            world.change_output(rng.choice(jobs))


def run(seed: int, often: int | None = None) -> GuardWorld:
    """One run, checked after each step, until everything has settled. `often`: what happens in each
    step, too.
    """
    world = GuardWorld(random.Random(seed))  # noqa: S311 - reproducible
    for _ in range(STEPS):
        disturb(world)
        if often is not None:
            disturb(world, often)
        world.go_on(kill=0.15)
    world.busy = False
    for job in list(world.jobs.values()):
        if job.phase is Phase.STOPPED or job.job_id in world.changed:
            world.end(job)
    for uid, it in list(world.pods.items()):
        it.unbindable = False
        if (
            it.pod.gated
            and it.pod.shape is not None
            and it.pod.shape.gres
            and not it.pod.shape.exclusive
        ):
            # The bridge refuses such a pod: no job of it could start it.
            world.change(uid, owner="")
            world.delete(uid)
    for step in range(120):
        if step == 20:
            clean_up(world)
        world.go_on(all_of=True)
    return world


def without_guard(world: GuardWorld) -> set[str]:
    """The nodes with a pod whose guard doesn't exist: slurmctld has forgotten its start. They stay
    drained.
    """
    there = [it.pod for it in world.pods.values() if it.pod.bound and it.pod.present]
    return {
        pod.node
        for pod in there
        if pod.job not in world.jobs or pod.node not in world.jobs[pod.job].slots
    }


# A run takes a part of a second, and the profile has some or thousands.
@pytest.mark.timeout(600 + 2 * settings().max_examples)
@given(seed=st.integers(0, 2**32))
def test_no_cpu_mib_or_device_has_two_owners_and_no_epilog_waits_for_ever(seed: int) -> None:
    world = run(seed)
    settled(world)
    assert not any(world.completing.values())
    assert world.drained.keys() <= without_guard(world)


def test_the_runs_reach_waiting_epilogs_and_devices_of_suspended_and_forgotten_guards() -> None:
    worlds = [run(seed) for seed in range(25)]
    assert sum(world.waited for world in worlds) > 0
    assert {it for world in worlds for it in world.met} == {"devices", "suspended", "forgotten"}


def find(often: int | None = None) -> None:
    for seed in range(300):
        run(seed, often)


def test_the_model_finds_a_bridge_that_ends_epilogs_with_their_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guards, "_is_gone", lambda *_: True)
    with pytest.raises(AssertionError, match="of other jobs"):
        find()


def test_the_model_finds_a_bridge_that_drains_no_node_whose_slurmd_was_lost(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    decides = guards.decide
    monkeypatch.setattr(
        guards, "decide", lambda *of: tuple(it for it in decides(*of) if not isinstance(it, Drain))
    )
    with pytest.raises(AssertionError, match="of other jobs"):
        find()


def test_the_model_finds_a_bridge_that_releases_pods_with_devices_beside_slurms_own_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(alone, "_of_devices", lambda *_: "")
    with pytest.raises(AssertionError, match="devices of pods"):
        find()


def test_the_model_finds_a_bridge_that_lets_pods_of_suspended_guards_share_their_cores(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ignore_blockers(monkeypatch, "suspended")
    with pytest.raises(AssertionError, match=r"are in use by|of other jobs"):
        find(SUSPEND)


def test_the_model_finds_a_bridge_that_knows_guards_by_what_their_users_can_change(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    comment_of = placeholder.comment_of
    monkeypatch.setattr(
        f"{jobs.__name__}.comment_of",
        lambda record, cluster: comment_of(record, cluster) if record.guard else None,
    )
    assert any(any(run(seed, CHANGE).completing.values()) for seed in range(300))


def test_the_model_finds_a_bridge_that_releases_pods_for_which_no_epilog_will_wait(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    job_of = placeholder.job_of

    def retains(*of: Any, **more: Any) -> Job:
        return dataclasses.replace(job_of(*of, **more), retains=True)

    monkeypatch.setattr(f"{jobs.__name__}.job_of", retains)
    with pytest.raises(AssertionError, match="no Epilog will wait"):
        find(CHANGE)
