"""A KRM function of kustomize."""

from typing import Any

import pytest

from postrender import krm, reading, writing
from postrender.errors import PostrenderError
from postrender.report import Run
from tests.support.streams import config_map

STEPS: list[dict[str, Any]] = [{"labels": {"set": {"team": "hpc"}}}]


def resource_list(function: dict[str, Any] | None, *items: dict[str, Any]) -> dict[str, Any]:
    more = {} if function is None else {"functionConfig": function}
    return {"apiVersion": krm.API_VERSION, "kind": krm.KIND, "items": list(items), **more}


def result(value: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = reading.load(
        krm.result(writing.document(value).encode(), Run()).decode()
    )
    return found


@pytest.mark.parametrize(
    "function",
    [
        {"kind": "Postrender", "spec": {"steps": STEPS}},
        {"kind": "ConfigMap", "data": {"steps": "- labels: {set: {team: hpc}}\n"}},
    ],
)
def test_the_steps_of_the_function_are_applied_to_the_items(function: dict[str, Any]) -> None:
    given = resource_list(function, config_map("one"), config_map("two", data={"a": "1e3"}))
    found = result(given)
    assert [it["metadata"].get("labels") for it in found["items"]] == [{"team": "hpc"}] * 2
    assert found["items"][1]["data"] == {"a": "1e3"}
    assert found["functionConfig"] == function
    assert result(found) == found


def test_a_list_that_no_step_changes_stays_as_it_is() -> None:
    text = writing.document(resource_list({"spec": {"steps": STEPS}})) + "# end\n"
    assert krm.result(text.encode(), Run()) == text.encode()


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (config_map("a"), "no configuration"),
        (resource_list(None), "no functionConfig"),
        (
            resource_list({"spec": {"steps": [{"x": {}}]}}),
            r"functionConfig: steps\[0\].x is unknown",
        ),
        (
            resource_list({"kind": "ConfigMap", "data": {"steps": "["}}),
            "functionConfig: data.steps line 1",
        ),
        (resource_list({"kind": "ConfigMap"}), "functionConfig: steps must be a list"),
    ],
)
def test_what_is_no_function_is_refused(value: dict[str, Any], message: str) -> None:
    with pytest.raises(PostrenderError, match=message):
        result(value)


@pytest.mark.parametrize("settings", [{"live": True}, {"before": "a.yaml", "output": "b.txt"}])
def test_steps_of_the_stream_neither_read_a_cluster_nor_write_a_file(
    settings: dict[str, Any],
) -> None:
    function = {"apiVersion": "a/v1", "kind": "F", "spec": {"steps": [{"preview": settings}]}}
    with pytest.raises(
        PostrenderError, match=r"neither reads a cluster \(`live`\) nor writes a file"
    ):
        result(
            resource_list(
                function, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}}
            )
        )


def test_the_file_of_an_item_stands_in_messages() -> None:
    item = config_map("a")
    item["metadata"]["annotations"] = {"config.kubernetes.io/path": "base/a.yaml"}
    function = {"spec": {"steps": [{"patch": {"json": [{"op": "remove", "path": "/x"}]}}]}}
    with pytest.raises(PostrenderError, match=r"document 1 \(base/a.yaml\), .*ConfigMap a"):
        result(resource_list(function, item))
