"""Which objects a step works on: by kind, name, namespace, labels, and a JMESPath expression.

A step's `select` is a list: an object is selected if it matches one of them. Without `select`, all
objects are.
"""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from fnmatch import translate
from functools import partial
from typing import Any, TypedDict

from postrender.configuration import StepSettings
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


FIELDS = ("kind", "name", "namespace", "labels", "where")
"""Of a selector, in the order in which they are looked at."""


class Selection:
    """A compiled `select` of a step. `field`: the setting that contains it."""

    def __init__(
        self,
        step: StepSettings[Any],
        selectors: Sequence[Selector] | None,
        required: bool = False,
        field: str = "select",
    ) -> None:
        self._step = step
        self._required = required
        self._field = field
        self._matchers = [
            _Matcher(partial(step.at, field, index, "where"), selector)
            for index, selector in enumerate(selectors or ())
        ]

    def objects(self, stream: Stream) -> Iterator[Object]:
        """Yield the selected objects, in order. At the end raises PostrenderError if one is
        required and none was found.
        """
        found = False
        for it in stream.objects(self._may_match):
            if not self._matchers or any(matcher.misses(it) is None for matcher in self._matchers):
                found = True
                yield it
        if self._required and not found:
            problem = "no object of the stream is selected, and `required` is true"
            raise PostrenderError(f"{self._step.at('required')}: {problem}{self._nearest(stream)}")

    def _may_match(self, head: Head) -> bool:
        return not self._matchers or any(matcher.may_match(head) for matcher in self._matchers)

    def _nearest(self, stream: Stream) -> str:
        """Return the object that comes closest to being selected, and the field of the selector
        that it doesn't match.
        """
        nearest, best = "", 0
        for it in stream.objects():
            for index, matcher in enumerate(self._matchers):
                missed = matcher.misses(it)
                if missed is not None and FIELDS.index(missed) > best:
                    best = FIELDS.index(missed)
                    nearest = (
                        f"; {it.place()} comes closest, and doesn't match "
                        f"{self._field}[{index}].{missed}"
                    )
        if nearest:
            return nearest
        kinds = sorted({it.kind for it in stream.objects()})
        return f"; the stream has {', '.join(kinds) or 'no object'}" if self._matchers else ""


class _Matcher:
    """`place`: of the expression in the configuration."""

    def __init__(self, place: Callable[[], str], selector: Selector) -> None:
        self._kind = _pattern(selector.get("kind"))
        self._name = _pattern(selector.get("name"))
        self._namespace = _pattern(selector.get("namespace"))
        self._labels = dict(selector.get("labels") or {})
        self._where = expression(place, selector["where"]) if "where" in selector else None

    def may_match(self, head: Head) -> bool:
        return self._kind(head.kind) and self._name(head.name)

    def misses(self, it: Object) -> str | None:
        """Return the first field that the object doesn't match, or None if it is selected."""
        labels = it.metadata.get("labels")
        labels = labels if isinstance(labels, dict) else {}
        if not self._kind(it.kind):
            return "kind"
        if not self._name(it.name):
            return "name"
        if not self._namespace(it.namespace):
            return "namespace"
        if any(labels.get(name) != value for name, value in self._labels.items()):
            return "labels"
        return "where" if self._where is not None and not truth(self._where(it)) else None


def _pattern(wanted: str | list[str] | None) -> Callable[[str], bool]:
    if wanted is None:
        return lambda _: True
    patterns = [
        re.compile(translate(it)) for it in ([wanted] if isinstance(wanted, str) else wanted)
    ]
    return lambda text: any(pattern.match(text) for pattern in patterns)


def expression(place: Callable[[], str], text: str) -> Callable[[Object], Any]:
    """Return a JMESPath expression on objects. Raises PostrenderError for one that can't be parsed,
    and when it fails.

    `place`: of the expression in the configuration. An error shows no value of the object.
    """
    import jmespath
    from jmespath.exceptions import (
        ArityError,
        JMESPathError,
        JMESPathTypeError,
        UnknownFunctionError,
    )

    try:
        compiled = jmespath.compile(text)
    except (JMESPathError, RecursionError) as error:
        raise PostrenderError(
            f"{place()}: `{text}` is no JMESPath expression: {_one_line(error)}"
        ) from None

    def search(it: Object) -> Any:
        try:
            return compiled.search(it.value)
        except JMESPathTypeError as error:
            wanted = " or ".join(error.expected_types)
            reason = f"{error.function_name}() takes {wanted}, not {error.actual_type}"
        except (ArityError, UnknownFunctionError) as error:
            reason = _one_line(error)
        except (
            ArithmeticError,
            AttributeError,
            LookupError,
            RecursionError,
            TypeError,
            ValueError,
        ):
            # Such as a list with numbers and texts, which can't be ordered. The exception's text
            # may have a value.
            reason = "it can't be computed for the values of this object"
        raise PostrenderError(f"{place()}: {it.place()}: `{text}`: {reason}")

    return search


def truth(value: Any) -> bool:
    """JMESPath's truth: false are null, false, and an empty text, list or mapping; 0 is true."""
    return value is not None and value is not False and value not in ("", [], {})


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())
