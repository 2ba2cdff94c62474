"""What must be true in a cluster of KUBECONFIG before anything is installed: observed first, judged
by a pure function.
"""

import json
import re
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tests.cluster.errors import ClusterError
from tests.cluster.install import OPERATOR_NAMESPACE, SLURM_NAMESPACE, Target
from tests.cluster.waiting import until

KUBERNETES = (1, 29)
_CLASS_ANNOTATIONS = ("kubernetes.io", "beta.kubernetes.io")
ENFORCE = "pod-security.kubernetes.io/enforce"
_RIGHTS = (
    ("customresourcedefinitions.apiextensions.k8s.io", ""),
    ("clusterroles.rbac.authorization.k8s.io", ""),
    ("namespaces", ""),
    ("secrets", OPERATOR_NAMESPACE),
    ("secrets", SLURM_NAMESPACE),
)
_PROBE = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "slurm-charts-probe", "namespace": SLURM_NAMESPACE},
    "spec": {
        "containers": [
            {
                "name": "slurmd",
                "image": "slurmd",
                "securityContext": {"privileged": True},
                "resources": {
                    "requests": {"cpu": "10m", "memory": "16Mi"},
                    "limits": {"cpu": "1", "memory": "1Gi"},
                },
            }
        ]
    },
}
"""A pod with what a worker needs."""


START_SECONDS = 60.0
"""For which a cluster without a Kubernetes node that takes pods is waited for, if one starts."""
_STARTS = frozenset(
    {
        "node.cloudprovider.kubernetes.io/uninitialized",
        "node.kubernetes.io/network-unavailable",
        "node.kubernetes.io/not-ready",
    }
)
"""Taints of a node that starts. Kubernetes removes them soon after it is Ready."""


@dataclass(frozen=True)
class Claim:
    """A volume that the values ask for. `storage_class` None: the cluster's default."""

    owner: str
    storage_class: str | None


@dataclass(frozen=True)
class Facts:
    """What was found in the cluster."""

    version: tuple[int, int]
    nodes: Mapping[str, str]
    """Architecture of each Kubernetes node that is Ready and takes any pod."""
    architecture: str | None
    """That of the images. None: they are not built here."""
    classes: Mapping[str, bool]
    """The StorageClasses, and whether each is the default one."""
    claims: Sequence[Claim]
    denied: Sequence[str]
    """What the user may not create."""
    images_missing: Sequence[str] = ()
    """Images that neither their registry nor the nodes have."""


def problems(facts: Facts) -> list[str]:
    """Everything that stands in the way, each with its remedy. Empty: go on."""
    found: list[str] = []
    if facts.version < KUBERNETES:
        found.append("Kubernetes {}.{} is too old: use 1.29 or newer".format(*facts.version))
    if facts.denied:
        found.append(
            f"this user may not create {', '.join(facts.denied)}: use the kubeconfig of a cluster "
            "administrator"
        )
    others = sorted(set(facts.nodes.values()))
    if not facts.nodes:
        found.append(
            "no Kubernetes node is Ready and without taints: add one, uncordon one (kubectl "
            "uncordon NODE), or remove its taints"
        )
    elif facts.architecture is not None and facts.architecture not in others:
        found.append(
            f"the Kubernetes nodes are {', '.join(others)}, and the images built on this host are "
            f"for {facts.architecture}: run make up on a host with the architecture of the nodes, "
            "or add a node with that of this host"
        )
    default = any(facts.classes.values())
    for claim in facts.claims:
        if claim.storage_class is None and not default:
            found.append(
                f"{claim.owner} needs a volume, and no StorageClass is the default one: "
                + _choice(
                    facts.classes, f"or set persistence.storageClassName of {claim.owner} in VALUES"
                )
            )
        elif claim.storage_class and claim.storage_class not in facts.classes:
            found.append(
                f"{claim.owner}: the StorageClass {claim.storage_class!r} doesn't exist: correct "
                f"it in VALUES. The cluster has {', '.join(sorted(facts.classes)) or 'none'}"
            )
    if facts.images_missing:
        found.append(
            f"the images {', '.join(facts.images_missing)} can't be pulled, and the nodes don't "
            "have them: name a registry to which make up pushes them, for example "
            "REGISTRY=registry.example.com/team, or load them into the nodes (docs/local.md)"
        )
    return found


def with_missing_images(facts: Facts, images: Sequence[str]) -> Facts:
    """The facts with these images missing."""
    return replace(facts, images_missing=images)


