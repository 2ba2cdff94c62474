"""The table of merge keys: how it is built from an OpenAPI document, and what is in the one that
ships.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from schemas import merge_keys
from sidecars.workloads import merge

SHIPPED: dict[str, Any] = json.loads(
    (Path(merge.__file__).parent / "merge_keys.json").read_text(encoding="utf-8")
)


def swagger(**properties: Any) -> dict[str, Any]:
    """An OpenAPI document in which every root type is empty but Pod."""
    roots: dict[str, Any] = {name: {"type": "object"} for name in merge_keys.ROOTS}
    inner = {
        "io.k8s.api.core.v1.Inner": {"properties": {"list": {"items": {"type": "string"}}}},
        "io.k8s.api.core.v1.Ruled": {"properties": {"items": strategy("merge", "name")}},
        "io.k8s.api.other.v1.Ruled": {"properties": {}},
    }
    return {"definitions": roots | inner | {"io.k8s.api.core.v1.Pod": {"properties": properties}}}


def strategy(words: str, key: str | None = None, **more: Any) -> dict[str, Any]:
    """A property with Kubernetes' patch extensions."""
    keyed = {"x-kubernetes-patch-merge-key": key} if key else {}
    return {"x-kubernetes-patch-strategy": words} | keyed | more


def reference(name: str) -> dict[str, str]:
    """A reference to a type of the document."""
    return {"$ref": f"#/definitions/io.k8s.api.{name}"}


def test_rules_and_the_ways_to_them_are_kept() -> None:
    table = merge_keys.merge_table(
        swagger(
            items=strategy("merge,retainKeys", "name", items=reference("core.v1.Inner")),
            ruled=reference("core.v1.Ruled"),
            plain={"type": "string"},
            inner=reference("core.v1.Inner"),
        )
    )
    assert table == {
        "Pod": {
            "items": {"key": "name", "strategy": "merge,retainKeys"},
            "ruled": {"type": "Ruled"},
        },
        "Ruled": {"items": {"key": "name", "strategy": "merge"}},
    }


def test_keys_of_server_side_apply_are_kept_where_they_are_others() -> None:
    apply = "x-kubernetes-list-map-keys"
    table = merge_keys.merge_table(
        swagger(
            same=strategy("merge", "name", **{apply: ["name"]}),
            more=strategy("merge", "port", **{apply: ["port", "protocol"]}),
        )
    )
    assert table["Pod"] == {
        "same": {"key": "name", "strategy": "merge"},
        "more": {"key": "port", "keys": ["port", "protocol"], "strategy": "merge"},
    }


def test_two_types_of_one_name_are_refused() -> None:
    with pytest.raises(ValueError, match="both called Ruled"):
        merge_keys.merge_table(swagger(a=reference("core.v1.Ruled"), b=reference("other.v1.Ruled")))


@pytest.mark.parametrize(
    ("kind", "field", "key"),
    [
        ("PodSpec", "containers", "name"),
        ("PodSpec", "volumes", "name"),
        ("PodSpec", "imagePullSecrets", "name"),
        ("PodSpec", "topologySpreadConstraints", "topologyKey"),
        ("PodSpec", "evictionResponders", "name"),
        ("Container", "env", "name"),
        ("Container", "ports", "containerPort"),
        ("Container", "volumeMounts", "mountPath"),
        ("ServiceSpec", "ports", "port"),
    ],
)
def test_the_shipped_table_has_kubernetes_merge_keys(kind: str, field: str, key: str) -> None:
    assert SHIPPED[kind][field]["key"] == key


@pytest.mark.parametrize("kind", ["Pod", "StatefulSet", "Deployment"])
def test_the_shipped_table_leads_from_every_workload_to_the_containers(kind: str) -> None:
    at = kind
    for field in (
        ("spec", "containers") if kind == "Pod" else ("spec", "template", "spec", "containers")
    ):
        at = SHIPPED[at][field]["type"]
    assert at == "Container"


def test_without_its_one_argument_it_shows_its_usage(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert merge_keys.main([]) == 2
    assert "SWAGGER_JSON" in capsys.readouterr().err


def test_the_table_is_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = tmp_path / "swagger.json"
    document.write_text(json.dumps(swagger(items=strategy("merge", "name"))))
    assert merge_keys.main([str(document)]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "Pod": {"items": {"key": "name", "strategy": "merge"}}
    }
