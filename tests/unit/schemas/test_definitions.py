"""The custom resource definitions and the page about them; what they refuse is tested with a real
API server.
"""

import re
from collections.abc import Iterator
from typing import Any

import pytest

from schemas import definitions, resource_fields


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
    spec = resource_fields.load(kind)["spec"]
    silent = [path for path, schema in every_schema(spec, "spec") if "description" not in schema]
    assert [path for path in silent if not any(part in path for part in kubernetes)] == []


@pytest.mark.parametrize("kind", definitions.KINDS)
def test_every_list_and_text_of_a_spec_is_bounded(kind: str) -> None:
    unbounded = []
    for path, schema in every_schema(resource_fields.load(kind)["spec"], "spec"):
        if schema.get("type") == "array" and "maxItems" not in schema:
            unbounded.append(path)
        if schema.get("type") == "string" and not schema.keys() & {"maxLength", "enum", "format"}:
            unbounded.append(path)
    assert unbounded == []


def test_columns_of_the_kind_come_before_those_of_all_kinds() -> None:
    version = definitions.definition("Token")["spec"]["versions"][0]
    names = [column["name"] for column in version["additionalPrinterColumns"]]
    assert names == ["User", "IAT", "Expires", "Age", "Status", "Message"]


def test_only_nodesets_scale() -> None:
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


TEXTS = {"extraConf", "extraSshdConfig", "rootSshAuthorizedKeys", "checks{}"}
"""Whole files or parts of one, of as many lines as the user likes."""

OBJECTS = re.compile(
    r"(.*Refs?(\[\])?\.(name|key|namespace)|persistence\..*|volumeClaimTemplates\[\]\..*|.*\.(labels|annotations)\{\}"
    r"|metrics\.serviceMonitor\.endpoints\[\]\.path|updateStrategy\.scheduledUpdate\.flags\[\])"
)
"""Names and fields of Kubernetes objects, or of requests to Slurm: they are no part of a file."""


def strings(schema: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    """All strings of a schema by their path."""
    if schema.get("type") == "string":
        yield path.removeprefix("."), schema
    for name, inner in schema.get("properties", {}).items():
        yield from strings(inner, f"{path}.{name}")
    if "items" in schema:
        yield from strings(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        yield from strings(schema["additionalProperties"], f"{path}{{}}")


@pytest.mark.parametrize("kind", definitions.KINDS)
def test_no_string_that_reaches_a_file_can_have_a_line_break(kind: str) -> None:
    manifests = definitions.custom_resource_definitions()
    manifest = next(it for it in manifests if it["spec"]["names"]["kind"] == kind)
    [version] = manifest["spec"]["versions"]
    for path, schema in strings(version["schema"]["openAPIV3Schema"]["properties"]["spec"]):
        if (
            path.rpartition(".")[2] in TEXTS
            or OBJECTS.fullmatch(path)
            or {"enum", "format"} & schema.keys()
        ):
            continue
        assert "pattern" in schema, f"{path} may contain anything: give it a pattern"
        # `$` is the end of the text to the API server, and to Python with \Z alone.
        pattern = re.compile(schema["pattern"].replace("$", r"\Z"))
        for text in ("a\nb", "a\n", "\na", "/a\nb", "a/b\nc", "5m\n"):
            assert not pattern.search(text), f"{path} takes {text!r}"


def test_the_numbers_that_operators_watch_are_shown_without_o_wide() -> None:
    [version] = definitions.definition("NodeSet")["spec"]["versions"]
    columns = version["additionalPrinterColumns"]
    shown = [column["name"] for column in columns if not column.get("priority")]
    assert shown == ["Desired", "Ready", "Idle", "Allocated", "Down", "Drain", "Age", "Status"]
    assert "Message" in {column["name"] for column in columns if column.get("priority") == 1}
