"""When the jobs of a Slurm cluster end, read for all of its NodeSets and worker pods together."""

import logging
from collections.abc import Iterable

from sidecars.operator.runtime.clusters import Cluster
from sidecars.operator.runtime.pods import wake_pods
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy import podstate
from sidecars.slurm.errors import NotYet, SlurmError

log = logging.getLogger(__name__)

DEADLINES_FOR = 30.0
"""Seconds for which the jobs' ends are not read again: on a large cluster the list of jobs is dear.
"""


async def refresh_deadlines(
    runtime: Runtime, controller: Key, cluster: Cluster, busy: Iterable[str] = ()
) -> bool:
    """Read when the jobs end, unless that was done a short while ago, and have the pods show it.

    `busy`: nodes whose deadline is needed, so that a job that has begun since is not overlooked.
    Returns False while the jobs are still being read; all NodeSets and pods are queued again when
    they have been read.
    """
    now = runtime.now()
    if 0 <= now - cluster.deadlines_at < DEADLINES_FOR and cluster.deadlines.keys() >= set(busy):
        return True
    try:
        deadlines = podstate.deadlines((await cluster.poller.jobs()).value.jobs)
    except NotYet:
        return False
    except SlurmError as error:
        log.warning("Slurm cluster %s/%s: the jobs can't be read: %s", *controller, error)
        return True
    before, cluster.deadlines = cluster.deadlines, deadlines
    cluster.deadlines_at = runtime.now()
    changed = {
        name
        for name in before.keys() | cluster.deadlines.keys()
        if before.get(name) != cluster.deadlines.get(name)
    }
    wake_pods(runtime, controller, changed)
    return True
