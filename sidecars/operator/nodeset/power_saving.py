"""Applies the actions for Slurm's power saving."""

import contextlib
import logging
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

from sidecars.contract import extra
from sidecars.kube.namespaces import uid_of
from sidecars.operator.nodeset.passes import Pass
from sidecars.policy.nodeset import actions
from sidecars.policy.reasons import EventReason
from sidecars.slurm import protocol
from sidecars.slurm.errors import AuthenticationError, NotFound, Refused
from sidecars.slurm.hostlists import compress
from sidecars.slurm.poller import Poller

log = logging.getLogger(__name__)

PowerAction = (
    actions.Close
    | actions.Reopen
    | actions.CreateRecords
    | actions.PowerUp
    | actions.PowerDown
    | actions.PowerDownWhenIdle
)
"""What `apply` does."""

_HAS_BEGUN = 2104
"""ESLURM_RSV_ALREADY_STARTED: the reservation exists, and keeps its start."""

_EARLIER = 60
"""Seconds by which the reservation begins before now, whatever the clock of slurmctld. Slurm allows
ten minutes.
"""

_OUT_OF_ORDER = range(1000, 2000)
"""Slurm's errors of communication and of the daemons (slurm_errno.h), which say nothing about what
was requested.
"""


async def apply(
    this: Pass,
    poller: Poller,
    action: PowerAction,
) -> None:
    """Apply one. Raises SlurmError."""
    match action:
        case actions.Close():
            await _close(this, poller, action)
        case actions.Reopen(reservation):
            with contextlib.suppress(NotFound):
                await poller.reserve(reservation, protocol.delete_reservation(reservation))
            log.info("NodeSet %s/%s: deleted reservation %s", *this.key, reservation)
        case actions.CreateRecords(conf, slurm_nodes):
            await _create(this, poller, conf, slurm_nodes, await _owner(this))
        case actions.PowerUp(slurm_nodes):
            await poller.power_up(slurm_nodes)
        case actions.PowerDownWhenIdle(slurm_nodes):
            await poller.power_down_when_idle(slurm_nodes)
            log.info(
                "NodeSet %s/%s: powering down idle Slurm nodes %s", *this.key, compress(slurm_nodes)
            )
        case actions.PowerDown(slurm_nodes, jobs, because, close):
            names = compress(slurm_nodes)
            if close is not None:
                await _close(this, poller, close)
            await poller.power_down(slurm_nodes)
            await poller.start_now(jobs)
            if because:
                target = {
                    **this.manifest,
                    "apiVersion": "slinky.slurm.net/v1beta1",
                    "kind": "NodeSet",
                }
                message = (
                    f"Powering down Slurm nodes {names}, whose jobs may start elsewhere: {because}"
                )
                this.runtime.events.emit(
                    target, "Warning", EventReason.NO_CAPACITY, "PowerDown", message
                )
            log.info("NodeSet %s/%s: powering down Slurm nodes %s", *this.key, names)


async def _close(this: Pass, poller: Poller, action: actions.Close) -> None:
    """Save the reservation. One that exists keeps its start."""
    name = action.reservation
    save = partial(protocol.close_nodes, name, action.slurm_nodes, end_time=action.until)
    start = None if action.until is None else int(this.runtime.now()) - _EARLIER
    try:
        await poller.reserve(name, save(start_time=start))
    except Refused as error:
        if _HAS_BEGUN not in error.numbers:
            raise
        await poller.reserve(name, save(start_time=None))
    log.info(
        "NodeSet %s/%s: no job gets Slurm nodes %s, by reservation %s",
        *this.key,
        compress(action.slurm_nodes),
        name,
    )


async def replace_records(
    this: Pass, poller: Poller, action: actions.ReplaceRecords, unused: Iterable[str]
) -> None:
    """Replace those of the records that are still `unused`. Raises SlurmError.

    One is replaced first. If Slurm refuses it, it is created again as it was, and the others stay.
    """
    names, owner = list(unused), await _owner(this)
    for some in (names[:1], names[1:]):
        try:
            if some:
                await _create(this, poller, action.conf, some, owner, replacing=True)
        except Refused:
            for name in some:
                if name not in poller.nodes:
                    await poller.create(action.former[name], [name], owner)
            raise


async def _create(
    this: Pass,
    poller: Poller,
    conf: str,
    names: Iterable[str],
    owner: str,
    *,
    replacing: bool = False,
) -> None:
    """Create records, and remember that, or that Slurm refuses them."""
    records, decided = tuple(names), this.memory.decided
    try:
        await poller.create(conf, records, owner, replacing=replacing)
    except Refused as error:
        if (
            not isinstance(error, AuthenticationError)
            and error.numbers.isdisjoint(_OUT_OF_ORDER)
            and error.numbers
        ):
            refused = {**decided.refused_records, conf: (this.runtime.now(), str(error))}
            this.memory.decided = replace(decided, refused_records=refused)
        raise
    created = {**decided.created_records, **dict.fromkeys(records, conf)}
    this.memory.decided = replace(decided, created_records=created)
    log.info("NodeSet %s/%s: created the records of Slurm nodes %s", *this.key, compress(records))


async def _owner(this: Pass) -> str:
    meta = this.nodeset.metadata
    facts = extra.PodFacts("", namespace=meta.namespace, nodeset_uid=meta.uid)
    if this.nodeset.spec.node_records != "Keep":
        # By it the record is deleted if the NodeSet is gone.
        uid = await uid_of(this.runtime.client, meta.namespace)
        facts = replace(facts, namespace_uid=uid)
    return extra.encode(facts)
