"""The replicas that NodeSets need for the queue. How fast to follow is for a
HorizontalPodAutoscaler to decide.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from sidecars.autoscaling.ledger import Ledger
from sidecars.autoscaling.misfits import Misfits
from sidecars.autoscaling.plan import Autoscaling, Jobs
from sidecars.autoscaling.present import present, reserved
from sidecars.autoscaling.queue import Queue
from sidecars.autoscaling.records import (
    Behavior,
    Nodes,
    PresentNode,
    ScaledNodeSet,
    Settings,
    Shape,
    allocates_memory,
)
from sidecars.contract.reasons import is_for_the_end
from sidecars.exporter import families
from sidecars.exporter.declared import Declared
from sidecars.exporter.samples import Samples
from sidecars.slurm import protocol, states
from sidecars.slurm.carrier import Carrier
from sidecars.slurm.errors import ServerFault, Unreachable
from sidecars.slurm.records import Node, Partition, QueuedJobs, Reservation
from sidecars.slurm.usage import License

WITHIN = 120.0
"""Seconds for each answer."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """What a decision needs, all read in one collection."""

    queue: QueuedJobs
    nodes: tuple[Node, ...]
    partitions: tuple[Partition, ...]
    reservations: tuple[Reservation, ...]
    select_type_parameters: tuple[str, ...] = ()
    """What Slurm allocates; () if it doesn't say so: Slurm's default is assumed, with which no job
    gets too little.
    """
    licenses: tuple[License, ...] = ()
    """Read while a pending job requests one."""


async def read(client: Carrier, former: Cluster | None) -> Cluster:
    """Read everything; only jobs that did not change are the same objects. Raises SlurmError."""
    select_type_parameters = await _select_type_parameters(client)
    partitions = await client.call(protocol.get_partitions(), timeout=WITHIN)
    reservations = await client.call(protocol.get_reservations(), timeout=WITHIN)
    request = protocol.get_queue(None if former is None else former.queue)
    queue = await client.call(request, timeout=WITHIN)
    if queue is None and former is not None:
        queue = former.queue
    licenses: tuple[License, ...] = ()
    if queue is not None and any(it.pending and it.pending.request.licenses for it in queue.jobs):
        licenses = await client.call(protocol.get_licenses(), timeout=WITHIN)
    # The nodes last: a job that has started since counts as pending, and its node as used. It is
    # one node too many.
    nodes = await client.call(protocol.get_nodes(), timeout=WITHIN)
    if queue is None or nodes is None:
        raise Unreachable(
            str(request), "it reports no change in answer to a request for everything"
        )
    return Cluster(queue, nodes.nodes, partitions, reservations, select_type_parameters, licenses)


async def _select_type_parameters(client: Carrier) -> tuple[str, ...]:
    try:
        return await client.call(protocol.select_type_parameters(), timeout=WITHIN)
    except ServerFault as error:
        if error.status == protocol.STATUS_NO_SUCH_ENDPOINT:
            # Slurm 25.11.
            return ()
        raise


class Wanted:
    """The decisions for some NodeSets, one after the other."""

    def __init__(self, nodesets: Sequence[Declared]) -> None:
        self._nodesets = nodesets
        self._shapes: dict[str, tuple[Shape, int]] = {}
        """Of a node that has registered, with its weight."""
        self._settings = Settings()
        self._queue, self._autoscaling = Queue(), Autoscaling(Settings())
        self._ledger, self._misfits = Ledger(), Misfits()
        self.replicas: Mapping[str, int] = {}
        """The last decision. A NodeSet of which nothing is known has none."""

    def decide(self, cluster: Cluster, samples: Samples, now: float) -> None:
        """Decide, and add the samples."""
        settings = Settings.of(
            cluster.partitions, memory=allocates_memory(cluster.select_type_parameters)
        )
        if settings != self._settings or self._queue.worn:
            self._settings, self._autoscaling = settings, Autoscaling(settings)
            self._queue = Queue((), settings)
        self._queue.replace(cluster.queue)
        begins = reserved(cluster.reservations, now)
        features = {it.feature: it.name for it in self._nodesets}
        nodes = [
            present(
                node,
                next((features[it] for it in node.features if it in features), ""),
                begins.get(node.name),
            )
            for node in cluster.nodes
            if not _is_leaving(node)
        ]
        nodesets = [self._scaled(it, nodes, cluster.partitions) for it in self._nodesets]
        jobs = Jobs(self._queue, now, {it.name: it.free for it in cluster.licenses})
        self._queue.refuse(self._ledger.refused(now))
        self._queue.avoid(self._misfits.avoided(now))
        plan = partial(self._autoscaling.plan, nodesets, jobs, Nodes(nodes, now), {}, now)
        found = plan()
        if self._misfits.observe(found, self._queue, {it.name: it.max for it in nodesets}, now):
            self._queue.avoid(self._misfits.avoided(now))
            found = plan()
        self._ledger.observe(found.startable, self._queue, now, settings.patience)
        known = [it.name for it in nodesets if it.shape is not None]
        self.replicas = {name: min(found.wanted[name].replicas, self._most(name)) for name in known}
        for name, replicas in self.replicas.items():
            samples.add(families.WANTED_REPLICAS, replicas, name)
        reasons: Counter[str] = Counter()
        for it in found.excluded:
            reasons[it.reason.value] += it.count
        for reason, count in reasons.items():
            samples.add(families.NOT_COUNTED, count, reason)

    def _most(self, name: str) -> int:
        return next(it.max for it in self._nodesets if it.name == name)

    def _scaled(
        self, nodeset: Declared, nodes: Sequence[PresentNode], partitions: Sequence[Partition]
    ) -> ScaledNodeSet:
        # Pods that have not registered are not known here. They are wanted as long as the jobs for
        # them wait.
        ours = [it for it in nodes if it.nodeset == nodeset.name]
        if ours:
            self._shapes[nodeset.name] = ours[0].shape, ours[0].weight
        shape, weight = self._shapes.get(nodeset.name, (nodeset.shape, 1))
        named = {
            it.name
            for it in partitions
            if it.node_sets == "ALL" or nodeset.feature in it.node_sets.split(",")
        }
        return ScaledNodeSet(
            nodeset.name,
            shape,
            frozenset(named.union(*(it.partitions for it in ours))),
            replicas=len(ours),
            min=nodeset.min,
            max=nodeset.max,
            price=nodeset.price,
            weight=weight,
            behavior=Behavior(
                max_step_up=nodeset.max,
                max_step_down=max(nodeset.max, len(ours)),
                idle_seconds=nodeset.idle_seconds,
                cool_down=0.0,
            ),
        )


def _is_leaving(node: Node) -> bool:
    """Return whether the node's pod is to be deleted, and no job is on it.

    Such a node is not idle, and would be wanted for as long as its pod takes to end. An autoscaler
    that has just removed the pod would add another.
    """
    unavailable = states.is_drain(node.states) or states.is_down(node.states)
    return unavailable and not states.is_busy(node.states) and is_for_the_end(node.reason)
