"""The step `check`: what is wrong with a stream before it is applied, found by the operator's own
code.
"""

import re
from collections.abc import Iterator, Mapping
from typing import TypedDict

from postrender import pods
from postrender.configuration import StepSettings
from postrender.report import Run, Severity, finding
from postrender.stream import Object, Stream

DEFAULTS: Mapping[str, Severity] = {
    "configuration-error": "error",
    "configuration-warning": "warning",
    "duplicate-object": "error",
    "image-digest": "ignore",
    "image-tag": "warning",
    "invalid-resource": "error",
    "missing-reference": "info",
    "privileged": "warning",
    "resources": "ignore",
}
"""The rules, with their severity where the configuration sets none."""

GROUP = "slinky.slurm.net/"
HOOK = "helm.sh/hook"

_TAG = re.compile(r"(?P<tag>:[A-Za-z0-9_][A-Za-z0-9_.-]*)?(?P<digest>@sha256:[0-9a-f]{64})?\Z")

Found = tuple[str, Object, pods.Path, str]
"""A finding: its rule, the object, where in the object, and the message."""


class Settings(TypedDict, total=False):
    """Of the step."""

    severity: dict[str, Severity]


def apply(stream: Stream, step: StepSettings[Settings], run: Run) -> None:
    """Apply the step."""
    severities = {**DEFAULTS, **step.settings.get("severity", {})}
    everything = list(stream.objects())
    for rule, it, path, message in found(everything, run.namespace):
        if severities[rule] != "ignore":
            run.add(finding(rule, severities[rule], it, path, message))


def found(everything: list[Object], namespace: str) -> Iterator[Found]:
    """Yield all findings. `namespace`: of objects that name none."""
    yield from _duplicates(everything, namespace)
    for it in everything:
        yield from _images(it)
        yield from _privileged(it)
        yield from _resources(it)
    if any(str(it.value.get("apiVersion", "")).startswith(GROUP) for it in everything):
        from postrender import clusters

        yield from clusters.found(everything, namespace)


def _duplicates(everything: list[Object], namespace: str) -> Iterator[Found]:
    seen: dict[tuple[str, str, str, str], Object] = {}
    for it in everything:
        if HOOK in (it.metadata.get("annotations") or {}):
            continue  # hooks of different events may have one name
        group = str(it.value.get("apiVersion") or "").rpartition("/")[0]
        first = seen.setdefault((group, it.kind, it.namespace or namespace, it.name), it)
        if first is not it and it.name:
            yield (
                "duplicate-object",
                it,
                ("metadata", "name"),
                f"the same object as in {first.place()}: remove one",
            )


def _images(it: Object) -> Iterator[Found]:
    for path, image in pods.images(it.value):
        if path[-1] == "value" or not image:
            continue
        tagged = _TAG.search(image.rpartition("/")[2])
        tag, digest = (tagged["tag"], tagged["digest"]) if tagged is not None else (None, None)
        if digest is None:
            yield "image-digest", it, path, f"{image} has no digest: another image can get its tag"
            if tag in (None, ":latest"):
                yield (
                    "image-tag",
                    it,
                    path,
                    f"{image} can be another image at each start: use the tag of a version",
                )


def _privileged(it: Object) -> Iterator[Found]:
    for path, container in pods.containers(it.value):
        if pods.at(container, ("securityContext", "privileged")) is True:
            yield (
                "privileged",
                it,
                (*path, "securityContext", "privileged"),
                "a privileged container",
            )
    for path, spec in pods.specs(it.value):
        for field in ("hostNetwork", "hostPID", "hostIPC"):
            if spec.get(field) is True:
                yield "privileged", it, (*path, field), f"a pod with {field}"
        volumes = spec.get("volumes")
        for index, volume in enumerate(volumes if isinstance(volumes, list) else ()):
            host = pods.at(volume, ("hostPath", "path"))
            if host is not None:
                yield (
                    "privileged",
                    it,
                    (*path, "volumes", index),
                    f"a pod with {host} of the Kubernetes node",
                )


def _resources(it: Object) -> Iterator[Found]:
    for path, container in pods.containers(it.value):
        resources = container.get("resources")
        resources = resources if isinstance(resources, dict) else {}
        if not resources.get("requests") and not resources.get("limits"):
            name = container.get("name") or path[-1]
            yield "resources", it, path, f"the container {name} has neither requests nor limits"
