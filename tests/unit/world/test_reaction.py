"""How soon the operator sees what has happened, in virtual time."""

from tests.world.loop import run
from tests.world.world import NODESET, World, world

WORKERS = 6


async def until_counted(w: World, field: str, count: int) -> float:
    """Wait for a count in the NodeSet's status; the seconds that took."""

    def look() -> bool:
        return ((w.api.get(NODESET, "slurm", "slinky") or {}).get("status") or {}).get(field) == count

    return await w.until(f"{field} is {count}", look)


def test_a_worker_that_became_ready_counts_as_idle_without_waiting_for_the_next_poll() -> None:
    async def scenario() -> None:
        async with world(1) as w:
            w.nodeset(replicas=0)
            await w.run(10)
            took = []
            for count in range(1, WORKERS + 1):
                w.change("slinky", {"replicas": count})
                await until_counted(w, "readyReplicas", count)
                took.append(await until_counted(w, "slurmIdle", count))
            assert max(took) <= 0.25

    run(scenario())
