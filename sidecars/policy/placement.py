"""Which Kubernetes nodes a pod fits on, as the scheduler and the DaemonSet controller decide it. Pure.

https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/ and …/scheduling-eviction/taint-and-toleration/.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sidecars.workloads.nodeset.naming import LABEL_LIMIT, is_hostname

Json = dict[str, Any]

_UNSCHEDULABLE = ("node.kubernetes.io/unschedulable", "", "NoSchedule")


@dataclass(frozen=True, slots=True)
class KubeNode:
    """What scheduling depends on of a Kubernetes node."""

    name: str
    labels: Mapping[str, str]
    taints: Sequence[tuple[str, str, str]] = ()
    """Key, value and effect of each."""
    unschedulable: bool = False
    hostname: str = ""
    """The name in Slurm of a worker on it, if an annotation sets one; else ""."""


@dataclass(frozen=True, slots=True)
class Place:
    """A Kubernetes node from the point of view of one NodeSet in DaemonSet mode."""

    kube_node: str
    slurm_node: str
    should_run: bool
    """A pod belongs on the node."""
    may_stay: bool
    """An existing pod may remain, although none would be created."""
    problem: str = ""
    """Why a pod that belongs there can't be created, with the remedy; "" if it can."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a pod template requires of its node. A change of a node matters if it changes `place`."""

    node_selector: Mapping[str, str]
    terms: Sequence[Json] | None
    """nodeSelectorTerms of the required node affinity; None without one."""
    tolerations: Sequence[Json]
    host_network: bool = False
    """Its Slurm node has the name of the Kubernetes node."""

    @classmethod
    def of(cls, pod_spec: Json) -> "Rules":
        """The rules in a PodSpec, as the API server gets it."""
        affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        return cls(
            node_selector=pod_spec.get("nodeSelector") or {},
            terms=None if required is None else required.get("nodeSelectorTerms") or [],
            tolerations=pod_spec.get("tolerations") or [],
            host_network=bool(pod_spec.get("hostNetwork")),
        )

    def place(self, node: KubeNode) -> Place:
        """Whether a pod belongs on the node, and what it would be called in Slurm."""
        fits = self.fits(node)
        taints = [*node.taints, *((_UNSCHEDULABLE,) if node.unschedulable else ())]
        untolerated = {taint[2] for taint in taints if not tolerated(taint, self.tolerations)}
        host = node.name if self.host_network else node.hostname or node.name.partition(".")[0]
        return Place(
            kube_node=node.name,
            slurm_node=host,
            should_run=fits and untolerated.isdisjoint({"NoSchedule", "NoExecute"}),
            may_stay=fits and "NoExecute" not in untolerated,
            problem="" if self.host_network else _hostname_problem(node.name, host),
        )

    def fits(self, node: KubeNode) -> bool:
        """Whether the node has what nodeSelector and the required node affinity ask for; taints aside."""
        if any(node.labels.get(key) != value for key, value in self.node_selector.items()):
            return False
        return self.terms is None or any(_term_matches(term, node) for term in self.terms)


def tolerated(taint: tuple[str, str, str], tolerations: Iterable[Json]) -> bool:
    """Whether any of the tolerations tolerates the taint."""
    key, value, effect = taint
    for toleration in tolerations:
        if toleration.get("effect") not in (None, "", effect):
            continue
        if toleration.get("key") not in (None, "", key):
            continue
        if toleration.get("operator") == "Exists":
            return True
        if toleration.get("key") and (toleration.get("value") or "") == value:
            return True
    return False


def with_distinct_names(places: Iterable[Place], settled: Mapping[str, str]) -> dict[str, Place]:
    """The places by Kubernetes node; of those that want the same name in Slurm only one is without a problem.

    It is the one that has the name now (`settled`: Kubernetes node by Slurm node), else the first by name.
    """
    found: dict[str, Place] = {}
    owner: dict[str, str] = {}
    wanted = sorted(places, key=lambda place: (settled.get(place.slurm_node) != place.kube_node, place.kube_node))
    for place in wanted:
        other = owner.setdefault(place.slurm_node, place.kube_node) if place.should_run or place.may_stay else None
        if other is not None and other != place.kube_node and not place.problem:
            message = (
                f"Kubernetes nodes {other} and {place.kube_node} would both be Slurm node {place.slurm_node}: give one "
                "of them the annotation nodeset.slinky.slurm.net/hostname-override"
            )
            place = Place(place.kube_node, place.slurm_node, place.should_run, place.may_stay, message)  # noqa: PLW2901
        found[place.kube_node] = place
    return found


def _hostname_problem(kube_node: str, host: str) -> str:
    if is_hostname(host):
        return ""
    return (
        f"Kubernetes node {kube_node}: {host[:80]!r} can't be a hostname: set its annotation "
        f"nodeset.slinky.slurm.net/hostname-override to lower-case letters, digits and '-', at most {LABEL_LIMIT}"
    )


def _term_matches(term: Json, node: KubeNode) -> bool:
    """A term without any requirement matches nothing (NodeSelectorTerm)."""
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    return all(_matches(item, node.labels.get(item.get("key", ""))) for item in expressions) and all(
        item.get("key") == "metadata.name" and _matches(item, node.name) for item in fields
    )


def _matches(requirement: Json, value: str | None) -> bool:
    operator, values = requirement.get("operator"), requirement.get("values") or []
    if operator == "In":
        return value is not None and value in values
    if operator == "NotIn":
        return value is None or value not in values
    if operator == "Exists":
        return value is not None
    if operator == "DoesNotExist":
        return value is None
    if operator in {"Gt", "Lt"} and value is not None and len(values) == 1:
        try:
            here, there = int(value), int(values[0])
        except ValueError:
            return False
        return here > there if operator == "Gt" else here < there
    return False
