"""Pods that end in every possible way leave no node record once the operator has pruned."""

import random

from sidecars.contract.extra import pod_facts
from tests.support.virtual_time import run
from tests.support.world.world import POD, World, world

DELETIONS = 100


def delete_one(w: World, rng: random.Random) -> None:
    """kubectl delete pod of any pod, or its processes are killed first and it is deleted by
    force.
    """
    pods = [pod for pod in w.pods() if not pod["metadata"].get("deletionTimestamp")]
    if not pods:
        return
    pod = rng.choice(pods)["metadata"]
    grace = rng.choice([None, 1, 30, 0, 0, 0])
    if grace == 0:
        # By force, so `node` can do nothing; another pod of the name must not start beside what
        # still runs.
        w.kubelets.kill_pod(pod["uid"])
    w.api.delete(POD, pod["namespace"], pod["name"], grace=grace)


def test_a_hundred_random_deletions_leave_no_record_without_its_pod() -> None:
    async def scenario() -> None:
        async with world(1) as w:
            rng = random.Random(1)  # noqa: S311
            w.nodeset(replicas=6, oversubscribeNode=True)
            await w.run(20)
            made = {pod["metadata"]["uid"] for pod in w.pods()}
            for number in range(DELETIONS):
                if number % 10 == 0:
                    # Others take a place, so that not every name comes back.
                    w.change("slinky", {"replicas": rng.randint(2, 6)})
                delete_one(w, rng)
                made |= {pod["metadata"]["uid"] for pod in w.pods()}
                await w.run(rng.choice([0.1, 1.0, 5.0]))
            w.change("slinky", {"replicas": 2})
            await w.settle()
            alive = {pod["metadata"]["uid"] for pod in w.pods()}
            records = {
                name: pod_facts(node.extra)
                for name, node in w.slurms["slurm", "slurm"].nodes.items()
            }
            assert {facts.pod_uid if facts else name for name, facts in records.items()} == alive
            assert len(alive) == 2
            # It was something to clear away.
            assert len(made) > DELETIONS / 2

    run(scenario())
