"""The PersistentVolumeClaims of worker pods."""

from sidecars.workloads import names
from sidecars.workloads.nodeset.naming import pod_name, selector
from sidecars.workloads.resources import Manifest, NodeSet, ResourceError


def claims(nodeset: NodeSet, ordinal: int) -> list[Manifest]:
    """Return the PersistentVolumeClaims that a pod needs, without owners. They are created before
    the pod and never changed.

    In the order of spec.volumeClaimTemplates. Raises ResourceError for a template without a name.
    """
    return _claims(nodeset, pod_name(nodeset, ordinal), {})


def daemon_claims(nodeset: NodeSet, kube_node: str, host: str) -> list[Manifest]:
    """Return the same for a pod in DaemonSet mode."""
    return _claims(nodeset, f"{nodeset.name}-{host}", {names.KUBE_NODE: kube_node})


def _claims(nodeset: NodeSet, suffix: str, more: dict[str, str]) -> list[Manifest]:
    found = []
    for index, template in enumerate(nodeset.spec.volume_claim_templates or ()):
        metadata = template.get("metadata") or {}
        if not metadata.get("name"):
            raise ResourceError(
                f"spec.volumeClaimTemplates[{index}].metadata.name", "must not be empty"
            )
        annotations = dict(metadata.get("annotations") or {}) | more
        found.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {
                    "name": names.claim(metadata["name"], suffix),
                    "namespace": nodeset.namespace,
                    "labels": (metadata.get("labels") or {}) | selector(nodeset),
                }
                | ({"annotations": annotations} if annotations else {}),
                "spec": template.get("spec") or {},
            }
        )
    return found
