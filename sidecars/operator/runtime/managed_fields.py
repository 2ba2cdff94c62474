"""The fields that SchedMD's operator has set on objects which this operator takes over.

Server-side apply removes a field only if its manager alone owns it. SchedMD's operator creates and
patches objects, so it stays an owner of all that it has set, such as the volumes of its pod
templates, and an apply that lacks them keeps them. Once its fields belong to the manager that
applies, the next apply removes those that it lacks. This is the technique of client-go's csaupgrade
(https://pkg.go.dev/k8s.io/client-go/util/csaupgrade). Other managers, such as kubectl or an
autoscaler, keep their fields.
"""

from collections.abc import Sequence
from typing import Any

from sidecars.kube import Manifest

FORMER_MANAGER = "manager"
"""The field manager of SchedMD's operator: it names none, so the API server takes the name of its
program.
"""


_NONE: dict[str, Any] = {}


def has_former(live: Manifest) -> bool:
    """Return whether SchedMD's operator owns fields of the object, and not only labels and
    annotations.

    Programs of others are called `manager` too.
    """
    entries = filter(_is_former, live["metadata"].get("managedFields") or ())
    return any(name != "f:metadata" for entry in entries for name in entry.get("fieldsV1") or ())


def _is_former(entry: dict[str, Any]) -> bool:
    """Return whether an entry of metadata.managedFields is that of SchedMD's operator. It never
    writes by a subresource.
    """
    return (
        entry.get("manager") == FORMER_MANAGER
        and entry.get("operation") == "Update"
        and not entry.get("subresource")
    )


def is_set_by_former(live: Manifest, *path: str) -> bool:
    """Return whether SchedMD's operator, and no other client, has set the field: its names from the
    outermost one on.
    """
    entries = live["metadata"].get("managedFields") or ()
    managers = [entry for entry in entries if _sets(entry.get("fieldsV1") or {}, path)]
    return bool(managers) and all(map(_is_former, managers))


def _sets(fields: dict[str, Any], path: Sequence[str]) -> bool:
    for name in path:
        fields = fields.get(f"f:{name}", _NONE)
    return fields is not _NONE


def handed_over(live: Manifest, to: str) -> list[dict[str, Any]]:
    """metadata.managedFields with the fields of SchedMD's operator given to the manager `to`, which
    applies.
    """
    entries = live["metadata"].get("managedFields") or []
    united = [entry for entry in entries if _is_former(entry) or _is_applied_by(entry, to)]
    fields: dict[str, Any] = {}
    for entry in united:
        fields = _union(fields, entry.get("fieldsV1") or {})
    last = united[-1] if united else {}
    mine = {**last, "manager": to, "operation": "Apply", "fieldsV1": fields}
    return [*(entry for entry in entries if entry not in united), mine]


def _is_applied_by(entry: dict[str, Any], manager: str) -> bool:
    return (
        entry.get("manager") == manager
        and entry.get("operation") == "Apply"
        and not entry.get("subresource")
    )


def _union(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    return {key: _union(one.get(key, {}), other.get(key, {})) for key in {**one, **other}}
