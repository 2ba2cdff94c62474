"""Long runs of the bridge with a real slurmctld, kube-apiserver and kube-scheduler. The kubelets
are simulated.

`python -m tests.support.bridge_run --minutes N --seed N`: slurmctld that loses its state, then a
random run. It needs root, as `daemons` does.
"""

import argparse
import asyncio
import contextlib
import logging
import random
from collections.abc import Iterable
from pathlib import Path
from tempfile import TemporaryDirectory

from sidecars.contract import bridge
from sidecars.kube import PODS
from sidecars.slurm import protocol
from tests.support.apiserver import until
from tests.support.bridge_disturbances import CPUS, KUBE_NODES, Run, prepared
from tests.support.bridge_world import control_plane
from tests.support.real import ports
from tests.support.real.external_slurm import lose_saved

log = logging.getLogger(__name__)


async def lose_state(run: Run) -> None:
    """slurmctld begins again without a state, and gives the ids of lost jobs to new ones. `run` is
    watched, and new.

    The pods of the lost jobs run on, and no new one joins them. Raises AssertionError.
    """
    old = [*await run.create([CPUS]), *await run.create([CPUS])]

    async def begun() -> bool:
        return _bound(run, old) == set(old)

    await until("two of three nodes to be full", begun)
    waiting = await run.create([CPUS, CPUS])

    async def labelled() -> bool:
        return set(waiting) <= run.stays.pods.keys() and all(_labels(run, waiting).values())

    await until("a job that waits", labelled)
    await asyncio.to_thread(run.slurm.kill, "slurmctld")
    lose_saved(run.slurm)
    run.slurm.start("slurmctld")
    await run.recorded()

    async def unknown() -> bool:
        return {_reason(run, it) for it in (*old, *waiting)} == {"JobUnknown"}

    await until("all pods to show that their jobs are lost", unknown)
    new = [name for _ in KUBE_NODES for name in await run.create([CPUS])]

    async def one() -> bool:
        others = set(new) - _bound(run, new)
        return len(others) == 2 and {_reason(run, it) for it in others} == {"NodeNotFree"}

    await until("the node that is free to get one of the new pods, and the others to wait", one)
    assert _bound(run, old) == set(old)
    assert set(_labels(run, old).values()) < set(_labels(run, new).values())
    cancelled = next(
        name for name, job in _labels(run, new).items() if job == _labels(run, old)[old[0]]
    )
    await run.rest.call(protocol.cancel_job(int(_labels(run, old)[old[0]])))

    async def gone() -> bool:
        return cancelled not in run.stays.pods

    await until("the pod of the cancelled job to be gone", gone)
    assert _bound(run, old) == set(old)
    assert set(waiting) <= run.stays.pods.keys()
    for name in (*old, *waiting):
        await run.client.delete(PODS, run.namespace, name)

    async def all_of_them() -> bool:
        return _bound(run, new) == set(new) - {cancelled}

    await until("the other pods to be bound when those of the lost jobs are gone", all_of_them)


def _labels(run: Run, names: Iterable[str]) -> dict[str, str]:
    """The job ids on the pods."""
    return {
        name: run.stays.pods[name]["metadata"].get("labels", {}).get(bridge.JOB_LABEL, "")
        for name in names
    }


def _reason(run: Run, name: str) -> str:
    """That of the condition; "" without one."""
    conditions = run.stays.pods.get(name, {}).get("status", {}).get("conditions", ())
    return next((str(it["reason"]) for it in conditions if it["type"] == bridge.CONDITION), "")


def _bound(run: Run, names: Iterable[str]) -> set[str]:
    """Those of them that have a node, and are not being deleted."""
    found = {name: run.stays.pods[name] for name in names if name in run.stays.pods}
    return {
        it
        for it, pod in found.items()
        if pod["spec"].get("nodeName") and "deletionTimestamp" not in pod["metadata"]
    }


async def _main(minutes: float, outage: float, seed: int, keep: Path | None) -> None:
    with contextlib.ExitStack() as stack:
        folder = keep or Path(stack.enter_context(TemporaryDirectory()))
        folder.mkdir(parents=True, exist_ok=True)
        plane = stack.enter_context(control_plane(folder / "kubernetes"))
        lost = folder / "lost"
        lost.mkdir()
        async with prepared(lost, plane, ports.BRIDGE_SOAK, seed) as run, run.watched(finishes=0):
            await lose_state(run)
        log.info("slurmctld has lost its state, and no pod was deleted for it")
        async with prepared(folder, plane, ports.BRIDGE_SOAK, seed) as run:
            await run.run(minutes * 60, outage)
            print(dict(run.done), dict(run.stays.counts))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tests.support.bridge_run")
    parser.add_argument("--minutes", type=float, default=30)
    parser.add_argument(
        "--outage", type=float, default=600, help="seconds for which slurmctld is gone in the end"
    )
    parser.add_argument("--seed", type=int, default=None)
    parser.add_argument(
        "--keep", type=Path, help="an empty folder for the logs, instead of one that is deleted"
    )
    given = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    chosen = random.SystemRandom().randrange(2**32) if given.seed is None else given.seed
    log.info("seed %d", chosen)
    asyncio.run(_main(given.minutes, given.outage, chosen, given.keep))
