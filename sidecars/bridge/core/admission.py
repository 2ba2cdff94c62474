"""What the admission webhook answers: the changes of a new pod, first of all its scheduling gate.
Pure.

It does what the MutatingAdmissionPolicy of the chart does, for API servers without that kind. Both
have the conditions of one template of the chart, which the API server evaluates, so that it asks
about the pods that need a change alone.
"""

import base64
from typing import Any

import msgspec

from sidecars.bridge.core.manifests import Name
from sidecars.bridge.core.pods import Patch
from sidecars.contract import bridge

VERSION = "admission.k8s.io/v1"


_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


class NotAReviewError(ValueError):
    """What was sent isn't a question of an API server."""


class _Resource(msgspec.Struct, frozen=True):
    group: str = ""
    version: str = ""
    resource: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    scheduling_gates: tuple[Name, ...] | None = None
    node_name: str | None = None
    scheduler_name: str | None = None
    tolerations: tuple[dict[str, Any], ...] | None = None


class _Pod(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()


class _Request(msgspec.Struct, frozen=True, rename="camel"):
    uid: str
    operation: str
    resource: _Resource = _Resource()
    sub_resource: str = ""
    object: msgspec.Raw = msgspec.Raw(b"null")


class _Review(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    kind: str
    request: _Request


def answer(body: bytes) -> dict[str, Any]:
    """Return the AdmissionReview that answers the one in `body`: the pod may be created, as the
    bridge wants it.

    Anything but the creation of a pod is refused: a webhook that the API server asks about it is
    set up wrongly. Raises NotAReviewError for anything but an AdmissionReview.
    """
    try:
        review = msgspec.json.decode(body, type=_Review)
    except _UNREADABLE as error:
        raise NotAReviewError(f"not an AdmissionReview of {VERSION}: {error}") from error
    if (review.api_version, review.kind) != (VERSION, "AdmissionReview"):
        raise NotAReviewError(
            f"not an AdmissionReview of {VERSION}, but {review.kind} of {review.api_version}"
        )
    request = review.request
    asked = (request.operation, request.resource, request.sub_resource)
    if asked != ("CREATE", _Resource("", "v1", "pods"), ""):
        what = "/".join(it for it in (request.resource.resource, request.sub_resource) if it)
        text = (
            "the webhook of the Slurm Bridge is for new pods alone, and not for "
            f"{request.operation} of {what}"
        )
        return _review(
            {"uid": request.uid, "allowed": False, "status": {"code": 400, "message": text}}
        )
    try:
        pod = msgspec.json.decode(request.object, type=_Pod)
    except _UNREADABLE as error:
        text = f"the Slurm Bridge can't read the pod: {error}"
        return _review(
            {"uid": request.uid, "allowed": False, "status": {"code": 400, "message": text}}
        )
    response: dict[str, Any] = {"uid": request.uid, "allowed": True}
    patch = _changes(pod.spec)
    if patch:
        response |= {
            "patchType": "JSONPatch",
            "patch": base64.b64encode(msgspec.json.encode(patch)).decode(),
        }
    return _review(response)


def _changes(spec: _Spec) -> Patch:
    """Return what the bridge wants of a pod. None of a pod with a node, which can't have a gate."""
    return [] if spec.node_name else [*_gate(spec), *_scheduler(spec), *_tolerations(spec)]


def _gate(spec: _Spec) -> Patch:
    """Add the gate, unless the pod has it."""
    if any(it.name == bridge.GATE for it in spec.scheduling_gates or ()):
        return []
    if not spec.scheduling_gates:
        return [{"op": "add", "path": "/spec/schedulingGates", "value": [{"name": bridge.GATE}]}]
    return [{"op": "add", "path": "/spec/schedulingGates/-", "value": {"name": bridge.GATE}}]


def _scheduler(spec: _Spec) -> Patch:
    """Replace the scheduler of SchedMD's slurm-bridge by Kubernetes' own."""
    if spec.scheduler_name != bridge.THEIR_SCHEDULER:
        return []
    return [{"op": "replace", "path": "/spec/schedulerName", "value": bridge.KUBERNETES_SCHEDULER}]


def _tolerations(spec: _Spec) -> Patch:
    """Remove tolerations of the bridge's taint, which a pod gets when it is released."""
    written = spec.tolerations or ()
    kept = [it for it in written if it.get("key") != bridge.TAINT]
    if len(kept) == len(written):
        return []
    return [{"op": "replace", "path": "/spec/tolerations", "value": kept}]


def _review(response: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": VERSION, "kind": "AdmissionReview", "response": response}
