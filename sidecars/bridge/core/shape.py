"""What the placeholder job of a pod requests, or why the pod can't have one.

The job gets what the pod requests, rounded up to whole CPUs and MiB. The node labels that the pod
selects become constraints on the Extra of Slurm's nodes (`--extra`), so that Slurm itself waits for
a matching node.
"""

import functools
import hashlib
import json
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from decimal import Decimal
from types import MappingProxyType

from sidecars.bridge.core.apart import excludes_itself
from sidecars.bridge.core.devices import BUILT_IN, VENDORS
from sidecars.bridge.core.feasible import NOTHING, Needs, needs_of
from sidecars.bridge.core.manifests import Container, Pod, Requirement, Term
from sidecars.bridge.core.tenants import Tenant
from sidecars.contract import bridge
from sidecars.workloads.quantities import mebibytes, quantity
from sidecars.workloads.resources import ResourceError

_MEBIBYTE = 1 << 20
_MOST_DIGITS = 40
"""Of a number. Users can write thousands, which Python refuses to read."""
_MOST_CHARACTERS = 8192
"""Of an annotation. The API server takes 256 KiB, which a message about each pod of a group would
repeat.
"""
_TEXT = re.compile(r"[A-Za-z0-9_.:,=@+*&|()\[\]/-]+")
_REFUSED = {
    "user-id": "the administrator of the Slurm Bridge maps each namespace to its Slurm user",
    "group-id": "the administrator of the Slurm Bridge maps each namespace to its Slurm user",
}
_EXCLUSIVE = (
    "alpha.jobset.sigs.k8s.io/exclusive-topology",
    "leaderworkerset.sigs.k8s.io/exclusive-topology",
)
"""Annotations of the pods of a JobSet or a LeaderWorkerSet that has a topology domain alone."""
_NODE_SELECTOR = "alpha.jobset.sigs.k8s.io/node-selector"
"""With it, an administrator has labelled the nodes for a JobSet, and its pods come all at once."""
_BOOLEANS = {
    **dict.fromkeys(("1", "t", "T", "true", "True", "TRUE"), True),
    **dict.fromkeys(("0", "f", "F", "false", "False", "FALSE"), False),
}
"""As SchedMD's slurm-bridge reads them."""
_WORDS = frozenset({"constraints", "gres", "job-name", "licenses", "reservation", "wckey"})
_KNOWN = (
    _WORDS
    | _REFUSED.keys()
    | {
        "account",
        "cpu-per-task",
        "exclusive",
        "max-nodes",
        "mem-per-node",
        "min-nodes",
        "partition",
        "priority",
        "qos",
        "submit",
        "timelimit",
    }
)


class ShapeError(ValueError):
    """The pod can't have a placeholder job. The text names the field and the remedy."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a job requests for each of its pods."""

    user: str
    partition: str
    account: str = ""
    qos: str = ""
    name: str = ""
    cpus: int = 1
    memory: int = 0
    """MiB; 0: what Slurm gives a job that requests none."""
    gres: str = ""
    """As `gres/gpu:2`."""
    extra: str = ""
    """The constraint on the node's Extra."""
    features: str = ""
    minutes: int | None = None
    """The time limit; None: the partition's."""
    min_nodes: int = 0
    max_nodes: int = 0
    """0: as many as Slurm chooses, at most one for each pod."""
    exclusive: bool = False
    licenses: str = ""
    reservation: str = ""
    wckey: str = ""
    priority: int = 0
    """0: that of Slurm's scheduler."""
    needs: Needs = NOTHING
    """What Slurm doesn't know: it decides on which nodes the job can't run."""
    apart: bool = False
    """Whether these pods exclude each other from a node by their anti-affinity."""

    @property
    def alone(self) -> str:
        """What keeps two of these pods from one node, "" for nothing."""
        if self.needs.ports:
            return f"take port {self.needs.ports[0]} of their node"
        return "exclude each other from a node by their anti-affinity" if self.apart else ""

    @property
    def digest(self) -> str:
        """Equal for equal shapes."""
        return _digest(self)


