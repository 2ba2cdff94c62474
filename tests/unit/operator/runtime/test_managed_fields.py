"""Whose fields an object's are: `sidecars.operator.runtime.managed_fields`."""

from typing import Any

from sidecars.kube import Manifest
from sidecars.operator.runtime import managed_fields


def entry(
    manager: str, operation: str = "Update", fields: Any = None, **more: str
) -> dict[str, Any]:
    return {
        "manager": manager,
        "operation": operation,
        "apiVersion": "v1",
        "fieldsV1": fields or {},
        **more,
    }


def service(*entries: dict[str, Any]) -> Manifest:
    return {"metadata": {"name": "login", "managedFields": list(entries)}}


THEIRS = entry(
    "manager",
    fields={"f:spec": {"f:type": {}, "f:ports": {'k:{"port":22}': {".": {}, "f:port": {}}}}},
)
OURS = entry("slurm-operator", "Apply", {"f:spec": {"f:selector": {}}})


def test_the_fields_of_schedmds_operator_are_added_to_those_that_we_apply() -> None:
    found = managed_fields.handed_over(service(THEIRS, OURS), "slurm-operator")
    assert [(it["manager"], it["operation"]) for it in found] == [("slurm-operator", "Apply")]
    assert found[0]["fieldsV1"] == {"f:spec": {**THEIRS["fieldsV1"]["f:spec"], "f:selector": {}}}


def test_without_an_apply_of_ours_they_become_one() -> None:
    [found] = managed_fields.handed_over(service(THEIRS), "slurm-operator")
    assert found == {**THEIRS, "manager": "slurm-operator", "operation": "Apply"}


def test_other_managers_keep_their_fields() -> None:
    others = (
        entry("kubectl-edit", fields={"f:spec": {"f:type": {}}}),
        entry("kube-controller-manager", subresource="scale"),
        entry("manager", subresource="status"),
        entry("manager", "Apply"),
        entry("slurm-operator", "Update"),
    )
    found = managed_fields.handed_over(service(*others, THEIRS), "slurm-operator")
    assert found[:-1] == list(others)


def test_only_an_entry_of_theirs_makes_an_object_theirs() -> None:
    assert managed_fields.has_former(service(OURS, THEIRS))
    assert not managed_fields.has_former(service(OURS, entry("manager", subresource="status")))
    assert not managed_fields.has_former({"metadata": {}})


def test_labels_and_annotations_alone_do_not_make_an_object_theirs() -> None:
    # Programs of others have the same name.
    annotated = entry("manager", fields={"f:metadata": {"f:annotations": {"f:backup": {}}}})
    assert not managed_fields.has_former(service(OURS, annotated))
