"""The pods of a NodeSet, created from its template."""

from collections.abc import Sequence
from typing import cast

from sidecars.contract.annotations import POD_HOSTNAME
from sidecars.workloads import assembly, names
from sidecars.workloads.nodeset.claims import claims, daemon_claims
from sidecars.workloads.nodeset.naming import daemon_pod_name, hostname, index, pod_name
from sidecars.workloads.resources import Json, Manifest, NodeSet


def pod(
    nodeset: NodeSet,
    template: Manifest,
    ordinal: int,
    revision_hash: str,
    kube_node: str | None = None,
) -> Manifest:
    """Return the pod of an ordinal in StatefulSet mode, to be created. With `kube_node` it can run
    on that node only.
    """
    name, host = pod_name(nodeset, ordinal), hostname(nodeset, ordinal)
    labels = {names.POD_INDEX: index(nodeset, ordinal), names.SCALING_MODE: "StatefulSet"}
    created = _pod(nodeset, template, name, host, revision_hash, labels, claims(nodeset, ordinal))
    return created if kube_node is None else _on(created, kube_node)


def daemon_pod(
    nodeset: NodeSet, template: Manifest, kube_node: str, host: str, revision_hash: str
) -> Manifest:
    """Return the pod for a Kubernetes node in DaemonSet mode, to be created. `host` is its name in
    Slurm.
    """
    name = daemon_pod_name(nodeset, kube_node)
    labels = {names.SCALING_MODE: "DaemonSet"}
    created = _on(
        _pod(
            nodeset,
            template,
            name,
            host,
            revision_hash,
            labels,
            daemon_claims(nodeset, kube_node, host),
        ),
        kube_node,
    )
    metadata = created["metadata"]
    annotations = metadata.get("annotations", {}) | {names.KUBE_NODE: kube_node}
    return created | {
        "metadata": metadata | {"generateName": f"{nodeset.name}-", "annotations": annotations}
    }


def _pod(
    nodeset: NodeSet,
    template: Manifest,
    name: str,
    host: str,
    revision_hash: str,
    labels: dict[str, str],
    owned_claims: Sequence[Manifest],
) -> Manifest:
    metadata = template["metadata"]
    spec = template["spec"] | {"hostname": host}
    if owned_claims:
        templates = nodeset.spec.volume_claim_templates or ()
        volumes = {
            wanted["metadata"]["name"]: {"claimName": claim["metadata"]["name"]}
            for wanted, claim in zip(templates, owned_claims, strict=True)
        }
        spec["volumes"] = [
            volume for volume in spec.get("volumes", ()) if volume["name"] not in volumes
        ] + [
            {"name": volume, "persistentVolumeClaim": source} for volume, source in volumes.items()
        ]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata
        | {
            "name": name,
            "namespace": nodeset.namespace,
            "labels": metadata["labels"]
            | {names.POD_NAME: name, POD_HOSTNAME: host, names.REVISION_HASH: revision_hash}
            | labels,
            "ownerReferences": [assembly.owner_reference(nodeset)],
        },
        "spec": spec,
    }


def _on(pod: Manifest, kube_node: str) -> Manifest:
    spec = pod["spec"]
    return pod | {"spec": spec | {"affinity": _pinned(spec.get("affinity") or {}, kube_node)}}


def _pinned(affinity: Json, kube_node: str) -> Json:
    """Return the affinity, restricted to this node. Terms are alternatives, so that each of them
    gets the condition.
    """
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    node_affinity = affinity.get("nodeAffinity") or {}
    terms = (node_affinity.get(required) or {}).get("nodeSelectorTerms") or [{}]
    match = {"key": "metadata.name", "operator": "In", "values": [kube_node]}
    pinned = [cast("Json", term) | {"matchFields": [match]} for term in terms]
    return affinity | {"nodeAffinity": node_affinity | {required: {"nodeSelectorTerms": pinned}}}
