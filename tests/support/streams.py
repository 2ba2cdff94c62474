"""Streams of a post-renderer, and steps applied to them."""

from typing import Any

from postrender import configuration, steps, writing
from postrender.report import Run
from postrender.stream import Stream


def stream(*objects: dict[str, Any]) -> Stream:
    """A stream of objects as Helm 3 writes it: that of number N has the source
    `chart/templates/N.yaml`.
    """
    parts = [
        f"---\n# Source: chart/templates/{number}.yaml\n{writing.document(it)}"
        for number, it in enumerate(objects, start=1)
    ]
    return Stream.read("".join(parts).encode())


def config_map(name: str, **fields: Any) -> dict[str, Any]:
    """A ConfigMap; `fields` of the object beside its metadata, `labels` among them."""
    labels = {"labels": fields.pop("labels")} if "labels" in fields else {}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, **labels}, **fields}


def applied(given: Stream, *wanted: dict[str, Any], run: Run | None = None) -> Stream:
    """The stream after steps, such as `{"labels": {…}}`, as read again from what is written."""
    steps.apply(
        given, configuration.steps({"steps": list(wanted)}, "postrender.yaml"), run or Run()
    )
    return Stream.read(given.written())


def objects(given: Stream) -> list[dict[str, Any]]:
    """All objects of a stream."""
    return [it.value for it in given.objects()]
