"""Which Kubernetes nodes a pod fits on, as the scheduler and the DaemonSet controller decide it.
Pure.

https://kubernetes.io/docs/concepts/workloads/controllers/daemonset/ and
…/scheduling-eviction/taint-and-toleration/.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sidecars.objects import Node, Taint
from sidecars.workloads import names
from sidecars.workloads.nodeset.naming import LABEL_LIMIT, NUMBER, is_hostname

Json = dict[str, Any]

_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,18}")

_UNSCHEDULABLE = Taint("node.kubernetes.io/unschedulable", "NoSchedule")


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
    whole_name: str = ""
    """The name in Slurm if another place has `slurm_node`; "" if it has no other."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a pod template requires of its node. A change of a node matters if it changes
    `place`.
    """

    node_selector: Mapping[str, str]
    terms: Sequence[Json] | None
    """nodeSelectorTerms of the required node affinity; None without one."""
    tolerations: Sequence[Json]
    host_network: bool = False
    """Its Slurm node has the name of the Kubernetes node."""

    @classmethod
    def of(cls, pod_spec: Json) -> "Rules":
        """Return the rules in a PodSpec, as the API server gets it."""
        affinity = (pod_spec.get("affinity") or {}).get("nodeAffinity") or {}
        required = affinity.get("requiredDuringSchedulingIgnoredDuringExecution")
        return cls(
            node_selector=pod_spec.get("nodeSelector") or {},
            terms=None if required is None else required.get("nodeSelectorTerms") or [],
            tolerations=pod_spec.get("tolerations") or [],
            host_network=bool(pod_spec.get("hostNetwork")),
        )

    def place(self, node: Node) -> Place:
        """Return whether a pod belongs on the node, and what it would be called in Slurm."""
        fits = self.fits(node)
        name, spec = node.metadata.name, node.spec
        taints = [*spec.taints, *((_UNSCHEDULABLE,) if spec.unschedulable else ())]
        untolerated = {taint.effect for taint in taints if not tolerated(taint, self.tolerations)}
        override = node.metadata.annotations.get(names.HOSTNAME_OVERRIDE)
        host = name if self.host_network else override or _short_name(name)
        whole = "" if self.host_network or override else name.replace(".", "-")
        return Place(
            kube_node=name,
            slurm_node=host,
            should_run=fits and untolerated.isdisjoint({"NoSchedule", "NoExecute"}),
            may_stay=fits and "NoExecute" not in untolerated,
            problem="" if self.host_network else _hostname_problem(name, host),
            whole_name=whole if whole != host and is_hostname(whole) else "",
        )

    def fits(self, node: Node) -> bool:
        """Return whether the node has what nodeSelector and the required node affinity ask for,
        taints aside.
        """
        if any(node.metadata.labels.get(key) != value for key, value in self.node_selector.items()):
            return False
        return self.terms is None or any(_term_matches(term, node) for term in self.terms)


def tolerated(taint: Taint, tolerations: Iterable[Json]) -> bool:
    """Return whether any of the tolerations tolerates the taint."""
    for toleration in tolerations:
        if toleration.get("effect") not in (None, "", taint.effect):
            continue
        if toleration.get("key") not in (None, "", taint.key):
            continue
        operator, wanted = toleration.get("operator") or "Equal", toleration.get("value") or ""
        if operator == "Exists":
            return True
        if operator == "Equal" and toleration.get("key") and wanted == taint.value:
            return True
        if operator in {"Gt", "Lt"} and _compares(taint.value, operator, wanted):
            return True
    return False


def _compares(taint: str, operator: str, toleration: str) -> bool:
    """Return whether the value of a taint is greater (`Gt`) or less (`Lt`) than that of a
    toleration. Only whole numbers in their shortest form are compared.
    """
    if not (_WHOLE.fullmatch(taint) and _WHOLE.fullmatch(toleration)):
        return False
    here, there = int(taint), int(toleration)
    if not all(-(2**63) <= number < 2**63 for number in (here, there)):
        return False
    return here > there if operator == "Gt" else here < there


def with_distinct_names(places: Iterable[Place], settled: Mapping[str, str]) -> dict[str, Place]:
    """Return the places by Kubernetes node. Of those that want the same name in Slurm, one gets it:
    the one that has the name now (`settled`: Kubernetes node by Slurm node), else the first by
    name. The others get their whole names, and a problem where that isn't possible. A place keeps
    a whole name that it has now.
    """
    found: dict[str, Place] = {}
    owner: dict[str, str] = {}
    later: list[Place] = []
    wanted = sorted(
        (_settled(place, settled) for place in places),
        key=lambda place: (settled.get(place.slurm_node) != place.kube_node, place.kube_node),
    )
    for place in wanted:
        found[place.kube_node] = place
        if (place.should_run or place.may_stay) and place.kube_node != owner.setdefault(
            place.slurm_node, place.kube_node
        ):
            later.append(place)
    for place in later:
        if place.whole_name and place.whole_name not in owner:
            owner[place.whole_name] = place.kube_node
            found[place.kube_node] = replace(place, slurm_node=place.whole_name)
        elif not place.problem:
            found[place.kube_node] = replace(
                place,
                problem=(
                    f"Kubernetes nodes {owner[place.slurm_node]} and {place.kube_node} would both "
                    f"be Slurm node {place.slurm_node}: give one of them the annotation "
                    f"{names.HOSTNAME_OVERRIDE}"
                ),
            )
    return found


def _settled(place: Place, settled: Mapping[str, str]) -> Place:
    """Return the place with its whole name if it has that now."""
    if place.whole_name and settled.get(place.whole_name) == place.kube_node:
        return replace(place, slurm_node=place.whole_name)
    return place


def _short_name(kube_node: str) -> str:
    """Return the first label of a Kubernetes node's name, or all of them if the first one is a
    number: of nodes that are named by their addresses, it is the same.
    """
    first = kube_node.partition(".")[0]
    return kube_node.replace(".", "-") if first.isdecimal() else first


def _hostname_problem(kube_node: str, host: str) -> str:
    if is_hostname(host):
        return ""
    return (
        f"Kubernetes node {kube_node}: {host[:80]!r} can't be a hostname: set its annotation "
        "nodeset.slinky.slurm.net/hostname-override to lower-case letters, digits and '-', at "
        f"most {LABEL_LIMIT}, and {NUMBER}"
    )


def _term_matches(term: Json, node: Node) -> bool:
    """Return whether the node matches the term. One without any requirement matches none."""
    metadata = node.metadata
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    if not expressions and not fields:
        return False
    return all(
        _matches(item, metadata.labels.get(item.get("key", ""))) for item in expressions
    ) and all(
        item.get("key") == "metadata.name" and _matches(item, metadata.name) for item in fields
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