@functools.lru_cache(maxsize=4096)
def _digest(shape: Shape) -> str:
    # Each pod that waits is compared by it in each pass.
    fields = asdict(shape)
    if not any(shape.needs):  # jobs of former releases have none
        del fields["needs"]
    for name in ("priority", "apart"):
        if not fields[name]:
            del fields[name]
    text = json.dumps(fields, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def shape_of(
    pod: Pod,
    tenant: Tenant,
    group: str = "",
    extended: Mapping[str, str] = BUILT_IN,
    claimed: Iterable[tuple[str, int]] = (),
    wishes: Mapping[str, str] = MappingProxyType({}),
    deadline: int | None = None,
) -> Shape:
    """Return what a job requests for the pod. Raises ShapeError.

    `group`: the name of its group, if it has one. `extended`: the GRES of each extended resource.
    `claimed`: the GRES that the pod's claims request. `wishes`: what annotations of its group's
    object request where the pod's own don't. `deadline`: seconds after which its Job ends it.
    """
    _supported(pod, extended)
    wishes = _wishes({**wishes, **pod.metadata.annotations})
    try:
        cpus, memory, counts = _resources(pod, extended)
        needs = needs_of(
            pod.spec.tolerations,
            {name: _requested(pod, name) for name in _named(pod) - {"cpu", "memory", *extended}},
            (*pod.spec.containers, *pod.spec.init_containers),
        )
        if "cpu-per-task" in wishes:
            cpus = max(
                cpus, math.ceil(quantity(wishes["cpu-per-task"], f"{bridge.WISHES}cpu-per-task"))
            )
        if "mem-per-node" in wishes:
            memory = max(memory, mebibytes(wishes["mem-per-node"], f"{bridge.WISHES}mem-per-node"))
    except ResourceError as error:
        raise ShapeError(str(error)) from None
    for name, count in claimed:
        counts[name] = counts.get(name, 0) + count
    _submission(pod, wishes)
    gres = _gres(wishes.get("gres", ""), counts)
    minutes = _number(wishes, "timelimit", None)
    ends = [it for it in (pod.spec.active_deadline_seconds, deadline) if it is not None]
    if minutes is None and ends:
        minutes = max(1, math.ceil(min(ends) / 60))
    return Shape(
        user=tenant.user,
        partition=_chosen(wishes, "partition", tenant.partitions, pod),
        account=_chosen(wishes, "account", tenant.accounts, pod),
        qos=_chosen(wishes, "qos", tenant.qos, pod),
        name=wishes.get("job-name") or group or pod.metadata.name,
        cpus=cpus,
        memory=memory,
        gres=gres,
        extra=constraint(pod),
        features=wishes.get("constraints", ""),
        minutes=minutes,
        min_nodes=_number(wishes, "min-nodes", 0) or 0,
        max_nodes=_number(wishes, "max-nodes", 0) or 0,
        exclusive=_exclusive(wishes),
        licenses=wishes.get("licenses", ""),
        reservation=wishes.get("reservation", ""),
        wckey=wishes.get("wckey", ""),
        priority=_priority(wishes, tenant, pod),
        needs=needs,
        apart=excludes_itself(pod),
    )


def _submission(pod: Pod, wishes: Mapping[str, str]) -> None:
    """Raise ShapeError for a pod whose user can't name it in the job's comment."""
    text = wishes.get("submit", "true")
    if text not in ("true", "false"):
        raise ShapeError(f"annotation {bridge.NO_SUBMISSION} is {text!r}: write true or false")
    if text == "false" and bridge.GROUP_LABEL not in pod.metadata.labels:
        raise ShapeError(
            f"annotation {bridge.NO_SUBMISSION} is {text!r}: add the labels {bridge.GROUP_LABEL} "
            f"and {bridge.GROUP_SIZE_LABEL}, because the comment of the job names the group"
        )


def own(pod: Pod, extended: Mapping[str, str] = BUILT_IN) -> Shape:
    """Return what the pod itself requests, of nobody: whatever its annotations are, and whether or
    not it can have a job. `extended`: the GRES of each extended resource.
    """
    try:
        cpus, memory, counts = _resources(pod, {**BUILT_IN, **extended})
    except ResourceError:
        # More than any job has.
        cpus, memory, counts = 2**31, 0, {}
    return Shape("", "", cpus=cpus, memory=memory, gres=_gres("", counts))


def gpus_of(gres: str) -> int:
    """Count the GPUs in a request such as `gres/gpu:2` or `gpu:h100:1,gres/nic:1`: at least so
    many.
    """
    counts = {
        name: count for name, count in counts_of(gres).items() if name.partition(":")[0] == "gpu"
    }
    return max(counts.pop("gpu", 0), sum(counts.values()))


def counts_of(gres: str) -> dict[str, int]:
    """Count each GRES in a request, by its name with its type: at least so many. Of two requests
    for the same, Slurm takes one.
    """
    counts: dict[str, int] = {}
    for it in filter(None, gres.split(",")):
        *words, last = re.split("[:=]", it.removeprefix("gres/"))
        counted = words and last.isdecimal() and len(last) <= _MOST_DIGITS
        name, count = (":".join(words), int(last)) if counted else (":".join((*words, last)), 1)
        counts[name] = min(count, counts.get(name, count))
    return counts


def requests(pod: Pod) -> tuple[Decimal, int]:
    """CPUs and bytes that the scheduler counts for the pod. Raises ResourceError."""
    return _requested(pod, "cpu"), int(_requested(pod, "memory"))


def selector_keys(pod: Pod) -> frozenset[str]:
    """Return the keys of node labels by which the pod selects its node."""
    terms = _terms(pod)
    return frozenset(pod.spec.node_selector) | {
        it.key for term in terms for it in term.match_expressions
    }


def constraint(pod: Pod) -> str:
    """Return the pod's node selector and required node affinity as a constraint on the node's
    Extra. Raises ShapeError.

    All operators of one level have to be equal, so that everything that isn't alone gets
    parentheses.
    """
    parts = [
        f"{key}={value or bridge.EMPTY}" for key, value in sorted(pod.spec.node_selector.items())
    ]
    terms = [
        _joined("&", [_expression(it) for it in term.match_expressions]) for term in _terms(pod)
    ]
    if terms:
        parts.append(_joined("|", terms))
    return "&".join(
        part if len(parts) == 1 or not set(part) & set("&|") else f"({part})" for part in parts
    )


def _joined(operator: str, parts: list[str]) -> str:
    if len(parts) == 1:
        return parts[0]
    return operator.join(f"({part})" if set(part) & set("&|") else part for part in parts)


def _expression(it: Requirement) -> str:
    values = [value or bridge.EMPTY for value in it.values]
    match it.operator:
        case "In" if values:
            return _joined("|", [f"{it.key}={value}" for value in values])
        case "NotIn" if values:
            return _joined("&", [f"{it.key}!={value}" for value in values])
        case "Exists":
            return f"{it.key}!={bridge.MISSING}"
        case "DoesNotExist":
            return f"{it.key}={bridge.MISSING}"
    raise ShapeError(
        f"the node affinity of {it.key} has the operator {it.operator}: Slurm can't evaluate it; "
        "use In, NotIn, Exists or DoesNotExist"
    )


def _terms(pod: Pod) -> tuple[Term, ...]:
    node = pod.spec.affinity.node_affinity if pod.spec.affinity is not None else None
    found = node.required_during_scheduling_ignored_during_execution if node is not None else None
    return found.node_selector_terms if found is not None else ()


def _supported(pod: Pod, extended: Mapping[str, str]) -> None:
    """Raise ShapeError for a pod that wants what Slurm can't give."""
    for name in sorted(_named(pod)):
        if name.startswith(VENDORS) and name not in extended:
            raise ShapeError(
                f"{name} is no GRES of Slurm: an administrator maps it in `devices` of the Slurm "
                "Bridge"
            )
    # Admission replaces it, unless it is switched off.
    if pod.spec.scheduler_name == bridge.THEIR_SCHEDULER:
        raise ShapeError(
            f"spec.schedulerName is {bridge.THEIR_SCHEDULER}, which doesn't exist here: remove it, "
            "because the scheduler of Kubernetes binds pods that Slurm schedules"
        )
    for it in pod.spec.topology_spread_constraints:
        if it.when_unsatisfiable == "DoNotSchedule":
            raise ShapeError(
                f"topologySpreadConstraints can't spread the pod over {it.topology_key} for sure, "
                "because Slurm chooses its node: set whenUnsatisfiable to ScheduleAnyway, and "
                f"spread a group by the annotation {bridge.WISHES}min-nodes"
            )
    annotations = pod.metadata.annotations
    exclusive = next((it for it in _EXCLUSIVE if it in annotations), None)
    if exclusive is not None and annotations.get(_NODE_SELECTOR) != "true":
        raise ShapeError(
            f"annotation {exclusive}: the other pods are created only when this one has a node, "
            "and this one waits for them: remove it, and request whole nodes by the annotation "
            f"{bridge.WISHES}exclusive"
        )
    for term in _terms(pod):
        if term.match_fields or not term.match_expressions:
            raise ShapeError(
                "a required node affinity needs matchExpressions alone: Slurm knows no other fields"
            )


def _named(pod: Pod) -> set[str]:
    """Return the names of the resources that the pod requests."""
    levels = (
        pod.spec.resources,
        *(it.resources for it in (*pod.spec.containers, *pod.spec.init_containers)),
    )
    return {name for it in levels for name in (*it.requests, *it.limits)}


def _wishes(annotations: Mapping[str, str]) -> dict[str, str]:
    found = {
        key.removeprefix(bridge.WISHES): value
        for key, value in annotations.items()
        if key.startswith(bridge.WISHES)
    }
    for key, value in found.items():
        if key in _REFUSED:
            raise ShapeError(f"annotation {bridge.WISHES}{key} is refused: {_REFUSED[key]}")
        if len(value) > _MOST_CHARACTERS:
            most = f"at most {_MOST_CHARACTERS} are possible"
            raise ShapeError(f"annotation {bridge.WISHES}{key} has {len(value)} characters: {most}")
        if key not in _KNOWN:
            raise ShapeError(
                f"annotation {bridge.WISHES}{key} doesn't exist; choose from "
                f"{', '.join(sorted(_KNOWN))}"
            )
        if key in _WORDS and not _TEXT.fullmatch(value):
            raise ShapeError(
                f"annotation {bridge.WISHES}{key} is {value!r}: remove spaces and special "
                "characters"
            )
    return found


def _gres(wish: str, counts: Mapping[str, int]) -> str:
    """Return what the annotation lists, and the pod's limits and claims. Raises ShapeError if it
    lists less.
    """
    found = [f"gres/{it.removeprefix('gres/')}" for it in wish.split(",") if it]
    named = {re.split("[:=]", it.removeprefix("gres/"))[0] for it in found}
    typed = {name: count for name, count in sorted(counts.items()) if name != "gpu" and count}
    double = next((name for name in typed if name.partition(":")[0] in named), None)
    if double is not None:
        raise ShapeError(
            f"annotation {bridge.WISHES}gres is {wish!r}, and the pod has {double} in its limits "
            f"or claims: remove {double.partition(':')[0]} from the annotation"
        )
    found += [f"gres/{name}:{count}" for name, count in typed.items()]
    gpus = counts.get("gpu", 0)
    if gpus and not any(re.match("gres/gpu([:=]|$)", it) for it in found):
        found.append(f"gres/gpu:{gpus}")
    text = ",".join(found)
    if gpus_of(text) < gpus:
        raise ShapeError(
            f"annotation {bridge.WISHES}gres is {wish!r}, and the pod has {gpus} GPUs in its "
            "limits: request as many"
        )
    return text


def _number(wishes: Mapping[str, str], key: str, default: int | None) -> int | None:
    text = wishes.get(key)
    if text is None:
        return default
    if not text.isdecimal() or len(text) > _MOST_DIGITS or not 0 < int(text) < 2**31:
        raise ShapeError(
            f"annotation {bridge.WISHES}{key} is {text!r}: write a whole number above 0"
        )
    return int(text)


def _priority(wishes: Mapping[str, str], tenant: Tenant, pod: Pod) -> int:
    """Return the priority, or 0. Raises ShapeError for one that the tenant may not set."""
    if "priority" not in wishes:
        return 0
    namespace, most = pod.metadata.namespace, tenant.max_priority
    if not most:
        raise ShapeError(
            f"annotation {bridge.WISHES}priority is refused: the administrator of the Slurm Bridge "
            f"has set no maxPriority for namespace {namespace}; use qos"
        )
    found = _number(wishes, "priority", None) or 0
    if found > most:
        raise ShapeError(
            f"annotation {bridge.WISHES}priority is {found}; namespace {namespace} may set at most "
            f"{most}"
        )
    return found


def _exclusive(wishes: Mapping[str, str]) -> bool:
    """Return whether the job has whole nodes. Raises ShapeError: a typo must not share them."""
    text = wishes.get("exclusive", "false")
    found = _BOOLEANS.get(text)
    if found is None:
        raise ShapeError(f"annotation {bridge.WISHES}exclusive is {text!r}: write true or false")
    return found


def _chosen(wishes: Mapping[str, str], key: str, allowed: tuple[str, ...], pod: Pod) -> str:
    wish = wishes.get(key)
    if wish is None:
        return allowed[0] if allowed else ""
    if wish not in allowed:
        choice = ", ".join(allowed) or "none"
        raise ShapeError(
            f"annotation {bridge.WISHES}{key} is {wish!r}; namespace {pod.metadata.namespace} may "
            f"use: {choice}"
        )
    return wish


def _resources(pod: Pod, extended: Mapping[str, str]) -> tuple[int, int, dict[str, int]]:
    cpus, memory = requests(pod)
    counts: dict[str, int] = {}
    for name, gres in extended.items():
        counts[gres] = counts.get(gres, 0) + math.ceil(_requested(pod, name))
    return max(1, math.ceil(cpus)), math.ceil(memory / _MEBIBYTE), counts


def _requested(pod: Pod, name: str) -> Decimal:
    """Return what the pod requests, as the scheduler counts: init containers one after the other,
    sidecars beside all.
    """
    overhead = quantity(pod.spec.overhead.get(name, "0"), f"overhead {name}")
    level = _of(pod.spec.resources.requests, pod.spec.resources.limits, name)
    if level is not None:
        return level + overhead
    together = sum((_container(it, name) for it in pod.spec.containers), Decimal(0))
    sidecars, most = Decimal(0), Decimal(0)
    for it in pod.spec.init_containers:
        if it.restart_policy == "Always":
            sidecars += _container(it, name)
            most = max(most, sidecars)
        else:
            most = max(most, sidecars + _container(it, name))
    return max(together + sidecars, most) + overhead


def _container(container: Container, name: str) -> Decimal:
    found = _of(container.resources.requests, container.resources.limits, name)
    return Decimal(0) if found is None else found


def _of(first: Mapping[str, str], second: Mapping[str, str], name: str) -> Decimal | None:
    text = first.get(name, second.get(name))
    return None if text is None else quantity(text, f"request of {name}")
