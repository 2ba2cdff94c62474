"""A request as a value. It names no API version: the carrier asks `Request.target(version)`."""

import json
import urllib.parse
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sidecars.slurm.protocol.fields import Fields

T = TypeVar("T")

VERSIONS = ("v0.0.45", "v0.0.44")
"""Supported API versions, newest first. Decoded records are the same for all of them."""

TOKEN_HEADER = "X-SLURM-USER-TOKEN"  # noqa: S105 - the header's name

USER_HEADER = "X-SLURM-USER-NAME"
"""The user as whom the request is sent, if it isn't the token's. Only a token of SlurmUser or root
may name another.
"""

STATUS_NO_SUCH_ENDPOINT = 404


@dataclass(frozen=True)
class Streamed:
    """How to read one record of a long answer."""

    fields: type
    """A TypedDict of the fields to decode."""
    record: Callable[[Any], Any]
    """The record of such fields, or the fields as given when one is wrong: `decode` then finds it
    again.
    """


@dataclass(frozen=True)
class Request(Generic[T]):
    """One call to slurmrestd."""

    method: str
    path: str
    """Below `/SERVICE/VERSION/`."""
    query: tuple[tuple[str, str], ...] = ()
    """Names and values, in order."""
    body: dict[str, Any] | None = None
    """Sent as JSON; None for a request without a body."""
    read: Callable[[Fields], T] = field(kw_only=True, repr=False, compare=False)
    """Decodes the answer."""
    unchanged: Callable[[], T] | None = field(default=None, kw_only=True, repr=False, compare=False)
    """The value of an HTTP 304 answer; None for a request to which 304 is no answer."""
    service: str = field(default="slurm", kw_only=True)
    """`slurm` for what slurmctld answers, `slurmdb` for what slurmdbd answers."""
    version: str | None = field(default=None, kw_only=True, repr=False, compare=False)
    """The API version to use where the server offers it; None: the newest that it offers."""
    all_jobs: "Streamed | None" = field(default=None, kw_only=True, repr=False, compare=False)
    """How `sidecars.slurm.streaming` reads the answer as it arrives, because it may have hundreds
    of megabytes.
    """

    def target(self, version: str) -> str:
        """Return the request target for HTTP: path and query, percent-encoded."""
        query = f"?{urllib.parse.urlencode(self.query)}" if self.query else ""
        return f"/{self.service}/{version}/{self.path}{query}"

    def content(self) -> bytes | None:
        """Return the body to send, with content type application/json."""
        return None if self.body is None else json.dumps(self.body, separators=(",", ":")).encode()

    def __str__(self) -> str:
        return (
            f"{self.method} {self.path}"
            if self.service == "slurm"
            else f"{self.method} {self.service}/{self.path}"
        )


def versions_to_try(chosen: str | None, versions: Sequence[str] = VERSIONS) -> tuple[str, ...]:
    """Return the API versions in the order to try them: the one that worked before, then the others
    as listed.

    A server that lacks a version answers `STATUS_NO_SUCH_ENDPOINT` and has done nothing.
    """
    return (
        *(() if chosen is None else (chosen,)),
        *(version for version in versions if version != chosen),
    )


# What the modules of this package share.


def nothing(answer: Fields) -> None:
    """Read an answer that only reports the absence of errors."""


def no_news() -> None:
    """Read an answer that reports no change."""
    return


def since(update_time: int | None) -> tuple[tuple[str, str], ...]:
    """Return the query for changes at or after a time in seconds since the epoch, () for
    everything.
    """
    return () if update_time is None else (("update_time", str(update_time)),)


def segment(name: str) -> str:
    """Return a name as one segment of a path. Raises ValueError as `named`."""
    return urllib.parse.quote(named(name), safe="")


def named(name: str) -> str:
    """Return the name itself. Raises ValueError for one that would change the path of a request."""
    if not name or name in {".", ".."}:
        raise ValueError(f"{name!r} can't name anything in Slurm")
    return name
