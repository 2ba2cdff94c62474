"""Slurm's REST API as values: requests to be carried by someone else, and answers decoded from status and body.

No I/O, no clock, no token. A request is made without an API version; the carrier asks `Request.target(version)`. The
versions spoken are v0.0.45 and v0.0.44 (https://slurm.schedmd.com/rest_api.html); records are the same for both.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from sidecars.slurm.records import Diag, Job, Jobs, Node, Nodes, Partition, Ping, Reservation

T = TypeVar("T")

VERSIONS = ("v0.0.45", "v0.0.44")
"""API versions that we speak, newest first."""

TOKEN_HEADER = "X-SLURM-USER-TOKEN"  # noqa: S105 - the header's name


@dataclass(frozen=True)
class Request(Generic[T]):
    """One call. `path` is below `/slurm/VERSION/`; `query` is a tuple of pairs; `body` is JSON or None."""

    method: str
    path: str
    query: tuple[tuple[str, str], ...] = ()
    body: dict[str, Any] | None = None
    read: Callable[[Any], T] = field(kw_only=True, repr=False, compare=False)

    def target(self, version: str) -> str:
        """The request target for HTTP: path and query, percent-encoded."""
        raise NotImplementedError

    def __str__(self) -> str:
        return f"{self.method} {self.path}"


def get_nodes(update_time: int | None = None) -> "Request[Nodes | None]":
    """All nodes; with `update_time`, None when no node changed since that second, else the nodes that did."""
    raise NotImplementedError


def get_node(name: str) -> "Request[Node]":
    """One node. An unknown one is NotFound."""
    raise NotImplementedError


def update_nodes(
    names: Sequence[str],
    *,
    state: Sequence[str] = (),
    reason: str | None = None,
    comment: str | None = None,
    extra: str | None = None,
    features: Sequence[str] | None = None,
    active_features: Sequence[str] | None = None,
    topology: str | None = None,
) -> "Request[None]":
    """The same change for all the named nodes, in one call. None leaves a field alone, "" clears it."""
    raise NotImplementedError


def delete_node(name: str) -> "Request[None]":
    """Remove a dynamic node's record. An unknown one is NotFound."""
    raise NotImplementedError


def get_jobs(update_time: int | None = None) -> "Request[Jobs | None]":
    """All jobs; with `update_time`, None when no job changed since that second."""
    raise NotImplementedError


def get_partitions() -> "Request[tuple[Partition, ...]]":
    """All partitions."""
    raise NotImplementedError


def get_reservations() -> "Request[tuple[Reservation, ...]]":
    """All reservations."""
    raise NotImplementedError


def ping() -> "Request[tuple[Ping, ...]]":
    """Whether each slurmctld of the configuration answers slurmrestd."""
    raise NotImplementedError


def diag() -> "Request[Diag]":
    """Counters of slurmctld."""
    raise NotImplementedError


def reconfigure() -> "Request[None]":
    """Make slurmctld read its configuration again."""
    raise NotImplementedError


def decode(request: Request[T], status: int, body: bytes) -> T:
    """The typed answer to `request`, or a SlurmError other than Unreachable: see `sidecars.slurm.errors`."""
    raise NotImplementedError


__all__ = ["Job", "Request", "decode", "delete_node", "diag", "get_jobs", "get_node", "get_nodes"]
