"""What proves that something did not happen: a change behind it was acted on."""

import itertools

from prometheus_client import REGISTRY

from sidecars.custom_resources import NODESETS
from sidecars.kube import SECRETS
from tests.support.apiserver import WatchedNamespace, until

_numbers = itertools.count(11)


async def passed(world: WatchedNamespace, name: str = "slinky") -> None:
    """Wait until a whole pass over the NodeSet has begun and ended from here on."""
    patch = {"spec": {"revisionHistoryLimit": next(_numbers)}}
    generation = (await world.client.merge_patch(NODESETS, world.namespace, name, patch))[
        "metadata"
    ]["generation"]

    async def reported() -> bool:
        status = ((await world.get(NODESETS, name)) or {}).get("status") or {}
        return bool(status.get("observedGeneration", 0) >= generation)

    await until(f"a pass over NodeSet {name}", reported)


def passes(kind: str) -> float:
    """How many passes over resources of a kind have ended."""
    return REGISTRY.get_sample_value("slurm_operator_pass_seconds_count", {"kind": kind}) or 0.0


async def woken(world: WatchedNamespace, kind: str) -> None:
    """Wake what reads the cluster's key, whose value remains, and wait for a pass over a resource
    of the kind.
    """
    before = passes(kind)
    annotation = {"metadata": {"annotations": {"fence": str(next(_numbers))}}}
    await world.client.merge_patch(SECRETS, world.namespace, "slurm-auth-slurm", annotation)

    async def looked() -> bool:
        return passes(kind) > before

    await until(f"a pass over a {kind}", looked)
