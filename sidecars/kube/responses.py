"""What the API server answers, decoded: pages of lists, events of watches, refusals. Pure.

https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

import msgspec

from sidecars.kube.errors import UNREADABLE, ApiError, Malformed, api_error
from sidecars.kube.store import Key
from sidecars.objects import ObjectMeta

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sidecars.kube.resources import Resource

T = TypeVar("T")
_LONGEST_MESSAGE = 300


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Part of a list."""

    items: Sequence[T]
    """The objects that could be decoded."""
    resource_version: str
    """The version of the whole list."""
    malformed: Mapping[Key, Malformed]
    """The objects that could not be decoded."""
    first: bool
    """Whether a list starts with this page. Earlier pages belong to a list that was not completed.
    """


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """One event of a watch."""

    kind: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: T | None
    """None for a BOOKMARK, and for an object that could not be decoded."""
    resource_version: str
    """The version from which a watch can continue after this event."""
    malformed: tuple[Key, Malformed] | None = None
    """The object that could not be decoded, and why."""


class _ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    resource_version: str = ""
    continue_: str = msgspec.field(default="", name="continue")


class _Items(msgspec.Struct, Generic[T], frozen=True):
    metadata: _ListMeta
    items: list[T] | None


class _Line(msgspec.Struct, Generic[T], frozen=True):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: T


class _Envelope(msgspec.Struct, frozen=True):
    """What every object has, whatever else is wrong with it."""

    metadata: ObjectMeta


class _Status(msgspec.Struct, frozen=True):
    """https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/status/"""

    kind: str = ""
    reason: str = ""
    message: str = ""
    code: int = 0
    details: dict[str, Any] | None = None


@functools.cache
def _decoder(type: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type)


@functools.cache
def _of(generic: Any, type: Any) -> Any:
    """Return the generic Struct of a type known at run time only."""
    return generic[type]


def refusal(
    status: int, body: bytes, *, request: str, source: str, retry_after: float | None
) -> ApiError:
    """Return the error of a response that is not 2xx. `source`: where the credentials are from, for
    the message of a 401.
    """
    try:
        decoded = _decoder(_Status).decode(body)
    except UNREADABLE:
        decoded = _Status(message=body[:_LONGEST_MESSAGE].decode(errors="replace").strip())
    message = decoded.message
    if status == 401:
        message = f"{message or 'not authenticated'} (credentials: {source})"
    return api_error(
        status, decoded.reason, message, decoded.details, request=request, retry_after=retry_after
    )


def decode(body: bytes | msgspec.Raw, type: type[T], request: str) -> T:
    """Decode one object. Raises Malformed, which names the request."""
    untyped: Any = type
    try:
        item: T = _decoder(untyped).decode(body)
    except UNREADABLE as error:
        raise Malformed(f"{request}: the answer is not what the API promises: {error}") from None
    return item


def page(
    body: bytes, type: Any, request: str, resource: Resource, *, first: bool
) -> tuple[Page[Any], str]:
    """Decode one page, and return it with the continue token of the next. Raises Malformed, but not
    for single objects.
    """
    malformed: dict[Key, Malformed] = {}
    try:
        answer = _decoder(_of(_Items, type)).decode(body)
        items = answer.items or []
    except msgspec.ValidationError:
        answer = decode(body, _of(_Items, msgspec.Raw), request)
        items = []
        for raw in answer.items or []:
            try:
                items.append(decode(raw, type, request))
            except Malformed as fault:
                malformed[_key(raw, request)] = fault
    except UNREADABLE as error:
        raise Malformed(f"{request}: the answer is not what the API promises: {error}") from None
    if type is dict:
        for item in items:  # the items of built-in lists don't say what they are
            item.setdefault("apiVersion", resource.api_version)
            item.setdefault("kind", resource.kind)
    return Page(
        items, answer.metadata.resource_version, malformed, first
    ), answer.metadata.continue_


def event(line: bytes, type: Any, request: str) -> WatchEvent[Any]:
    """Decode one line of a watch. Raises ApiError for an ERROR event."""
    malformed: Malformed | None = None
    # The two kinds whose object isn't one of the resource; the server writes the type first.
    if line[:18].find(b"BOOKMARK") < 0 and line[:18].find(b"ERROR") < 0:
        try:
            decoded = _decoder(_of(_Line, type)).decode(line)
            if decoded.type not in ("BOOKMARK", "ERROR"):
                item = (
                    msgspec.convert(decoded.object, _Envelope) if type is dict else decoded.object
                )
                return WatchEvent(decoded.type, decoded.object, item.metadata.resource_version)
        except UNREADABLE as error:
            malformed = Malformed(f"{request}: an object is not what the API promises: {error}")
    raw = decode(line, _of(_Line, msgspec.Raw), request)
    if raw.type == "ERROR":
        status = decode(raw.object, _Status, request)
        raise api_error(status.code, status.reason, status.message, status.details, request=request)
    meta = decode(raw.object, _Envelope, request).metadata
    if raw.type == "BOOKMARK":
        return WatchEvent("BOOKMARK", None, meta.resource_version)
    fault = malformed or Malformed(f"{request}: an object is not what the API promises")
    return WatchEvent(
        raw.type, None, meta.resource_version, (Key(meta.namespace, meta.name), fault)
    )


def _key(raw: msgspec.Raw, request: str) -> Key:
    meta = decode(raw, _Envelope, request).metadata
    return Key(meta.namespace, meta.name)
