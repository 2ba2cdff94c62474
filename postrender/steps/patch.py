"""The step `patch`: a strategic merge patch, a JSON merge patch (RFC 7386) or a JSON patch (RFC
6902).
"""

from typing import Any, TypedDict

from postrender import jsonpatch, pods
from postrender.configuration import StepSettings
from postrender.errors import PostrenderError
from postrender.report import Run
from postrender.selectors import Selection, Selector
from postrender.stream import Manifest, Object, Stream


class Settings(TypedDict, total=False):
    """Of the step. One of the three kinds of patch must be set."""

    strategic: dict[str, Any]
    merge: dict[str, Any]
    json: list[dict[str, Any]]
    select: list[Selector]
    required: bool


def apply(stream: Stream, step: StepSettings[Settings], run: Run) -> None:
    """Apply the step."""
    settings = step.settings
    given = [name for name in ("strategic", "merge", "json") if name in settings]
    if len(given) != 1:
        raise PostrenderError(
            f"{step.place} needs one of strategic, merge and json, not "
            f"{' and '.join(given) or 'none'}"
        )
    for it in Selection(step, settings.get("select"), settings.get("required", False)).objects(
        stream
    ):
        try:
            if "strategic" in settings:
                value = strategic(it.value, settings["strategic"])
            elif "merge" in settings:
                value = jsonpatch.merged(it.value, settings["merge"])
            else:
                value = jsonpatch.patched(it.value, settings["json"])
        except PostrenderError as error:
            raise PostrenderError(f"{step.place}: {it.place()}: {error}") from None
        _check(it, value, step.place)
        it.replace(value)


def strategic(value: Manifest, patch: Manifest) -> Manifest:
    """Apply Kubernetes' strategic merge. In pod templates and containers it works also for kinds
    for which Kubernetes has none.
    """
    from sidecars.workloads import merge
    from sidecars.workloads.resources import ResourceError

    kind = str(value.get("kind") or "")
    parts: list[tuple[pods.Path, str]] = []
    if not merge.has_rules(kind):
        parts += [(path, "PodTemplateSpec") for path in pods.TEMPLATES.get(kind, ())]
        parts += [(("spec", name), "Container") for name in pods.CONTAINERS.get(kind, ())]
    try:
        result = merge.merge(value, patch, kind)
        for path, type_name in parts:
            part = pods.at(patch, path)
            if isinstance(part, dict):
                result = jsonpatch.put(
                    result, path, merge.merge(pods.at(value, path) or {}, part, type_name)
                )
    except ResourceError as error:
        raise PostrenderError(str(error)) from None
    return result


def _check(it: Object, value: Any, step: str) -> None:
    """Raise PostrenderError for a patch that turns an object into something else."""
    if (
        not isinstance(value, dict)
        or not value.get("kind")
        or not isinstance(value.get("metadata", {}), dict)
    ):
        raise PostrenderError(
            f"{step}: {it.place()}: no Kubernetes object would be left: it needs kind and metadata"
        )
