"""The step `namespace`: puts objects into a namespace, with the references to their ServiceAccounts
and Services.

Objects of kinds without a namespace stay as they are. What text contains, such as a DNS name, isn't
changed.
"""

from collections.abc import Callable
from typing import Any, TypedDict

from postrender import pods
from postrender.configuration import StepSettings
from postrender.report import Run
from postrender.selectors import Selection, Selector
from postrender.stream import Manifest, Object, Stream

CLUSTER_SCOPED = frozenset(
    {
        "APIService", "CSIDriver", "CSINode", "CertificateSigningRequest", "ClusterRole",
        "ClusterRoleBinding", "ClusterTrustBundle", "ComponentStatus", "CustomResourceDefinition",
        "DeviceClass", "FlowSchema", "IPAddress", "IngressClass", "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding", "MutatingWebhookConfiguration", "Namespace", "Node",
        "PersistentVolume", "PriorityClass", "PriorityLevelConfiguration", "ResourceSlice",
        "RuntimeClass", "ServiceCIDR", "StorageClass", "StorageVersionMigration",
        "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding",
        "ValidatingWebhookConfiguration", "VolumeAttachment", "VolumeAttributesClass",
    }
)  # fmt: skip
"""Kubernetes' own kinds without a namespace."""


class Settings(TypedDict, total=False):
    """Of the step."""

    name: str
    clusterScoped: list[str]
    select: list[Selector]
    required: bool


def apply(stream: Stream, step: StepSettings[Settings], run: Run) -> None:
    """Apply the step."""
    settings = step.settings
    name = settings["name"]
    everything = list(stream.objects())
    scoped = CLUSTER_SCOPED | set(settings.get("clusterScoped", ())) | _defined(everything)
    selected = Selection(step, settings.get("select"), settings.get("required", False)).objects(
        stream
    )
    moved = [it for it in selected if it.kind not in scoped]
    identities = {(it.kind, it.namespace or run.namespace, it.name) for it in moved}
    for it in everything:
        it.replace(_referring(it.value, identities, name, it.namespace or run.namespace))
    for it in moved:
        it.replace({**it.value, "metadata": {**it.metadata, "namespace": name}})


def _defined(everything: list[Object]) -> set[str]:
    """Return the kinds that the stream itself defines as without a namespace."""
    specs = [it.value.get("spec") for it in everything if it.kind == "CustomResourceDefinition"]
    found = [spec for spec in specs if isinstance(spec, dict) and spec.get("scope") == "Cluster"]
    return {str((spec.get("names") or {}).get("kind")) for spec in found}


def _referring(value: Manifest, moved: set[tuple[str, str, str]], name: str, own: str) -> Manifest:
    """Return an object whose references follow the objects that are moved."""

    def followed(kind: str, reference: Any) -> Any:
        if not isinstance(reference, dict) or "name" not in reference:
            return reference
        at = str(reference.get("namespace") or own)
        return (
            {**reference, "namespace": name}
            if (kind, at, str(reference["name"])) in moved
            else reference
        )

    kind = value.get("kind")
    if kind in ("RoleBinding", "ClusterRoleBinding") and isinstance(value.get("subjects"), list):
        subjects = [
            followed("ServiceAccount", it)
            if isinstance(it, dict) and it.get("kind") == "ServiceAccount"
            else it
            for it in value["subjects"]
        ]
        return {**value, "subjects": subjects}
    if kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"):
        for index in range(len(value.get("webhooks") or ())):
            value = _put(value, ("webhooks", index, "clientConfig", "service"), followed)
    return _put(value, ("spec", "service"), followed) if kind == "APIService" else value


def _put(value: Manifest, path: pods.Path, followed: Callable[[str, Any], Any]) -> Manifest:
    service = pods.at(value, path)
    changed: Manifest = (
        pods.put(value, path, followed("Service", service)) if service is not None else value
    )
    return changed
