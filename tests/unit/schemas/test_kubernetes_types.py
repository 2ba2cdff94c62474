"""Kubernetes' own types as parts of schemas."""

import pytest

from schemas import kubernetes_types


def test_a_type_has_the_fields_of_the_oldest_and_of_newer_kubernetes() -> None:
    fields = kubernetes_types.definition("PodResourceClaim")["properties"]
    assert "source" in fields, "of Kubernetes 1.29"
    assert "resourceClaimName" in fields, "of Kubernetes 1.31 and newer"


def test_a_type_has_fields_that_only_a_version_in_between_has() -> None:
    fields = kubernetes_types.definition("PodSpec")["properties"]
    assert "workloadRef" in fields, "of Kubernetes 1.35"
    assert "resourceClaims" in fields, "of all versions"


def test_unknown_fields_are_refused_and_null_is_taken() -> None:
    toleration = kubernetes_types.definition("Toleration")
    assert toleration["additionalProperties"] is False
    assert "null" in toleration["properties"]["key"]["type"]
    assert "Exists" in toleration["properties"]["operator"]["enum"]


def test_a_number_or_text_is_a_list_of_types() -> None:
    assert set(kubernetes_types.definition("Quantity")["type"]) == {"string", "number", "null"}


def test_a_part_of_a_probe_needs_no_port_because_it_is_merged_over_that_of_the_pod() -> None:
    assert "required" not in kubernetes_types.definition("HTTPGetAction")
    assert kubernetes_types.definition("ContainerPort")["required"] == ["containerPort"]


def test_all_types_that_a_schema_needs_are_found() -> None:
    found = kubernetes_types.definitions({"items": {"$ref": "#/definitions/EnvVar"}})
    assert {"EnvVar", "EnvVarSource", "SecretKeySelector"} <= found.keys()
    assert kubernetes_types.references(found) <= found.keys()


def test_a_type_that_kubernetes_does_not_have_is_an_error() -> None:
    with pytest.raises(KeyError):
        kubernetes_types.definition("Tolerance")
