"""Reads what a decision needs, and steps the decision again until it needs nothing more."""

import logging
from functools import partial

from sidecars import objects
from sidecars.kube import NODES, PODS, KubeError, NotFound
from sidecars.operator.nodeset.observe import with_answers
from sidecars.operator.nodeset.passes import Pass
from sidecars.operator.runtime import bulk
from sidecars.operator.runtime.clusters import Cluster
from sidecars.operator.runtime.deadlines import refresh_deadlines
from sidecars.policy.nodeset import needs
from sidecars.policy.nodeset.decide import Decision, decide
from sidecars.policy.nodeset.needs import Answer, Need
from sidecars.policy.nodeset.observation import is_out_of_service, slurmctld_start
from sidecars.policy.nodeset.records import Desired, Observed
from sidecars.slurm import protocol
from sidecars.slurm.errors import NotFound as UnknownToSlurm
from sidecars.slurm.errors import NotYet, Refused, ServerFault, SlurmError
from sidecars.slurm.pending import PATIENCE

log = logging.getLogger(__name__)

MAX_READS = 4
"""How often a pass reads what its decision needs: one answer may show that another is needed. Each
takes `PATIENCE` at most.
"""


async def decided(this: Pass, desired: Desired, observed: Observed) -> tuple[Decision, Observed]:
    """Return the decision, and the observation with the answers that it is based on."""
    reads = 0
    while True:
        decision = decide(desired, observed, this.memory.decided, this.runtime.now())
        if not decision.needs:
            return decision, observed
        if reads == 2 * MAX_READS:
            # Nothing is awaited here: another step would stop the whole operator.
            raise RuntimeError(
                f"NodeSet {this.key[0]}/{this.key[1]}: its decision still needs {decision.needs}"
            )
        # After the last read everything else counts as pending, of which nothing unsafe follows.
        answers = (
            await _read(this, decision.needs)
            if reads < MAX_READS
            else [needs.Pending()] * len(decision.needs)
        )
        observed = with_answers(this, observed, dict(zip(decision.needs, answers, strict=True)))
        reads += 1


async def _read(this: Pass, needs: tuple[Need, ...]) -> list[Answer]:
    answers = await bulk.each(partial(_answer, this, need) for need in needs)
    return [answer if isinstance(answer, Answer) else as_answer(answer) for answer in answers]


def as_answer(error: Exception) -> Answer:
    """Return what a failed read or write means for a decision. Raises what is neither Kubernetes'
    fault nor Slurm's.
    """
    if not isinstance(error, KubeError | SlurmError):
        raise error
    if isinstance(error, NotYet):
        return needs.Pending(str(error))
    log.warning("%s: %s", "Slurm" if isinstance(error, SlurmError) else "Kubernetes", error)
    return needs.Failed(
        str(error), refused=isinstance(error, Refused) and not isinstance(error, ServerFault)
    )


async def _answer(this: Pass, need: Need) -> Answer:
    """Answer one need. Raises KubeError and SlurmError."""
    match need:
        case needs.IsLost(kube_node):
            return needs.Known(await _is_lost(this, kube_node))
        case needs.IsHidden(pod):
            return needs.Known(await _is_hidden(this, pod))
    cluster = this.cluster
    if cluster is None:
        return needs.Failed("the operator isn't connected to Slurm")
    poller = cluster.poller
    match need:
        case needs.Jobs():
            jobs = await poller.jobs()
            return needs.Known(needs.JobList(jobs.value.jobs, jobs.asked_at), poller.now())
        case needs.Deadlines(busy):
            complete = await refresh_deadlines(this.runtime, this.controller, cluster, busy)
            return needs.Known(True) if complete else needs.Pending()
        case needs.Partitions(since):
            return needs.Known(await poller.partitions(since), poller.now())
        case needs.Reservations():
            return needs.Known(await poller.reservations(), poller.now())
        case needs.NodeRecords(since):
            await poller.nodes_since(since)
            return needs.Known(True)
        case needs.IsAbsent(slurm_node):
            return needs.Known(await _is_absent(cluster, slurm_node))
        case needs.SlurmctldStart():
            return await _slurmctld_start(this, cluster)


async def _is_lost(this: Pass, kube_node: str) -> bool:
    """Read live whether the node is lost: the cache may be behind, and a deletion by force can't be
    undone.
    """
    try:
        return is_out_of_service(
            await this.runtime.client.get(NODES, None, kube_node, objects.Node)
        )
    except NotFound:
        return True


async def _is_hidden(this: Pass, name: str) -> bool:
    """Read live whether the pod exists: the watch may not show it yet, and its slurmd may run."""
    try:
        pod = await this.runtime.client.get(PODS, this.nodeset.namespace, name, objects.Pod)
    except NotFound:
        return False
    cached = this.runtime.caches.pods.store.get(this.nodeset.namespace, name)
    return cached is None or cached.metadata.uid != pod.metadata.uid


async def _is_absent(cluster: Cluster, slurm_node: str) -> bool:
    """Ask whether Slurm lacks the node. Its slurmd may have registered since the last poll, as all
    do again when slurmctld has lost its state.
    """
    if cluster.poller.trouble:
        return False
    try:
        await cluster.client.call(protocol.get_node(slurm_node), timeout=PATIENCE)
    except UnknownToSlurm:
        return True
    return False


async def _slurmctld_start(this: Pass, cluster: Cluster) -> Answer:
    """Read when slurmctld started. Kubernetes shows it for the operator's own. An external one
    reports it, and counts a reconfigure as a start.
    """
    manifest = this.runtime.caches.controllers.store.get(*this.controller)
    spec = manifest.get("spec") or {} if manifest is not None else {}
    if spec.get("external"):
        return await _reported_start(cluster)
    running = this.runtime.caches.slurmctld_pods.store.by("controller", this.controller)
    # Live: a cached pod may be older than the list of nodes.
    pods = [
        await this.runtime.client.get(PODS, pod.metadata.namespace, pod.metadata.name, objects.Pod)
        for pod in running
    ]
    found = slurmctld_start(pods, standbys=bool((spec.get("ha") or {}).get("enabled")))
    return (
        needs.Failed("which slurmctld leads, and since when, is unknown")
        if found is None
        else needs.Known(found)
    )


async def _reported_start(cluster: Cluster) -> Answer:
    try:
        found = await cluster.client.call(protocol.slurmctld_start(), timeout=PATIENCE)
    except ServerFault as error:
        if error.status == protocol.STATUS_NO_SUCH_ENDPOINT:
            # Slurm 25.11.
            return needs.Known(None)
        raise
    return needs.Known(found) if found else needs.Failed("slurmctld doesn't report when it started")
