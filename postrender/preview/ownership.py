"""Which fields of a live object Helm doesn't change: those that it has never set.

Helm 3 removes what its former release has set, Helm 4 what its field manager owns. The API server
records both in `metadata.managedFields`
(https://kubernetes.io/docs/reference/using-api/server-side-apply/#field-management).
"""

from collections.abc import Mapping
from typing import Any

from postrender.expand.cluster import is_custom
from sidecars.workloads.resources import Manifest

_SIZE = "replicas"
APPLIERS = frozenset({"helm", "helm-controller", "argocd-controller"})
"""Field managers that apply a chart: of Helm, Flux and Argo CD."""


def retained(after: Manifest, live: Manifest, former: Manifest | None = None) -> Manifest:
    """Return the object after an upgrade: with the fields of the live one that no applier has set.
    Only custom resources, ConfigMaps and Secrets are changed. Others have defaults, which are
    recorded as Helm's. Without a record in the live one, the object is returned as it is.

    `former`: as the chart had it in the release that is upgraded; None if that is unknown.
    """
    managers = live["metadata"].get("managedFields") or ()
    if not managers:
        return after
    ours = [it for it in managers if it.get("manager") in APPLIERS]
    owned: dict[str, Any] = {}
    for it in ours:
        owned = _united(owned, it.get("fieldsV1") or {})
    in_parts = any(it.get("operation") == "Apply" for it in ours)
    if is_custom(after) and _SIZE in (after.get("spec") or {}) and scaled_by(live):
        before = after if former is None else former
        if (before.get("spec") or {}).get(_SIZE) == after["spec"][_SIZE]:
            after = {**after, "spec": {**after["spec"], _SIZE: live["spec"][_SIZE]}}
    result = dict(after)
    for field in _fields(after):
        one, other = after.get(field) or {}, live.get(field) or {}
        found = _retained(one, other, owned.get(f"f:{field}", {}), in_parts=in_parts)
        if found:
            result[field] = found
    return result


def scaled_by(live: Manifest) -> str:
    """Return the client that has set the size last, such as `kubectl`. Return "" if a program that
    applies charts has, or none is recorded.

    Helm 3 compares the chart with its former release, and changes the number only if the
    chart's own differs. Helm 4 refuses the upgrade.
    """
    if (live.get("spec") or {}).get(_SIZE) is None:
        return ""
    owners = [
        str(it.get("manager"))
        for it in live["metadata"].get("managedFields") or ()
        if f"f:{_SIZE}" in ((it.get("fieldsV1") or {}).get("f:spec") or {})
    ]
    return owners[0] if owners and APPLIERS.isdisjoint(owners) else ""


def _fields(manifest: Manifest) -> tuple[str, ...]:
    if is_custom(manifest):
        return ("spec",)
    return ("data", "binaryData") if manifest.get("kind") in {"ConfigMap", "Secret"} else ()


def _retained(
    after: Mapping[str, Any], live: Mapping[str, Any], owned: Mapping[str, Any], *, in_parts: bool
) -> dict[str, Any]:
    """`in_parts`: of a map that the chart has dropped, only the fields are removed that are
    owned.
    """
    result = dict(after)
    for key, value in live.items():
        mine = owned.get(f"f:{key}")
        if key in after:
            if isinstance(value, dict) and isinstance(after[key], dict):
                result[key] = _retained(after[key], value, mine or {}, in_parts=in_parts)
        elif mine is None:
            result[key] = value
        elif in_parts and mine and isinstance(value, dict):
            rest = _retained({}, value, mine, in_parts=True)
            if rest:
                result[key] = rest
    return result


def _united(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _united(one.get(key, {}), other.get(key, {})) for key in {**one, **other}}
