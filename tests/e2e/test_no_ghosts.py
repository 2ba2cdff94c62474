"""Worker pods that end in every possible way leave no node record behind, once the operator has
pruned.
"""

import json
import os
import random
import time
from collections import Counter
from collections.abc import Iterator

import pytest

from sidecars.contract.extra import pod_facts
from tests.e2e.test_states import jobs_all_the_time
from tests.support.real.harness import Slurm, until, until_equal
from tests.support.real.kills import kill_processes

pytestmark = pytest.mark.timeout(1500)

DELETIONS = int(os.environ.get("DELETIONS", "20"))
YOUNG = DELETIONS * 3 // 10
"""Of those, how many are of pods in their first seconds."""
WORKERS = 8
REGISTERED = 2
"""How many pods must be in Slurm before the next are deleted; at least a third of the next is."""
WAYS = {
    "deleted": ("--wait=false",),
    "deleted with a grace period of 1 s": ("--wait=false", "--grace-period=1"),
    "deleted by force": ("--force", "--grace-period=0"),
    "killed, then deleted by force": ("--force", "--grace-period=0"),
    # Without its `node`, the pod's preStop hook waits as long as it may.
    "killed, then deleted with a grace period of 10 s": ("--wait=false", "--grace-period=10"),
}


@pytest.fixture
def two_afterwards(slurm: Slurm) -> Iterator[Slurm]:
    """The two workers of before, and two of the same names afterwards."""
    yield slurm
    # Which two are left is chance, and Slurm may believe for a while in a job of one that was
    # killed.
    slurm.login("scancel", "--user=root")
    slurm.scale(0)
    until("all workers to be gone", lambda: not slurm.pods() and not slurm.nodes())
    slurm.scale(2)
    slurm.until_idle(2)


def uids(slurm: Slurm) -> dict[str, str]:
    """Of the worker pods that have not been deleted, the uids by the names."""
    metadata = [pod["metadata"] for pod in slurm.pods().values()]
    return {it["name"]: it["uid"] for it in metadata if "deletionTimestamp" not in it}


def records(slurm: Slurm) -> dict[str, list[str]]:
    """Slurm's node records: the uid of the pod that each is of ("" if of none), and its states."""
    nodes = json.loads(slurm.login("scontrol", "show", "nodes", "--json"))["nodes"]
    facts = [pod_facts(node["extra"]) for node in nodes]
    return {
        fact.pod_uid if fact else "": node["state"] for fact, node in zip(facts, nodes, strict=True)
    }


def delete(slurm: Slurm, pods: dict[str, str], rng: random.Random) -> Counter[str]:
    """Delete these pods, each in a way of its own; how many in each way."""
    ways = {name: rng.choice(list(WAYS)) for name in pods}
    for way, words in WAYS.items():
        names = [name for name in pods if ways[name] == way]
        if way.startswith("killed"):
            for name in names:
                kill_processes(pods[name])
        if names:
            slurm.kubernetes.kubectl(
                "-n", "slurm", "delete", "pod", *names, "--ignore-not-found", *words
            )
    return Counter(ways.values())


