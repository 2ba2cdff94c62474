"""Random runs with jobs that users submit for their pods, beside everything else that can
happen.
"""

import collections
import dataclasses
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.bridge.core import decide, placeholder
from sidecars.bridge.core.records import GroupKey, Phase
from sidecars.bridge.core.shape import Shape
from sidecars.contract.bridge import Comment
from sidecars.slurm.external import Allocation
from tests.unit.bridge.core.model import CPUS, MEMORY, NAMESPACE, USER, SimJob, World
from tests.unit.bridge.core.test_random import STEPS, clean_up, disturb, settled


class UserWorld(World):
    """With groups of equal pods whose job their user submits."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__(rng)
        self.groups: dict[str, tuple[Shape, int]] = {}
        self.released = 0

    def _pod(
        self, group: str, shape: Shape, owner: str, size: int, *, unbindable: bool = False
    ) -> None:
        super()._pod(group, shape, owner, size, unbindable=unbindable)
        if group in self.groups:
            self.change(f"u{self.serial}", submit=False)

    def disturb(self) -> None:
        """One thing that users, Slurm or hardware do."""
        match self.rng.randrange(6):
            case 0:
                self.serial += 1
                group, size = f"group/s{self.serial}", self.rng.choice((1, 2, 3))
                cpus, memory = self.rng.randrange(1, CPUS + 1), self.rng.choice((1, 2, MEMORY))
                shape = Shape(user=USER, partition="p", cpus=cpus, memory=memory)
                self.groups[group] = shape, size
                owner = self.rng.choice(("", group))
                for _ in range(size):
                    self._pod(group, shape, owner, size, unbindable=self.rng.random() < 0.1)
            case 1 | 2 if self.groups:
                self.submit_for(self.rng.choice(sorted(self.groups)))
            case _:
                disturb(self)

    def submit_for(self, group: str) -> None:
        """A job for the group, if it has none that may run. It may request more or less than the
        pods do.
        """
        key = GroupKey(NAMESPACE, group)
        if any(job.key == key and job.phase is not Phase.ENDED for job in self.jobs.values()):
            return
        wanted, size = self.groups[group]
        cpus = self.rng.choice((wanted.cpus, wanted.cpus, self.rng.randrange(1, CPUS + 1)))
        memory = self.rng.choice((wanted.memory, wanted.memory, self.rng.randrange(1, MEMORY + 1)))
        pods = self.rng.choice((size, size, self.rng.randrange(1, 4)))
        job_id = max([*self.jobs, *self.forgotten, 0]) + 1
        comment = Comment(NAMESPACE, group, by_user=True)
        shape = Shape(user=USER, partition="p", cpus=cpus, memory=memory)
        self.jobs[job_id] = SimJob(job_id, key, shape, pods, comment, job_id, phase=Phase.PENDING)

    def count(self) -> None:
        """Remember how many pods of such groups ran."""
        bound = [
            it for it in self.pods.values() if it.pod.bound and it.pod.key.group in self.groups
        ]
        self.released = max(self.released, len(bound))


def run(seed: int) -> UserWorld:
    """One run, checked after each step, until the users have ended their jobs and everything has
    settled.
    """
    world = UserWorld(random.Random(seed))  # noqa: S311 - reproducible
    for step in range(STEPS + 120):
        if step == STEPS + 20:
            clean_up(world)
        if step < STEPS:
            world.disturb()
        elif step == STEPS:
            world.down = 0
            for job in world.jobs.values():
                if job.comment.by_user or job.phase is Phase.STOPPED:
                    world.end(job)
            for it in world.pods.values():
                it.unbindable = False
        world.observe(all_of=step >= STEPS)
        world.run_bridge(kill=step < STEPS and world.rng.random() < 0.15)
        world.check()
        world.count()
        world.advance()
        world.check()
    return world


@given(seed=st.integers(0, 2**32))
def test_jobs_of_users_give_no_cpu_or_mib_two_owners_and_leave_nothing_behind(seed: int) -> None:
    settled(run(seed))


def test_the_runs_reach_groups_that_run_with_a_job_of_their_user() -> None:
    assert max(run(seed).released for seed in range(20)) >= 2


def test_the_model_finds_pods_of_users_beside_those_of_ended_jobs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(decide, "_blockers", lambda view: {})
    with pytest.raises(AssertionError, match="are in use by"):
        collections.deque(map(run, range(300)), maxlen=0)


def test_the_model_finds_pods_of_users_with_more_memory_than_their_job(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    fits = placeholder._fits

    def ignores(it: Allocation, shape: Shape) -> int:
        return fits(dataclasses.replace(it, memory=0), shape)

    monkeypatch.setattr(placeholder, "_fits", ignores)
    with pytest.raises(AssertionError, match="MiB are in use by"):
        collections.deque(map(run, range(300)), maxlen=0)
