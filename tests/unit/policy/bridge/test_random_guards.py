"""Random runs on nodes with a slurmd: pods beside Slurm's own jobs, lost slurmd, and everything of `test_random`."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecars.policy.bridge import guards
from sidecars.policy.bridge.nodes import Drain
from sidecars.policy.bridge.records import Phase
from tests.unit.policy.bridge.guard_model import GuardWorld
from tests.unit.policy.bridge.model import CPUS
from tests.unit.policy.bridge.test_random import STEPS, settled

pytestmark = pytest.mark.timeout(120)


def disturb(world: GuardWorld) -> None:
    """One thing that users, Slurm or hardware do."""
    rng = world.rng
    jobs = [job for job in world.jobs.values() if job.phase is not Phase.ENDED]
    match rng.randrange(8):
        case 0 | 1:
            size = rng.choice((1, 1, 2, 3))
            owner = rng.choice(("", f"owner{world.serial}"))
            world.create(*[rng.randrange(1, CPUS + 1)] * size, owner=owner, unbindable=rng.random() < 0.1)
        case 2 if world.pods:
            world.delete(rng.choice(sorted(world.pods)))
        case 3 | 4 if jobs:
            world.end(rng.choice(jobs))
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


def run(seed: int) -> GuardWorld:
    """One run, checked after each step, until everything has settled."""
    world = GuardWorld(random.Random(seed))  # noqa: S311 - reproducible
    for _ in range(STEPS):
        disturb(world)
        world.go_on(kill=0.15)
    for it in world.pods.values():
        it.unbindable = False
    for _ in range(60):
        world.go_on(all_of=True)
    return world


@settings(max_examples=50)
@given(seed=st.integers(0, 2**32))
def test_no_cpu_has_two_owners_and_no_epilog_waits_for_ever(seed: int) -> None:
    world = run(seed)
    settled(world)
    assert not any(world.completing.values())
    assert not world.drained


def test_the_runs_reach_epilogs_that_wait() -> None:
    assert sum(run(seed).waited for seed in range(10)) > 0


def find(runs: int = 300) -> None:
    for seed in range(runs):
        run(seed)


def test_the_model_finds_a_bridge_that_ends_epilogs_with_their_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guards, "_is_gone", lambda *_: True)
    with pytest.raises(AssertionError, match="of other jobs"):
        find()


def test_the_model_finds_a_bridge_that_drains_no_node_whose_slurmd_was_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    decide = guards.decide
    monkeypatch.setattr(guards, "decide", lambda *of: tuple(it for it in decide(*of) if not isinstance(it, Drain)))
    with pytest.raises(AssertionError, match="of other jobs"):
        find()
