"""What the objects of every kind get: owner, labels, and the custom resource's overrides."""

from collections.abc import Iterable, Mapping
from typing import Any

from sidecars.workloads import merge, names
from sidecars.workloads.resources import (
    API_VERSION,
    Json,
    Manifest,
    PodTemplate,
    Resource,
    ResourceError,
    Service,
)

_TOOLS = frozenset(
    {
        "helm.sh/chart",
        "app.kubernetes.io/managed-by",
        "app.kubernetes.io/version",
        "kubectl.kubernetes.io/last-applied-configuration",
    }
)
_TOOLS_PREFIXES = (
    "meta.helm.sh/",
    "argocd.argoproj.io/",
    "kustomize.toolkit.fluxcd.io/",
    "helm.toolkit.fluxcd.io/",
    "postrenderer.helm.sh/",
)


def labels(owner: Resource) -> dict[str, str]:
    """Return the owner's labels for its objects: all but those of deployment tools. Those change
    with every release of a chart, and a changed pod template restarts pods.
    """
    return without_tools(owner.metadata.labels)


def annotations(owner: Resource) -> dict[str, str]:
    """Return the owner's annotations for its objects: all but those of tools, and those that set
    something for the owner.
    """
    return {
        key: value
        for key, value in without_tools(owner.metadata.annotations).items()
        if key not in {names.KEYS_SETTLE, names.SIDECARS_IMAGE}
    }


def without_tools(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """Labels or annotations without those of deployment tools."""
    return {
        key: value
        for key, value in (metadata or {}).items()
        if key not in _TOOLS and not key.startswith(_TOOLS_PREFIXES)
    }


def owner_reference(owner: Resource, *, controller: bool = True) -> Json:
    """Return the owner reference, by which the object is deleted with its owner."""
    reference = {
        "apiVersion": API_VERSION,
        "kind": owner.kind,
        "name": owner.name,
        "uid": owner.metadata.uid,
        "blockOwnerDeletion": True,
    }
    return reference | ({"controller": True} if controller else {})


def owned(manifest: Manifest, owner: Resource) -> Manifest:
    """Return the object in its owner's namespace, with its owner. Its own labels and annotations
    win over the owner's.
    """
    metadata = manifest["metadata"]
    return manifest | {
        "metadata": _tidy(
            metadata
            | {
                "namespace": owner.namespace,
                "labels": labels(owner) | metadata.get("labels", {}),
                "annotations": annotations(owner) | metadata.get("annotations", {}),
                "ownerReferences": [owner_reference(owner)],
            }
        )
    }


def ownerless(manifest: Manifest) -> Manifest:
    """Return the object without its owner, who doesn't exist where no operator runs."""
    return manifest | {
        "metadata": {
            key: it for key, it in manifest["metadata"].items() if key != "ownerReferences"
        }
    }


def _tidy(metadata: Json) -> Json:
    return {key: value for key, value in metadata.items() if value not in ({}, [])}


def pod_template(
    base: Json, owner: Resource, user: PodTemplate, containers: Mapping[str, Json]
) -> Json:
    """{metadata, spec} of our pods with the custom resource's overrides on it.

    `containers` maps our containers' names to their overrides, which stand in the field of that
    name in spec. Labels and annotations: the owner's, then the template's, then ours, the later
    over the earlier. Those of deployment tools are left out of both: SchedMD's chart puts them on
    templates too. If the template has resources of the pod as a whole, our containers have no
    requests, whose sum could be more than those. Raises ResourceError.
    """
    spec = dict(base["spec"])
    for field in ("initContainers", "containers"):
        if field in spec:
            ours = (
                [_without_resources(item) for item in spec[field]]
                if user.spec.get("resources")
                else spec[field]
            )
            spec[field] = [
                merge.container(item, containers.get(item["name"], {}), f"spec.{item['name']}")
                for item in ours
            ]
    metadata = base.get("metadata", {})
    return {
        "metadata": _tidy(
            {
                "labels": labels(owner)
                | without_tools(user.metadata.labels)
                | metadata.get("labels", {}),
                "annotations": annotations(owner)
                | without_tools(user.metadata.annotations)
                | metadata.get("annotations", {}),
            }
        ),
        "spec": merge.pod_spec(spec, user.spec, "spec.template.spec"),
    }


def _without_resources(item: Json) -> Json:
    return {key: value for key, value in item.items() if key != "resources"}


def service(base: Manifest, owner: Resource, user: Service) -> Manifest:
    """Return our Service with the custom resource's `spec.service` on it, owned.

    The user's ports come first and ours is added; `port` and `nodePort` change ours. `externalIPs`
    is dropped: whoever may write it can take over other people's traffic (CVE-2020-8554). Raises
    ResourceError for a duplicate port, and for the type ExternalName, with which clients of Slurm
    would send their credentials to any host.
    """
    wanted = merge.chosen(user.spec)
    if wanted.get("type") == "ExternalName":
        raise ResourceError(
            "spec.service.spec.type",
            "ExternalName is refused: use ClusterIP, NodePort or LoadBalancer",
        )
    wanted.pop("externalIPs", None)
    ours = dict(base["spec"]["ports"][0])
    if user.port:
        ours["port"] = user.port
    if user.node_port:
        ours["nodePort"] = user.node_port
    ports = wanted.pop("ports", [])
    for port in ports:
        if port.get("name") == ours["name"] or (port.get("port"), port.get("protocol", "TCP")) == (
            ours["port"],
            "TCP",
        ):
            raise ResourceError(
                "spec.service.spec.ports",
                f"port {ours['name']!r} ({ours['port']}) already exists; use spec.service.port to "
                "change it",
            )
    selector = dict(wanted.pop("selector", {})) | base["spec"]["selector"]
    manifest = base | {
        "metadata": base["metadata"]
        | {
            "labels": dict(user.metadata.labels or {}) | base["metadata"].get("labels", {}),
            "annotations": dict(user.metadata.annotations or {})
            | base["metadata"].get("annotations", {}),
        },
        "spec": base["spec"] | wanted | {"selector": selector, "ports": [*ports, ours]},
    }
    return owned(manifest, owner)


def find(manifests: Iterable[Manifest], kind: str, name: str | None = None) -> Manifest:
    """Return the object of this kind (and name) among those rendered. Raises LookupError."""
    for manifest in manifests:
        if manifest["kind"] == kind and name in (None, manifest["metadata"]["name"]):
            return manifest
    raise LookupError(f"no {kind} {name or ''} was rendered")


def containers_of(spec: Json) -> list[Json]:
    """Return the init containers and containers of a PodSpec: the very objects, in their order."""
    return [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]


def container(spec: Json, name: str) -> Json:
    """Return the container or init container of this name in a PodSpec. Raises LookupError."""
    for item in containers_of(spec):
        if item["name"] == name:
            return item
    raise LookupError(f"no container {name}")


def text(value: Any, field: str) -> str:
    """Return a value for a line of a configuration file. Raises ResourceError if it could start
    another line.
    """
    found = str(value)
    if any(not character.isprintable() for character in found):
        raise ResourceError(field, f"{found!r} has a line break or another unprintable character")
    return found
