"""I6: another Slurm cluster in the same Kubernetes cluster, whose changes take effect whatever
happens to the first.
"""

from collections.abc import Iterable

from sidecars.kube import Manifest
from tests.support.world.client import SPARED
from tests.support.world.world import NODESET, World

WITHIN = 15.0
"""Seconds in which a change of its NodeSet takes effect, while the operator itself works."""


class Neighbour:
    """The NodeSet of that cluster. It is scaled in or out at each `change`."""

    def __init__(self, w: World) -> None:
        self._world = w
        self._replicas = 1
        self._since: float | None = None
        w.nodeset(replicas=1, namespace=SPARED)
        w.each_second.append(self._look)

    def change(self) -> None:
        """Scale it, unless the last change has yet to take effect."""
        if self._since is None:
            self._scale(3 - self._replicas)

    def rest(self) -> None:
        """Scale it to one pod for good."""
        self._scale(1)

    def _scale(self, replicas: int) -> None:
        self._replicas, self._since = replicas, self._world.loop.time()
        self._world.change("slinky", {"replicas": replicas}, SPARED)

    def _look(self) -> None:
        if self._since is None:
            return
        pods = self._world.pods(namespace=SPARED)
        if sum(not pod["metadata"].get("deletionTimestamp") for pod in pods) == self._replicas:
            self._since = None
            return
        faults, now = self._world.faults, self._world.loop.time()
        if (
            faults.lists
            or not self._world.operator_works(SPARED)
            or not self._exists()
            or self._waits_for_a_host(pods)
        ):
            self._since = now
        undisturbed = max(
            self._since, self._world.operator_since, faults.lag_until, faults.listed_badly_at
        )
        if now - undisturbed > WITHIN:
            self._world.watchdog.note(
                f"I6: the NodeSet of another cluster has {len(pods)} pods instead of "
                f"{self._replicas} since {undisturbed:.0f}"
            )
            self._since = None

    def _waits_for_a_host(self, pods: Iterable[Manifest]) -> bool:
        """Whether a pod terminates on a Kubernetes node that doesn't report its end: its name is in
        use until then.
        """
        kubelets = self._world.kubelets
        silent = kubelets.dead | kubelets.cut.keys()
        return any(
            pod["metadata"].get("deletionTimestamp") and pod["spec"].get("nodeName") in silent
            for pod in pods
        )

    def _exists(self) -> bool:
        """Whether its NodeSet was not deleted with the CRD."""
        nodeset = self._world.api.get(NODESET, SPARED, "slinky")
        return nodeset is not None and not nodeset["metadata"].get("deletionTimestamp")
