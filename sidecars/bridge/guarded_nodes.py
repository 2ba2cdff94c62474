"""The nodes with a slurmd: what their worker pods are, what is written on them, and drains of their
nodes.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import msgspec

from sidecars.bridge.core import guards as core
from sidecars.bridge.core.alone import totals
from sidecars.bridge.core.nodes import Drain, Undrain
from sidecars.bridge.core.pods import annotation_patch
from sidecars.contract import bridge, extra
from sidecars.kube import PODS, Client, Conflict, Invalid, KubeError, Malformed, NotFound, Store
from sidecars.slurm import protocol
from sidecars.slurm.errors import SlurmError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecars.bridge.core.manifests import Pod
    from sidecars.bridge.core.records import Kind, View
    from sidecars.bridge.slurm import Slurm
    from sidecars.slurm.poller import Poller

log = logging.getLogger(__name__)

SILENT_SECONDS = 20.0
"""Seconds for which a slurmd has to be NOT_RESPONDING until it counts. Slurm shows each one as such
for a second or so after a change of its state.
"""


class Guards:
    """`poller` has the records of the nodes, `store` all pods."""

    def __init__(self, kube: Client, slurm: Slurm, poller: Poller, store: Store[Pod]) -> None:
        self._kube = kube
        self._slurm = slurm
        self._poller = poller
        self._store = store
        self._facts: dict[str, tuple[str, extra.PodFacts | None]] = {}
        self._written: dict[str, tuple[str, str]] = {}
        """What was written on a worker, after the version that it had, by its uid."""
        self._silent: dict[str, float] = {}
        """Since when the Slurm nodes have been NOT_RESPONDING."""
        self.workers: Mapping[str, core.Worker] = {}
        """By Slurm node."""
        self.occupied: Mapping[str, str] = {}
        """The Slurm nodes of all workers by Kubernetes node, also of those whose Epilog doesn't
        wait for pods.
        """
        self.kinds: Mapping[str, Kind] | None = None
        """What the pods of each partition get; None: not known."""

    @property
    def kube_nodes(self) -> dict[str, str]:
        """The Kubernetes nodes by the names of their Slurm nodes."""
        return {name: it.kube_node for name, it in self.workers.items()}

    @property
    def slurm_nodes(self) -> dict[str, str]:
        """The Slurm nodes by Kubernetes node."""
        return {it.kube_node: name for name, it in self.workers.items()}

    @property
    def cpus(self) -> dict[str, int]:
        """What the Slurm nodes have, by Kubernetes node."""
        known = self._poller.nodes
        return {
            it.kube_node: known[name].cpus for name, it in self.workers.items() if name in known
        }

    @property
    def gres(self) -> dict[str, Mapping[str, int]]:
        """How many of each GRES the Slurm nodes have, by Kubernetes node. None if its record can't
        be read.
        """
        known = self._poller.nodes
        found = {
            it.kube_node: totals(known[name].gres)
            for name, it in self.workers.items()
            if name in known
        }
        return {kube_node: counts for kube_node, counts in found.items() if counts is not None}

    def look(self) -> None:
        """Take in what Slurm and Kubernetes say now."""
        nodes = self._poller.nodes
        found: dict[str, core.Worker] = {}
        occupied: dict[str, str] = {}
        for name, record in nodes.items():
            if "EXTERNAL" in record.states:
                continue
            known = self._facts.get(name)
            if known is None or known[0] != record.extra:
                known = self._facts[name] = record.extra, extra.pod_facts(record.extra)
            facts = known[1]
            pod = self._store.get(facts.namespace, facts.pod) if facts is not None else None
            if kube_node := core.kube_node_of(facts, pod):
                occupied[kube_node] = name
            worker = core.worker_of(record, facts, pod)
            if worker is not None:
                found[name] = worker
        self._facts = {name: it for name, it in self._facts.items() if name in nodes}
        self.workers, self.occupied = found, occupied
        if self._poller.known:
            # Otherwise the last answer counts: a job of the wrong kind gets no pod, whatever its
            # node is.
            self.kinds = core.kinds(nodes.values(), found)

    async def apply(self, view: View) -> bool:
        """Write on the workers, and drain or undrain their nodes. Whether anything was to be done,
        or soon is.
        """
        records = self._poller.nodes if self._poller.known else {}
        now = self._poller.now()
        if self._poller.known:
            # Otherwise those that were silent count as silent still.
            self._silent = {
                name: self._silent.get(name, now)
                for name, it in records.items()
                if "NOT_RESPONDING" in it.states
            }
        silent = {name for name, since in self._silent.items() if now - since >= SILENT_SECONDS}
        actions = core.decide(view, self.workers.values(), records, silent)
        drains = False
        for action in actions:
            try:
                match action:
                    case core.Gone(worker, text):
                        await self._write(worker, text)
                    case Drain(name, reason):
                        drains = True
                        await self._slurm.call(
                            protocol.update_nodes([name], state=["DRAIN"], reason=reason or None)
                        )
                        log.warning(
                            "Slurm node %s is drained: %s", name, reason or "its reason remains"
                        )
                    case Undrain(name):
                        drains = True
                        await self._slurm.call(protocol.update_nodes([name], state=["UNDRAIN"]))
                        log.info("the drain of Slurm node %s was ended", name)
                    case core.Resume(name):
                        drains = True
                        await self._slurm.call(protocol.update_nodes([name], state=["RESUME"]))
                        log.info("Slurm node %s was DOWN, and is in service again", name)
            except (NotFound, Conflict, Invalid) as error:
                # The worker has changed or is gone: its cache shows that soon.
                log.debug("%s: %s", type(action).__name__, error)
            except (KubeError, SlurmError) as error:
                log.warning("%s: %s", type(action).__name__, error)
        if drains:
            # Otherwise the next pass would send the same.
            await self._poller.poll()
        present = {it.pod.metadata.uid for it in self.workers.values()}
        self._written = {uid: it for uid, it in self._written.items() if uid in present}
        return bool(actions) or bool(self._silent.keys() & self.workers.keys() - silent)

    async def _write(self, worker: core.Worker, text: str) -> None:
        meta = worker.pod.metadata
        written = meta.resource_version, text
        if self._written.get(meta.uid) == written:
            return
        patch = annotation_patch(worker.pod, bridge.GONE, text)
        try:
            await self._kube.json_patch(PODS, meta.namespace, meta.name, patch, msgspec.Raw)
        except Malformed as error:
            log.warning("answer to a patch of pod %s/%s: %s", meta.namespace, meta.name, error)
        self._written[meta.uid] = written
        log.info(
            "pods of ended jobs are gone from Slurm node %s: jobs %s",
            worker.slurm_node,
            text or "none",
        )