def _choice(classes: Iterable[str], otherwise: str) -> str:
    names = sorted(classes)
    if not names:
        return (
            "install a storage provisioner, such as the one of your cloud or Rancher's "
            "local-path-provisioner"
        )
    patch = (
        '\'{"metadata": {"annotations": {"storageclass.kubernetes.io/is-default-class": "true"}}}\''
    )
    return (
        f"choose one of {', '.join(names)}: kubectl patch storageclass {names[0]} -p {patch}, "
        f"{otherwise}"
    )


def demand(facts: Facts) -> None:
    """Raise ClusterError that lists every problem."""
    if found := problems(facts):
        lines = [
            "Slurm can't be installed on this cluster, and nothing was changed:",
            *(f"- {line}" for line in found),
        ]
        raise ClusterError("\n".join(lines))


def observe(
    target: Target, objects: Sequence[Mapping[str, Any]], architecture: str | None
) -> Facts:
    """Look at the cluster. `objects` are those that the charts render. Changes nothing. Raises
    ClusterError.
    """
    version = json.loads(target.kubectl("get", "--raw", "/version"))
    nodes = _nodes(target)
    classes = json.loads(target.kubectl("get", "storageclasses", "-o", "json"))["items"]
    existing = {
        claim["metadata"]["name"]
        for claim in json.loads(
            target.kubectl("-n", SLURM_NAMESPACE, "get", "persistentvolumeclaims", "-o", "json")
        )["items"]
    }
    return Facts(
        version=(int(version["major"]), int(re.match(r"\d*", version["minor"])[0] or 0)),  # type: ignore[index]
        nodes={
            node["metadata"]["name"]: node["status"]["nodeInfo"]["architecture"]
            for node in nodes
            if usable(node)
        },
        architecture=architecture,
        classes={each["metadata"]["name"]: is_default(each) for each in classes},
        claims=[] if existing else list(claims(objects)),
        denied=[
            kind.partition(".")[0] + (f" in namespace {namespace}" if namespace else "")
            for kind, namespace in _RIGHTS
            if not _may_create(target, kind, namespace)
        ],
    )


def _nodes(target: Target) -> list[dict[str, Any]]:
    """Read the Kubernetes nodes. In a cluster that has just been created, wait for the first one
    that takes pods.
    """
    deadline = time.monotonic() + START_SECONDS
    while True:
        nodes: list[dict[str, Any]] = json.loads(target.kubectl("get", "nodes", "-o", "json"))[
            "items"
        ]
        waits = any(map(is_starting, nodes)) and not any(map(usable, nodes))
        if not waits or time.monotonic() >= deadline:
            return nodes
        time.sleep(1)


def is_starting(node: Mapping[str, Any]) -> bool:
    """Whether nothing but its start keeps pods from a Kubernetes node."""
    taints = {
        taint["key"]
        for taint in node.get("spec", {}).get("taints") or []
        if taint["effect"] in {"NoSchedule", "NoExecute"}
    }
    return bool(taints) and taints <= _STARTS


def usable(node: Mapping[str, Any]) -> bool:
    """Whether a Kubernetes node is Ready and takes a pod without tolerations."""
    spec = node.get("spec", {})
    kept_away = any(
        taint["effect"] in {"NoSchedule", "NoExecute"} for taint in spec.get("taints") or []
    )
    ready = any(
        each["type"] == "Ready" and each["status"] == "True"
        for each in node["status"].get("conditions", [])
    )
    return ready and not kept_away and not spec.get("unschedulable", False)


def is_default(storage_class: Mapping[str, Any]) -> bool:
    """Whether a StorageClass is the cluster's default one."""
    annotations = storage_class["metadata"].get("annotations") or {}
    return any(
        annotations.get(f"storageclass.{name}/is-default-class") == "true"
        for name in _CLASS_ANNOTATIONS
    )


def claims(objects: Iterable[Mapping[str, Any]]) -> Iterator[Claim]:
    """The volumes that these objects ask for, without those of existing claims."""
    for each in objects:
        name = f"{each['kind']} {each['metadata']['name']}"
        spec = each.get("spec") or {}
        if each["kind"] == "PersistentVolumeClaim":
            yield Claim(name, spec.get("storageClassName"))
        elif each["kind"] == "Controller":
            volume = spec.get("persistence") or {}
            if volume.get("enabled", True) and not volume.get("existingClaim"):
                yield Claim(name, volume.get("storageClassName"))
        for template in spec.get("volumeClaimTemplates") or []:
            yield Claim(name, (template.get("spec") or {}).get("storageClassName"))


