"""Reads slurmdbd, applies changes to it, and stores what was created, in a ConfigMap of the
Controller.
"""

import asyncio
import logging
from collections.abc import Sequence

from sidecars.kube import Manifest
from sidecars.operator.accounts.core.live import Live
from sidecars.operator.accounts.core.record import Record, decode, encode
from sidecars.operator.accounts.core.report import listed
from sidecars.operator.accounts.core.step import Change
from sidecars.operator.runtime import workload
from sidecars.operator.runtime.clusters import Cluster
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.runtime.waking import key_of
from sidecars.slurm import protocol
from sidecars.slurm.errors import NotFound, Rejected, SlurmError
from sidecars.slurm.protocol import accounting
from sidecars.workloads import config_maps, names
from sidecars.workloads.resources import Controller

log = logging.getLogger(__name__)


async def read(cluster: Cluster, name: str, now: float) -> Live:
    """Read what slurmdbd and slurmctld have, for the Slurm cluster of that name. Raises
    SlurmError.
    """
    call = cluster.client.call
    accounts, users, qos, associations, tres, reservations = await asyncio.gather(
        call(accounting.get_accounts()),
        call(accounting.get_users()),
        call(accounting.get_qos()),
        call(accounting.get_associations()),
        call(accounting.get_tres()),
        call(protocol.get_reservations()),
    )
    return Live(
        cluster=name,
        accounts={it.name: it for it in accounts},
        users={it.name: it for it in users},
        qos={it.name: it for it in qos},
        associations=associations,
        tres=tres,
        reservations={it.name: it for it in reservations},
        now=now,
    )


def present_users(runtime: Runtime, controller: Controller) -> frozenset[str]:
    """Return the names of the users that pods have, beside those of the images."""
    live = runtime.caches.own_config_maps.store.get(
        controller.namespace, names.users(controller.name)
    )
    lines = ((live or {}).get("data") or {}).get("passwd", "").splitlines()
    return frozenset(line.partition(":")[0] for line in lines)


async def look_up_users(cluster: Cluster, key: Key, users: Sequence[str]) -> None:
    """Have slurmctld look up these users of the operating system, whose accounts it knows already.

    Asked once: should it not answer, it looks them up within an hour on its own.
    """
    try:
        await cluster.client.call(protocol.reconfigure(), timeout=protocol.RECONFIGURE_SECONDS)
    except SlurmError as error:
        log.warning(
            "Controller %s/%s: users %s: no answer to the reconfigure: %s",
            *key,
            listed(users),
            error,
        )
    else:
        log.info(
            "Controller %s/%s: slurmctld was reconfigured, so that it looks up users %s",
            *key,
            listed(users),
        )


async def apply(cluster: Cluster, changes: Sequence[Change]) -> tuple[list[str], set[str]]:
    """Send all of them. What Slurm refuses, and what turned out to exist. Raises SlurmError without
    an answer.
    """
    refused: list[str] = []
    others: set[str] = set()
    for change in changes:
        try:
            done = await cluster.client.call(change.request)
        except (NotFound, Rejected) as error:
            refused.append(f"{change.text}: {error}")
            others.update(change.creates)
        else:
            if done is False:
                # Someone else was faster.
                others.update(change.creates)
    return refused, others


def recorded(runtime: Runtime, controller: Controller) -> Record:
    """Read the record of what was created from declarations. Without the ConfigMap it is empty, so
    that nothing is deleted.
    """
    live = runtime.caches.own_config_maps.store.get(
        controller.namespace, names.created_accounts(controller.name)
    )
    return decode((live or {}).get("data") or {})


async def store(
    runtime: Runtime, manifest: Manifest, controller: Controller, record: Record
) -> None:
    """Store it. Raises NotUsableError and KubeError."""
    rendered = config_maps.created_accounts(controller, encode(record))
    await workload.apply_all(runtime, manifest, "Controller", lambda: [rendered])
    log.debug("Controller %s/%s: stored what was created in slurmdbd", *key_of(manifest))
