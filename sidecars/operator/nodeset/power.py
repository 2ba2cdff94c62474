"""Applies the actions for Slurm's power saving."""

import logging
from collections.abc import Iterable
from dataclasses import replace

from sidecars.contract import extra
from sidecars.operator.nodeset.passes import Pass
from sidecars.policy.nodeset import actions
from sidecars.policy.reasons import EventReason
from sidecars.slurm.errors import AuthenticationError, Refused
from sidecars.slurm.hostlists import compress
from sidecars.slurm.poller import Poller

log = logging.getLogger(__name__)

_OUT_OF_ORDER = range(1000, 2000)
"""Slurm's errors of communication and of the daemons (slurm_errno.h), which say nothing about what was requested."""


async def apply(
    this: Pass,
    poller: Poller,
    action: actions.CreateRecords | actions.PowerUp | actions.PowerDown | actions.PowerDownWhenIdle,
) -> None:
    """Apply one. Raises SlurmError."""
    names = compress(action.slurm_nodes)
    match action:
        case actions.CreateRecords(conf, slurm_nodes):
            await _create(this, poller, conf, slurm_nodes)
        case actions.PowerUp(slurm_nodes):
            await poller.power_up(slurm_nodes)
        case actions.PowerDownWhenIdle(slurm_nodes):
            await poller.power_down_when_idle(slurm_nodes)
            log.info("NodeSet %s/%s: powering down Slurm nodes %s, to replace their records", *this.key, names)
        case actions.PowerDown(slurm_nodes, jobs, because):
            await poller.power_down(slurm_nodes)
            await poller.start_now(jobs)
            if because:
                target = {**this.manifest, "apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet"}
                message = f"Powering down Slurm nodes {names}, whose jobs may start elsewhere: {because}"
                this.runtime.events.emit(target, "Warning", EventReason.NO_CAPACITY, "PowerDown", message)
            log.info("NodeSet %s/%s: powering down Slurm nodes %s", *this.key, names)


async def replace_records(this: Pass, poller: Poller, action: actions.ReplaceRecords, unused: Iterable[str]) -> None:
    """Replace those of the records that are still `unused`. Raises SlurmError.

    One is replaced first. If Slurm refuses it, it is created again as it was, and the others stay.
    """
    names = list(unused)
    for some in (names[:1], names[1:]):
        for name in some:
            await poller.delete(name)
        try:
            if some:
                await _create(this, poller, action.conf, some)
        except Refused:
            for name in some:
                await poller.create(action.former[name], [name], _owner(this))
            raise


async def _create(this: Pass, poller: Poller, conf: str, names: Iterable[str]) -> None:
    """Create records, and remember that, or that Slurm refuses them."""
    wanted, decided = tuple(names), this.memory.decided
    try:
        await poller.create(conf, wanted, _owner(this))
    except Refused as error:
        if not isinstance(error, AuthenticationError) and error.numbers.isdisjoint(_OUT_OF_ORDER) and error.numbers:
            refused = {**decided.refused_records, conf: (this.runtime.now(), str(error))}
            this.memory.decided = replace(decided, refused_records=refused)
        raise
    created = {**decided.created_records, **dict.fromkeys(wanted, conf)}
    this.memory.decided = replace(decided, created_records=created)
    log.info("NodeSet %s/%s: created the records of Slurm nodes %s", *this.key, compress(wanted))


def _owner(this: Pass) -> str:
    meta = this.nodeset.metadata
    return extra.encode(extra.PodFacts("", namespace=meta.namespace, nodeset_uid=meta.uid))