def needs_privileges(objects: Iterable[Mapping[str, Any]]) -> bool:
    """Whether these objects have workers whose slurmd is privileged."""
    nodesets = [each["spec"] for each in objects if each["kind"] == "NodeSet"]
    contexts = [(spec.get("slurmd") or {}).get("securityContext") or {} for spec in nodesets]
    return any(context.get("privileged", True) for context in contexts)


def crowded(objects: Iterable[Mapping[str, Any]], nodes: int) -> str:
    """What a user should know if the workers need more Kubernetes nodes than these. Empty: they
    don't.
    """
    wanted = {
        each["metadata"]["name"]: each["spec"].get("replicas", 1)
        for each in objects
        if each["kind"] == "NodeSet"
        and each["spec"].get("scalingMode") != "DaemonSet"
        and not each["spec"].get("oversubscribeNode")
    }
    if sum(wanted.values()) <= nodes:
        return ""
    return (
        f"The values ask for {sum(wanted.values())} workers ({', '.join(wanted)}), each on a "
        f"Kubernetes node of its own, and {nodes} nodes take pods now. Unless an autoscaler adds "
        "nodes, some workers stay pending: lower `replicas`, or set `oversubscribeNode: true` "
        "and `slurmd.resources.limits` for several workers on a node."
    )


def _may_create(target: Target, kind: str, namespace: str) -> bool:
    words = ["auth", "can-i", "create", kind, *(["-n", namespace] if namespace else [])]
    try:
        return target.kubectl(*words).strip() == "yes"
    except ClusterError:
        return False


def exists(target: Target, namespace: str) -> bool:
    """Whether the cluster has this namespace."""
    return bool(
        target.kubectl("get", "namespace", namespace, "--ignore-not-found", "-o", "name").strip()
    )


def create_namespaces(target: Target, *, privileged: bool) -> None:
    """Create those of the two namespaces that are missing, the one of Slurm so that it admits
    workers if it must.

    Raises ClusterError with the remedy if it doesn't admit them. A namespace that was created here
    is then deleted.
    """
    labels = {ENFORCE: "privileged"} if privileged else {}
    new = [name for name in (OPERATOR_NAMESPACE, SLURM_NAMESPACE) if not exists(target, name)]
    for name in new:
        own = labels if name == SLURM_NAMESPACE else {}
        namespace = {
            "apiVersion": "v1",
            "kind": "Namespace",
            "metadata": {"name": name, "labels": own},
        }
        target.kubectl("create", "-f", "-", stdin=json.dumps(namespace))
    try:
        if privileged:
            _demand_admission(target)
    except ClusterError:
        for name in new:
            target.kubectl("delete", "namespace", name, "--wait=false")
        raise


def check_admission(target: Target) -> None:
    """Raises ClusterError with the remedy if the namespace of Slurm exists and doesn't admit
    workers.
    """
    if exists(target, SLURM_NAMESPACE):
        _demand_admission(target)


def _demand_admission(target: Target) -> None:
    """Raises ClusterError unless the namespace of Slurm admits a pod as privileged as a worker."""
    found = ""

    def asked() -> bool:
        nonlocal found
        try:
            target.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(_PROBE))
            found = ""
        except ClusterError as error:
            found = str(error).splitlines()[-1]
        # A new namespace gets its ServiceAccount a moment later.
        return "error looking up service account" not in found

    until(asked, f"the ServiceAccount of namespace {SLURM_NAMESPACE}", 30)
    if found:
        raise ClusterError(admission_remedy(found))


def admission_remedy(refused: str) -> str:
    """What a user gets if the API server refuses the pod of a worker."""
    if "PodSecurity" in refused:
        remedy = (
            f"Allow them: kubectl label namespace {SLURM_NAMESPACE} {ENFORCE}=privileged "
            "--overwrite"
        )
    elif "exceeded quota" in refused or "failed quota" in refused:
        remedy = f"Enlarge the ResourceQuota of the namespace {SLURM_NAMESPACE}, or delete it."
    else:
        remedy = (
            "Have the policy changed that refuses privileged pods in the namespace "
            f"{SLURM_NAMESPACE}."
        )
    return (
        f"the namespace {SLURM_NAMESPACE} refuses the pods of workers, which are privileged "
        f"because slurmd starts jobs of all users. {remedy} Workers without privileges: "
        f"docs/rdma-topology.md. Nothing was installed.\n{refused}"
    )
