"""Two Slurm clusters with one slurmdbd: what one of them declares changes nothing of the other."""

import asyncio
import json
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from sidecars.operator.accounts import effects
from sidecars.operator.accounts.core.declared import parse
from sidecars.operator.accounts.core.live import Live
from sidecars.operator.accounts.core.plan import plan
from tests.cluster.waiting import until
from tests.support.real import daemons, ports
from tests.support.real.daemons import ALL, Daemons
from tests.support.real.harness import WILL_COME

if TYPE_CHECKING:
    from sidecars.operator.runtime.clusters import Cluster

PORT = ports.SHARED_SLURMDBD
FIRST, SECOND = "outside", "second"
"""The first has the name that all clusters of `Daemons` have."""
PRUNED = json.dumps({"prune": True})
Created = frozenset[str]


def declaration(number: int) -> str:
    """Alice in account physics, with this number as share and limits."""
    accounts = {"physics": {"fairshare": number, "limits": {"MaxJobs": number}}}
    users = {"alice": {"accounts": ["physics"], "limits": {"MaxSubmitJobs": number}}}
    return json.dumps({"accounts": accounts, "users": users})


@pytest.fixture
def clusters(tmp_path: Path) -> Iterator[dict[str, Daemons]]:
    """Both by their names."""
    lines = f"{ALL}{daemons.accounting(PORT)}"
    with (
        closing(Daemons(tmp_path / FIRST, PORT, lines)) as first,
        closing(Daemons(tmp_path / SECOND, PORT + 10, lines)) as second,
    ):
        conf = second.files["slurm.conf"].replace(FIRST.encode(), SECOND.encode())
        second.files |= first.files | {"slurm.conf": conf}
        second.key = first.key
        first.slurmdbd()
        for it in (first, second):
            it.slurmctld()
            it.slurmrestd(plugins="slurmctld,slurmdbd")
            until(lambda it=it: _registered(it), "slurmctld to register", WILL_COME, it.log)  # type: ignore[misc]
        yield {FIRST: first, SECOND: second}


def _registered(of: Daemons) -> bool:
    words = ("sacctmgr", "-nP", "show", "cluster", "format=cluster,controlport")
    shown = of.run("slurmctld", *words).stdout.split()
    return any(it.endswith(f"|{of.port('slurmctld')}") for it in shown)


async def settle(
    of: Daemons, name: str, text: str, created: Created = frozenset()
) -> tuple[Created, Live]:
    """Have the operator of a cluster apply a declaration. What counts as created then, and what
    slurmdbd has.
    """
    async with of.client() as client:
        cluster = cast("Cluster", SimpleNamespace(client=client))
        for _ in range(5):
            live = await effects.read(cluster, name, time.time())
            step = plan(parse(text), live, created)
            if not step.changes:
                return created, live
            created = step.created(created)
            refused, _ = await effects.apply(cluster, step.changes)
            assert refused == []
    raise AssertionError(step.changes)


def test_two_clusters_declare_the_same_names_and_neither_loses_any_by_the_other(
    clusters: dict[str, Daemons],
) -> None:
    async def declare(number: int, name: str) -> tuple[Created, Live]:
        return await settle(clusters[name], name, declaration(number))

    async def scenario() -> None:
        await declare(5, FIRST)
        created, _ = await declare(7, SECOND)
        found = {FIRST: (await declare(5, FIRST))[1], SECOND: (await declare(7, SECOND))[1]}
        for name, number in ((FIRST, 5), (SECOND, 7)):
            here = found[name].here
            account, user = here["physics", ""], here["physics", "alice"]
            assert (account.cluster, user.cluster) == (name, name)
            assert (account.shares, account.limits["MaxJobs"]) == (number, number)
            assert user.limits["MaxSubmitJobs"] == number
        _, left = await settle(clusters[SECOND], SECOND, PRUNED, created)
        assert ("physics", "alice") not in left.here
        _, mine = await settle(clusters[FIRST], FIRST, declaration(5))
        assert mine.here == found[FIRST].here

    asyncio.run(scenario())
