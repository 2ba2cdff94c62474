"""A node autoscaler in the world: it orders Kubernetes nodes for pods that find none, and reports
it by Events, as Cluster Autoscaler or Karpenter does.

A node is ordered for each pod that no node on its way is for, and arrives after a time. Each group
has the nodes of one label. A group without time gets no nodes.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from sidecars.kube import EVENTS, Manifest
from tests.support.world.kubelets import NODE, POD
from tests.support.world.world import World

EVENT = EVENTS.path()
GROUP = "node-group"
"""The label of nodes, and the key of the pods' nodeSelector."""


@dataclass
class NodeAutoscaler:
    """Call `attach` once. Times are those of the loop."""

    world: World
    seconds: dict[str, Callable[[random.Random], float | None]]
    """By group: how long a node takes, None for never."""
    silent: bool = False
    """It writes no Events."""
    karpenter: bool = False
    bought: dict[str, int] = field(default_factory=dict)
    """By group: how many nodes were ordered."""
    _coming: dict[str, list[float]] = field(default_factory=dict)
    """By group: when the nodes arrive."""
    _reported: set[str] = field(default_factory=set)
    _arrived: int = 0
    _rng: random.Random = field(default_factory=lambda: random.Random(7))  # noqa: S311

    def attach(self) -> None:
        """Have it look each second."""
        self.world.each_second.append(self._look)

    def _look(self) -> None:
        now = self.world.loop.time()
        for group, times in self._coming.items():
            for at in [it for it in times if it <= now]:
                times.remove(at)
                self._arrive(group)
        waiting: dict[str, list[Manifest]] = {}
        for pod in self.world.api.all(POD):
            group = (pod["spec"].get("nodeSelector") or {}).get(GROUP, "")
            if group and not pod["spec"].get("nodeName") and not _terminates(pod):
                self._show(pod)
                waiting.setdefault(group, []).append(pod)
        for group, pods in waiting.items():
            self._order(group, pods, now)

    def _order(self, group: str, pods: list[Manifest], now: float) -> None:
        coming = self._coming.setdefault(group, [])
        free = self._free(group)
        for pod in pods[len(coming) + free :]:
            seconds = self.seconds[group](self._rng)
            if seconds is None:
                self._report(pod, refused=True)
                continue
            coming.append(now + seconds)
            self.bought[group] = self.bought.get(group, 0) + 1
        if coming:
            for pod in pods[: len(coming)]:
                self._report(pod, refused=False)

    def _free(self, group: str) -> int:
        used = {pod["spec"].get("nodeName") for pod in self.world.api.all(POD)}
        return sum(
            (node["metadata"].get("labels") or {}).get(GROUP) == group
            and node["metadata"]["name"] not in used
            for node in self.world.api.all(NODE)
        )

    def _arrive(self, group: str) -> None:
        self._arrived += 1
        name = f"bought-{group}-{self._arrived}"
        self.world.kubelets.add_kube_node(name)
        self.world.api.change(NODE, "", name, {"metadata": {"labels": {GROUP: group}}})

    def _show(self, pod: Manifest) -> None:
        """Have the scheduler's condition on the pod."""
        if (pod.get("status") or {}).get("conditions"):
            return
        condition = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": "0/6 nodes are available",
            "lastTransitionTime": self.world.api.timestamp(),
        }
        where = pod["metadata"]["namespace"], pod["metadata"]["name"]
        self.world.api.change(POD, *where, {"status": {"conditions": [condition]}}, status=True)

    def _report(self, pod: Manifest, *, refused: bool) -> None:
        """Write an Event about the pod, once for each answer."""
        metadata = pod["metadata"]
        key = f"{metadata['uid']}.{refused}"
        if self.silent or key in self._reported:
            return
        self._reported.add(key)
        reason = "NotTriggerScaleUp" if refused else "TriggeredScaleUp"
        if self.karpenter:
            reason = "FailedScheduling" if refused else "Nominated"
        self.world.api.create(
            EVENT,
            {
                "apiVersion": EVENTS.api_version,
                "kind": EVENTS.kind,
                "metadata": {"name": key, "namespace": metadata["namespace"]},
                "regarding": {"kind": "Pod", "name": metadata["name"], "uid": metadata["uid"]},
                "reason": reason,
                "note": "no group of nodes fits" if refused else "a node is on its way",
                "type": "Normal",
                "deprecatedSource": {
                    "component": "karpenter" if self.karpenter else "cluster-autoscaler"
                },
                "deprecatedFirstTimestamp": self.world.api.timestamp(),
                "deprecatedLastTimestamp": self.world.api.timestamp(),
            },
        )


def _terminates(pod: Manifest) -> bool:
    return bool(pod["metadata"].get("deletionTimestamp"))
