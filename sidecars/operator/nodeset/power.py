"""Applies the actions for Slurm's power saving."""

import logging

from sidecars.contract import extra
from sidecars.operator.nodeset.passes import Pass
from sidecars.policy.nodeset import actions
from sidecars.policy.reasons import EventReason
from sidecars.slurm.hostlists import compress
from sidecars.slurm.poller import Poller

log = logging.getLogger(__name__)


async def apply(
    this: Pass, poller: Poller, action: actions.CreateRecords | actions.PowerUp | actions.PowerDown
) -> None:
    """Apply one. Raises SlurmError."""
    meta, names = this.nodeset.metadata, compress(action.slurm_nodes)
    match action:
        case actions.CreateRecords(conf, slurm_nodes):
            owner = extra.PodFacts("", namespace=meta.namespace, nodeset_uid=meta.uid)
            await poller.create(conf, slurm_nodes, extra.encode(owner))
            log.info("NodeSet %s/%s: created the records of Slurm nodes %s", *this.key, names)
        case actions.PowerUp(slurm_nodes):
            await poller.power_up(slurm_nodes)
        case actions.PowerDown(slurm_nodes, jobs, because):
            await poller.power_down(slurm_nodes)
            await poller.start_now(jobs)
            if because:
                target = {**this.manifest, "apiVersion": "slinky.slurm.net/v1beta1", "kind": "NodeSet"}
                message = f"Powering down Slurm nodes {names}, whose jobs may start elsewhere: {because}"
                this.runtime.events.emit(target, "Warning", EventReason.NO_CAPACITY, "PowerDown", message)
            log.info("NodeSet %s/%s: powering down Slurm nodes %s", *this.key, names)
