"""The records of Kubernetes nodes in Slurm: what they should be, and the requests that bring them
there.
"""

import logging
from collections import Counter
from collections.abc import Iterable, Mapping

from sidecars.bridge.claimed_devices import Devices
from sidecars.bridge.core import devices as of_drivers
from sidecars.bridge.core import nodes as core
from sidecars.bridge.core.manifests import Node
from sidecars.bridge.core.usage import UsageBook
from sidecars.bridge.slurm import SUBMIT_SECONDS, Slurm
from sidecars.contract import bridge, queued
from sidecars.kube import NODES, EventRecorder, Store
from sidecars.policy.reasons.bridge import BridgeEvent
from sidecars.slurm import protocol, states
from sidecars.slurm.errors import NotFound, Rejected, SlurmError
from sidecars.slurm.poller import Poller

log = logging.getLogger(__name__)

_MOST_KEYS = 64
"""Label keys in a node's Extra that waiting pods name and no node has, and of those that pods have
named before.
"""


_REFUSED_SECONDS = 10.0
"""Seconds after which a change is sent again that Slurm has refused."""

DEVICES_SECONDS = 60.0
"""Seconds for which a Kubernetes node may lack devices until its record is replaced by one without
them.
"""


class NodeRecords:
    """`store` has the nodes of the Kubernetes `cluster`, `poller` the records. `reserve`: what the
    pods of others on a node may request without a change of its record.
    """

    def __init__(
        self,
        slurm: Slurm,
        poller: Poller,
        store: Store[Node],
        usage: UsageBook,
        events: EventRecorder,
        devices: Devices,
        cluster: str = "",
        reserve: core.Usage = core.NO_USAGE,
    ) -> None:
        self._slurm = slurm
        self._poller = poller
        self._store = store
        self._usage = usage
        self._events = events
        self._devices = devices
        self._cluster = cluster
        self._reserve = reserve
        self._shown: dict[str, str] = {}
        self._refused: dict[tuple[type[core.Change], str], tuple[float, str]] = {}
        """The changes of records that Slurm has refused: when each is sent again, and Slurm's
        words.
        """
        self._lacking: dict[str, float] = {}
        """Since when a Kubernetes node lacks devices of its record, by the record's name."""
        self._replaceable: frozenset[str] = frozenset()
        """The records whose nodes have lacked them for long enough."""
        self._keys: frozenset[str] = frozenset()
        self._counts_from: dict[str, float] = {}
        """When the last change of a record was done for sure: its devices count in answers asked
        for later.
        """
        self.kube_nodes: dict[str, str] = {}
        """The Kubernetes nodes by the names of their records in Slurm."""
        self.slurm_nodes: dict[str, str] = {}
        """The names of the records that exist, by Kubernetes node."""
        self.foreign: frozenset[str] = frozenset()
        """The records of other Kubernetes clusters, by their names."""
        self.numbered: dict[str, tuple[of_drivers.Numbered, ...]] = {}
        """The devices that the records have by index, by their names."""

    def due(self) -> bool:
        """Return whether a change that Slurm has refused is to be sent again, or a record has
        lacked its devices for long enough.
        """
        again = any(self._poller.now() >= again_at for again_at, _ in self._refused.values())
        return again or self._without_devices() != self._replaceable

    def _without_devices(self) -> frozenset[str]:
        until = self._poller.now() - DEVICES_SECONDS
        return frozenset(name for name, since in self._lacking.items() if since <= until)

    def faults(self) -> dict[str, str]:
        """Return why no pod can be released to a Kubernetes node, "" if one can, by node."""
        known = self._poller.nodes
        unknown = {kube_node for name, kube_node in self.kube_nodes.items() if name not in known}
        found = {node.metadata.name: _fault(node) for node in self._store.values()}
        # How many CPUs the record has decides whether Slurm has given them twice.
        return {
            name: fault or (queued.UNKNOWN_RECORD.write(node=name) if name in unknown else "")
            for name, fault in found.items()
        }

    def cpus(self) -> dict[str, int]:
        """Return the CPUs of the records, by Kubernetes node."""
        known = self._poller.nodes
        return {
            kube_node: known[name].cpus
            for kube_node, name in self.slurm_nodes.items()
            if name in known
        }

    def sizes(self) -> object:
        """Return what decides whether a node can ever fit a job, of all records. It is equal as
        long as none of it changes.
        """
        return {
            name: (it.cpus, it.real_memory, it.gres, it.features, it.extra)
            for name, it in self._poller.nodes.items()
        }

    def states(self) -> Counter[str]:
        """Count the Kubernetes nodes that have a record in service, a drained one, none yet, or
        can't have one.
        """
        found = Counter({"in_service": 0, "drained": 0, "missing": 0, "refused": 0})
        refused = {
            name
            for name, problem in self._shown.items()
            if problem and self._store.get(None, name) is not None
        }
        found["refused"] = len(refused)
        for name in (
            name for name, kube_node in self.kube_nodes.items() if kube_node not in refused
        ):
            record = self._poller.nodes.get(name)
            if record is None:
                found["missing"] += 1
            else:
                found["drained" if states.is_drain(record.states) else "in_service"] += 1
        return found

    async def apply(
        self,
        keys: frozenset[str],
        occupied: Mapping[str, str],
        holding: frozenset[str] | None = frozenset(),
    ) -> None:
        """Bring the records up to date. `keys`: the node labels that waiting pods select by;
        `holding`: see `decide`.

        `occupied`: the Slurm nodes with a slurmd by their Kubernetes nodes, which have no other
        record: two would give away the same CPUs.
        """
        poller = self._poller
        known = {it.name: bridge.labels_of(it.extra) or {} for it in poller.nodes.values()}
        older = sorted(
            {*self._keys, *(key for labels in known.values() for key in labels)}
            - keys
            - {bridge.KUBE_NODE, bridge.CLUSTER}
        )
        # Any number of labels may be in a pod, but only those that a node has tell the nodes apart.
        carried = (
            {key for it in self._store.values() for key in it.metadata.labels} if keys else set()
        )
        others = sorted(keys - carried)
        self._keys = keys & carried | frozenset((*others[:_MOST_KEYS], *older[:_MOST_KEYS]))
        wanted: list[core.Wanted] = []
        refused_for: dict[str, str] = {}
        rules, devices = self._devices.rules, self._devices.by_node()
        for node in self._store.values():
            name = node.metadata.name
            found = core.wanted_of(
                node,
                self._usage.of(name).at_least(self._reserve),
                self._keys,
                rules,
                devices.get(name, ()),
                self._cluster,
            )
            if isinstance(found, core.Wanted) and name in occupied:
                found = (
                    f"it has the worker of Slurm node {occupied[name]}, and Slurm would give its "
                    f"CPUs away twice: remove the label {bridge.EXTERNAL_NODE}"
                )
            if isinstance(found, core.Wanted):
                wanted.append(found)
            else:
                refused_for[name] = found or f"it has no label {bridge.EXTERNAL_NODE}"
                self._show(name, found)
        # Of several with one name, the first has the record: the one that has it already.
        wanted.sort(key=lambda it: known.get(it.name, {}).get(bridge.KUBE_NODE) != it.kube_node)
        self.foreign = frozenset(
            name
            for name, it in poller.nodes.items()
            if core.is_of_another_cluster(it, self._cluster)
        )
        self.kube_nodes = {
            it.name: it.kube_node for it in reversed(wanted) if it.name not in self.foreign
        }
        asked = float("-inf") if poller.last_good is None else poller.last_good
        self._counts_from = {name: at for name, at in self._counts_from.items() if at >= asked}
        self.numbered = {
            it.name: core.numbered_of(it.extra)
            for it in poller.nodes.values()
            if it.extra and it.name not in self._counts_from
        }
        self.slurm_nodes = {
            kube_node: name for name, kube_node in self.kube_nodes.items() if name in poller.nodes
        }
        lacking = {
            it.name
            for it in wanted
            if (record := poller.nodes.get(it.name)) is not None and core.lacks_devices(it, record)
        }
        self._lacking = {name: self._lacking.get(name, poller.now()) for name in lacking}
        self._replaceable = self._without_devices()
        actions = core.decide(
            wanted,
            poller.nodes,
            self._keys,
            known=poller.known,
            holding=holding,
            refused=refused_for,
            lacking=lacking - self._replaceable,
            cluster=self._cluster,
        )
        conflicts = {it.kube_node: it.message for it in actions if isinstance(it, core.Conflict)}
        changes = {(type(it), _name(it)): it for it in actions if not isinstance(it, core.Conflict)}
        now = poller.now()
        refused = self._refused = {
            key: it for key, it in self._refused.items() if now < it[0] or key in changes
        }
        shown = {
            self.kube_nodes.get(name, name): text for (_, name), (_, text) in refused.items()
        } | conflicts
        for it in wanted:
            self._show(it.kube_node, shown.get(it.kube_node, ""))
        await self._send(
            [it for key, it in changes.items() if key not in refused or now >= refused[key][0]]
        )

    async def _send(self, changes: Iterable[core.Change]) -> None:
        sent = False
        for action in changes:
            sent, name = True, _name(action)
            # A job on the next record of this name must not get devices by the indices of the one
            # before.
            replaces = isinstance(action, core.Create | core.Delete)
            done = SUBMIT_SECONDS
            try:
                await self._one(action)
                done = 0.0
                self._refused.pop((type(action), name), None)
            except SlurmError as error:
                text = f"Slurm refuses to change the node's record: {error}"
                if isinstance(error, Rejected):
                    done = 0.0
                    self._refused[type(action), name] = self._poller.now() + _REFUSED_SECONDS, text
                self._show(self.kube_nodes.get(name, name), text)
            finally:
                if replaces:
                    self.numbered.pop(name, None)
                    self._counts_from[name] = self._poller.now() + done
        if sent:
            # Otherwise the next pass would send the same.
            await self._poller.poll()

    async def _one(self, action: core.Change) -> None:
        match action:
            case core.Create(wanted):
                await self._slurm.call(protocol.create_nodes(wanted.conf()))
                extra = wanted.record_extra(self._keys, wanted.devices)
                await self._slurm.call(protocol.update_nodes([wanted.name], extra=extra))
                log.info("Slurm node %s was created: %s", wanted.name, wanted.conf())
            case core.Delete(name):
                self._poller.expect_removal([name])
                try:
                    await self._slurm.call(protocol.delete_node(name))
                except NotFound:
                    return
                log.info("Slurm node %s was deleted", name)
            case core.SetExtra(name, extra):
                await self._slurm.call(protocol.update_nodes([name], extra=extra))
            case core.Drain(name, reason):
                await self._slurm.call(
                    protocol.update_nodes([name], state=["DRAIN"], reason=reason)
                )
                log.info("Slurm node %s is drained: %s", name, reason)
            case core.Undrain(name):
                await self._slurm.call(protocol.update_nodes([name], state=["UNDRAIN"]))
                log.info("the drain of Slurm node %s was ended", name)

    def _show(self, kube_node: str, message: str) -> None:
        """Log a problem of a node, and emit an Event of it, once."""
        if self._shown.get(kube_node, "") == message:
            return
        self._shown[kube_node] = message
        if message:
            log.warning("node %s: %s", kube_node, message)
            regarding = {
                "apiVersion": NODES.api_version,
                "kind": NODES.kind,
                "metadata": {"name": kube_node},
            }
            self._events.emit(regarding, "Warning", BridgeEvent.REFUSED, "Register", message)


def _name(action: core.Change) -> str:
    return action.wanted.name if isinstance(action, core.Create) else action.name


def _fault(node: Node) -> str:
    if node.spec.unschedulable:
        return queued.CORDONED.write(node=node.metadata.name)
    return "" if node.ready else queued.NOT_READY.write(node=node.metadata.name)
