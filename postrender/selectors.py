"""Which objects a step works on: by kind, name, namespace, labels, and a JMESPath expression.

A step's `select` is a list: an object is selected if it matches one of them. Without `select`, all objects are.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import translate
from typing import Any, TypedDict

from postrender.errors import PostrenderError
from postrender.scan import Head
from postrender.stream import Object, Stream


class Selector(TypedDict, total=False):
    """All given fields must match."""

    kind: str | list[str]
    name: str | list[str]
    namespace: str | list[str]
    labels: Mapping[str, str]
    where: str


class Selection:
    """A compiled `select`. `step`: how messages name it."""

    def __init__(self, step: str, selectors: Sequence[Selector] | None, required: bool = False) -> None:
        self._step = step
        self._required = required
        self._matchers = [_Matcher(step, selector) for selector in selectors] if selectors else []

    def objects(self, stream: Stream) -> Iterator[Object]:
        """The selected objects, in order. At the end raises PostrenderError if one is required and none was found."""
        found = False
        for it in stream.objects(self._may_match):
            if not self._matchers or any(matcher.matches(it) for matcher in self._matchers):
                found = True
                yield it
        if self._required and not found:
            raise PostrenderError(f"{self._step}: no object of the stream is selected, and `required` is true")

    def _may_match(self, head: Head) -> bool:
        return not self._matchers or any(matcher.may_match(head) for matcher in self._matchers)


class _Matcher:
    def __init__(self, step: str, selector: Selector) -> None:
        self._step = step
        self._kind = _pattern(selector.get("kind"))
        self._name = _pattern(selector.get("name"))
        self._namespace = _pattern(selector.get("namespace"))
        self._labels = dict(selector.get("labels") or {})
        self._where = expression(step, selector["where"]) if "where" in selector else None

    def may_match(self, head: Head) -> bool:
        return self._kind(head.kind) and self._name(head.name)

    def matches(self, it: Object) -> bool:
        if not (self._kind(it.kind) and self._name(it.name) and self._namespace(it.namespace)):
            return False
        labels = it.metadata.get("labels")
        labels = labels if isinstance(labels, dict) else {}
        if any(labels.get(name) != value for name, value in self._labels.items()):
            return False
        return self._where is None or truth(self._where(it))


def _pattern(wanted: str | list[str] | None) -> Callable[[str], bool]:
    if wanted is None:
        return lambda _: True
    patterns = [re.compile(translate(it)) for it in ([wanted] if isinstance(wanted, str) else wanted)]
    return lambda text: any(pattern.match(text) for pattern in patterns)


def expression(step: str, text: str) -> Callable[[Object], Any]:
    """A JMESPath expression on objects. Raises PostrenderError for one that can't be parsed, and when it fails."""
    import jmespath
    from jmespath.exceptions import JMESPathError

    try:
        compiled = jmespath.compile(text)
    except JMESPathError as error:
        raise PostrenderError(f"{step}: `{text}` is no JMESPath expression: {_one_line(error)}") from None

    def search(it: Object) -> Any:
        try:
            return compiled.search(it.value)
        except JMESPathError as error:
            raise PostrenderError(f"{step}: {it.place()}: `{text}`: {_one_line(error)}") from None

    return search


def truth(value: Any) -> bool:
    """JMESPath's truth: false are null, false, and an empty text, list or mapping; 0 is true."""
    return value is not None and value is not False and value not in ("", [], {})


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