def delete_young(slurm: Slurm, rng: random.Random) -> dict[str, float]:
    """Delete so many pods in their first seconds. The seconds until each was gone, by uid: a minute
    at most.
    """
    due: dict[str, float] = {}
    asked: dict[str, float] = {}
    waits: dict[str, float] = {}
    old = set(uids(slurm).values())

    def look() -> bool:
        living = {pod["metadata"]["uid"] for pod in slurm.pods().values()}
        now = time.monotonic()
        waits.update(
            {
                uid: now - since
                for uid, since in asked.items()
                if uid not in living and uid not in waits
            }
        )
        late = {
            uid: now - since for uid, since in asked.items() if uid in living and now - since > 60
        }
        assert not late, f"pods that still end after a minute: {late}"
        if len(asked) == YOUNG:
            return len(waits) == YOUNG
        pods = {name: uid for name, uid in uids(slurm).items() if uid not in old}
        for uid in pods.values():
            due.setdefault(uid, now + rng.uniform(0, 5))
        chosen = [(name, uid) for name, uid in pods.items() if uid not in asked and due[uid] <= now]
        chosen = chosen[: YOUNG - len(asked)]
        if chosen:
            names = [name for name, _ in chosen]
            slurm.kubernetes.kubectl(
                "-n", "slurm", "delete", "pod", *names, "--ignore-not-found", "--wait=false"
            )
            asked.update({uid: time.monotonic() for _, uid in chosen})
        return False

    slurm.scale(WORKERS)
    until(f"{YOUNG} pods to be deleted in their first seconds, and gone", look, pause=0.1)
    until_equal("each of them to be replaced", lambda: len(uids(slurm)), WORKERS)
    return waits


def test_random_deletions_and_those_of_pods_in_their_first_seconds_leave_no_record_without_its_pod(
    two_afterwards: Slurm, capsys: pytest.CaptureFixture[str]
) -> None:
    slurm = two_afterwards
    seed = int(os.environ.get("SEED", "7"))
    rng = random.Random(seed)  # noqa: S311 - guards nothing
    ways, registered, busy = Counter[str](), 0, 0
    with jobs_all_the_time(slurm):
        waits = delete_young(slurm, rng)
        deleted, begun = set(waits), time.monotonic()
        while len(deleted) < DELETIONS:
            found, pods = records(slurm), uids(slurm)
            known = sorted(name for name, uid in pods.items() if uid in found)
            if len(known) < REGISTERED:
                time.sleep(2)
                continue
            count = min(
                rng.randint(4, WORKERS), 3 * len(known), len(pods), DELETIONS - len(deleted)
            )
            if len(deleted) + count == DELETIONS:
                # Most of the last ones get no successors of their names: their records are the
                # operator's to prune.
                slurm.scale(2)
            # On a slow host most pods have not registered yet: some that have are among them.
            chosen = rng.sample(known, -(-count // 3))
            chosen += rng.sample(sorted(pods.keys() - set(chosen)), count - len(chosen))
            victims = {name: pods[name] for name in chosen}
            ways += delete(slurm, victims, rng)
            deleted |= set(victims.values())
            registered += len(found.keys() & set(victims.values()))
            busy += sum(
                not {"ALLOCATED", "MIXED"}.isdisjoint(found.get(uid, ()))
                for uid in victims.values()
            )
        # Slurm may believe for minutes in a job that had just begun when its worker was killed, and
        # the worker of that name waits for it.
        slurm.login("scancel", "--user=root")
        last = pods_gone = ghosts_gone = time.monotonic()

        def settled() -> bool:
            nonlocal pods_gone, ghosts_gone
            found, living = (
                set(records(slurm)),
                {pod["metadata"]["uid"] for pod in slurm.pods().values()},
            )
            if len(living) > 2:
                pods_gone = time.monotonic()
            if found - living:
                ghosts_gone = time.monotonic()
            return len(living) == 2 and found == living

        until("Slurm's records to be those of the two pods that are left", settled)
    how, longest = (
        ", ".join(f"{count} {way}" for way, count in sorted(ways.items())),
        max(waits.values()),
    )
    with capsys.disabled():
        print(
            f"\nseed {seed}: {YOUNG} pods deleted in their first seconds: gone after "
            f"{longest:.1f} s at most; {DELETIONS - YOUNG} more deletions in {last - begun:.0f} s "
            f"({how}), {registered} of nodes in Slurm, {busy} of busy ones; 0 ghosts: the last "
            f"pod was gone {pods_gone - last:.1f} s after the last deletion, the last record "
            f"without a pod {ghosts_gone - last:.1f} s after it"
        )
    assert 3 * registered >= DELETIONS - YOUNG
