"""The custom resource definitions and the page about them; what they refuse is tested with a real API server."""

from collections.abc import Iterator
from typing import Any

import pytest

from schemas import definitions


def every_schema(schema: dict[str, Any], path: str) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, child in schema.get("properties", {}).items():
        yield from every_schema(child, f"{path}.{name}")
    if "items" in schema:
        yield from every_schema(schema["items"], f"{path}[]")


@pytest.mark.parametrize("kind", definitions.KINDS)
def test_every_field_is_described_but_those_of_kubernetes_own_shapes(kind: str) -> None:
    kubernetes = (
        "selector.",
        "dataSource",
        "volumeClaimTemplates[]",
        "accessModes[]",
        "Refs[]",
        "endpoints[]",
        "flags[]",
    )
    spec = definitions.load(kind)["spec"]
    silent = [path for path, schema in every_schema(spec, "spec") if "description" not in schema]
    assert [path for path in silent if not any(part in path for part in kubernetes)] == []


@pytest.mark.parametrize("kind", definitions.KINDS)
def test_every_list_and_text_of_a_spec_is_bounded(kind: str) -> None:
    unbounded = []
    for path, schema in every_schema(definitions.load(kind)["spec"], "spec"):
        if schema.get("type") == "array" and "maxItems" not in schema:
            unbounded.append(path)
        if schema.get("type") == "string" and not schema.keys() & {"maxLength", "enum", "format"}:
            unbounded.append(path)
    assert unbounded == []


def test_columns_of_the_kind_come_before_those_of_all_kinds() -> None:
    version = definitions.definition("Token")["spec"]["versions"][0]
    names = [column["name"] for column in version["additionalPrinterColumns"]]
    assert names == ["User", "IAT", "Expires", "Age", "Status", "Message"]


def test_only_pools_scale() -> None:
    scaling = {
        kind
        for kind in definitions.KINDS
        if "scale" in definitions.definition(kind)["spec"]["versions"][0]["subresources"]
    }
    assert scaling == {"LoginSet", "NodeSet"}


def test_the_page_shows_fields_defaults_and_rules() -> None:
    page = definitions.page()
    assert "| `spec.scalingMode` | `StatefulSet`, `DaemonSet` | `StatefulSet` |" in page
    assert "| `spec.controllerRef` | object | required |" in page
    assert "- cannot change controllerRef after deployment" in page
