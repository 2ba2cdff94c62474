"""Worker pods that go in every way there is leave no node record behind, once the operator has pruned."""

import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime

import pytest

from sidecars.contract.extra import pod_facts
from tests.e2e.test_states import jobs_all_the_time
from tests.support.real.harness import Slurm, until
from tests.support.real.kills import kill_processes

pytestmark = pytest.mark.timeout(600)

DELETIONS = 100
WORKERS = 8
REGISTERED = 2
"""Of those, how many must be in Slurm before the next are deleted."""
WAYS = {
    "deleted": ("--wait=false",),
    "deleted with a grace period of 1 s": ("--wait=false", "--grace-period=1"),
    "deleted by force": ("--force", "--grace-period=0"),
    "killed, then deleted by force": ("--force", "--grace-period=0"),
    # Without its `node`, the pod's preStop hook waits as long as it may.
    "killed, then deleted with a grace period of 10 s": ("--wait=false", "--grace-period=10"),
}


@pytest.fixture
def pool(slurm: Slurm) -> Iterator[Slurm]:
    """Eight workers on three machines, and the two of before afterwards."""
    slurm.scale(WORKERS)
    slurm.until_idle(WORKERS)
    yield slurm
    # Which two are left is chance, and Slurm may believe for a while in a job of one that was killed.
    slurm.login("scancel", "--user=root")
    slurm.scale(0)

    def gone() -> bool:
        end_unstarted(slurm)
        return not slurm.pods() and not slurm.nodes()

    until("all workers to be gone", gone, 120)
    slurm.scale(2)
    slurm.until_idle(2)


def end_unstarted(slurm: Slurm) -> None:
    """Remove by force the pods that have waited for half a minute for their end, and whose slurmd has never started.

    The kernel drops a signal for the first process of a container that has just been started. Then the kubelet waits
    for the whole grace period, an hour, and a shorter one that is given later changes nothing.
    """
    for name, pod in slurm.pods().items():
        meta = pod["metadata"]
        if "deletionTimestamp" not in meta:
            continue
        end = datetime.fromisoformat(meta["deletionTimestamp"])
        waits = (datetime.now(UTC) - end).total_seconds() + meta["deletionGracePeriodSeconds"]
        states = [it for it in pod["status"].get("containerStatuses", ()) if it["name"] == "slurmd"]
        started = any("waiting" not in it["state"] or it["restartCount"] or it.get("lastState") for it in states)
        if waits > 30 and not started:
            slurm.kubernetes.kubectl("-n", "slurm", "delete", "pod", name, "--force", "--grace-period=0")


def uids(slurm: Slurm) -> dict[str, str]:
    """Of the worker pods that have not been told to go, the uids by the names."""
    metadata = [pod["metadata"] for pod in slurm.pods().values()]
    return {it["name"]: it["uid"] for it in metadata if "deletionTimestamp" not in it}


def records(slurm: Slurm) -> dict[str, list[str]]:
    """Slurm's node records: the uid of the pod that each is of ("" if of none), and its states."""
    nodes = json.loads(slurm.login("scontrol", "show", "nodes", "--json"))["nodes"]
    facts = [pod_facts(node["extra"]) for node in nodes]
    return {fact.pod_uid if fact else "": node["state"] for fact, node in zip(facts, nodes, strict=True)}


def delete(slurm: Slurm, pods: dict[str, str], rng: random.Random) -> Counter[str]:
    """Delete these pods, each in a way of its own; how many in each way."""
    ways = {name: rng.choice(list(WAYS)) for name in pods}
    for way, words in WAYS.items():
        names = [name for name in pods if ways[name] == way]
        if way.startswith("killed"):
            for name in names:
                kill_processes(pods[name])
        if names:
            slurm.kubernetes.kubectl("-n", "slurm", "delete", "pod", *names, "--ignore-not-found", *words)
    return Counter(ways.values())


def test_a_hundred_random_deletions_leave_no_record_without_its_pod(
    pool: Slurm, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("SEED", "7"))
    rng = random.Random(seed)  # noqa: S311 - guards nothing
    deleted: set[str] = set()
    ways, registered, busy, begun = Counter[str](), 0, 0, time.monotonic()
    with jobs_all_the_time(pool):
        while len(deleted) < DELETIONS:
            found = records(pool)
            if len(found.keys() - deleted) < REGISTERED:
                time.sleep(2)
                continue
            pods = uids(pool)
            count = min(rng.randint(4, WORKERS), len(pods), DELETIONS - len(deleted))
            if len(deleted) + count == DELETIONS:
                # Most of the last ones get no successors of their names: their records are the operator's to prune.
                pool.scale(2)
            victims = dict(rng.sample(sorted(pods.items()), count))
            ways += delete(pool, victims, rng)
            deleted |= set(victims.values())
            registered += len(found.keys() & set(victims.values()))
            busy += sum(not {"ALLOCATED", "MIXED"}.isdisjoint(found.get(uid, ())) for uid in victims.values())
        # Slurm may believe for minutes in a job that had just begun when its worker was killed, and the worker of that
        # name waits for it.
        pool.login("scancel", "--user=root")
        last = pods_gone = ghosts_gone = time.monotonic()

        def settled() -> bool:
            nonlocal pods_gone, ghosts_gone
            end_unstarted(pool)
            found, living = set(records(pool)), {pod["metadata"]["uid"] for pod in pool.pods().values()}
            if len(living) > 2:
                pods_gone = time.monotonic()
            if found - living:
                ghosts_gone = time.monotonic()
            return len(living) == 2 and found == living

        until("Slurm's records to be those of the two pods that are left", settled, 90)
    how = ", ".join(f"{count} {way}" for way, count in sorted(ways.items()))
    with capsys.disabled():
        print(
            f"\nseed {seed}: {DELETIONS} deletions in {last - begun:.0f} s ({how}), {registered} of nodes in Slurm,"
            f" {busy} of busy ones; 0 ghosts: the last pod was gone {pods_gone - last:.1f} s after the last deletion,"
            f" the last record without a pod {ghosts_gone - last:.1f} s after it"
        )
    assert registered > DELETIONS / 4
