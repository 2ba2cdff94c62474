"""Labels and annotations of objects and of their pods: what the steps `labels` and `annotations`
have in common.
"""

from collections.abc import Sequence
from typing import Any, Literal, TypedDict

from postrender import pods
from postrender.configuration import StepSettings
from postrender.selectors import Selection, Selector
from postrender.stream import FILE_ANNOTATION, Manifest, Stream

Field = Literal["labels", "annotations"]


class Settings(TypedDict, total=False):
    """Of both steps."""

    set: dict[str, str]
    remove: list[str]
    pods: bool
    select: list[Selector]
    required: bool


def apply(stream: Stream, step: StepSettings[Settings], field: Field) -> None:
    """Set and remove keys of a field of the selected objects' metadata."""
    settings = step.settings
    selection = Selection(step, settings.get("select"), settings.get("required", False))
    for it in selection.objects(stream):
        value = changed(it.value, ("metadata",), field, settings)
        for path in pods.TEMPLATES.get(it.kind, ()) if settings.get("pods") else ():
            value = changed(value, (*path, "metadata"), field, settings)
        it.replace(value)


def changed(value: Manifest, path: Sequence[str], field: Field, settings: Settings) -> Manifest:
    """Return an object with the keys set and removed at `path`, which may be absent."""
    if path:
        inner = value.get(path[0])
        new = changed(inner if isinstance(inner, dict) else {}, path[1:], field, settings)
        return {**value, path[0]: new} if new or inner is not None else value
    before = value.get(field)
    before = before if isinstance(before, dict) else {}
    removed = set(settings.get("remove", ())) - {FILE_ANNOTATION}
    after: dict[str, Any] = {
        key: it for key, it in before.items() if key not in removed
    } | settings.get("set", {})
    return {**value, field: after} if after or field in value else value
