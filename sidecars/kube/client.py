"""Requests to the Kubernetes API, typed; see https://kubernetes.io/docs/reference/using-api/api-concepts/.

One request per call (lists are paged), each with a deadline. Keeps no objects: that is the reflector's.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, Literal, Self, TypeVar, overload

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping, Sequence

    from sidecars.kube.credentials import Credentials
    from sidecars.kube.resources import Manifest, Resource

T = TypeVar("T")


class Client:
    """All verbs on all resources. A call raises ApiError, Unreachable, Malformed or CredentialsError, nothing else.

    A call that finds no answer within its deadline raises Unreachable. A 429 is waited out within the deadline as its
    Retry-After says (for an eviction it means a PodDisruptionBudget and is raised). Nothing else is retried:
    whoever calls knows whether that is safe.
    """

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(
        cls, credentials: Credentials, *, concurrency: int = 64, timeout: float = 30.0, user_agent: str = "slurm-charts"
    ) -> AsyncIterator[Self]:
        """A client while the block runs: at most `concurrency` requests at once (watches apart), `timeout` in seconds."""
        raise NotImplementedError
        yield

    def guarded(self, seconds_left: Callable[[], float]) -> Client:
        """The same client, whose writes ask first, at the very moment of sending: with 0 seconds left or less a write
        raises LeadershipLost and isn't sent; it waits no longer than that for its answer. For `Election.left`.
        """
        raise NotImplementedError

    @overload
    async def get(self, resource: Resource, namespace: str | None, name: str) -> Manifest: ...
    @overload
    async def get(self, resource: Resource, namespace: str | None, name: str, type: type[T]) -> T: ...
    async def get(self, resource: Resource, namespace: str | None, name: str, type: type[Any] = dict) -> Any:
        """Read one object; `namespace` is None for cluster-scoped resources. Raises NotFound."""
        raise NotImplementedError

    @overload
    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
    ) -> tuple[list[Manifest], str]: ...
    @overload
    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        type: type[T],
    ) -> tuple[list[T], str]: ...
    async def list(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        label_selector: str = "",
        field_selector: str = "",
        type: type[Any] = dict,
    ) -> tuple[list[Any], str]:
        """All objects (of one namespace, or of all) and the resourceVersion of the list."""
        raise NotImplementedError

    @overload
    async def create(self, resource: Resource, manifest: Manifest) -> Manifest: ...
    @overload
    async def create(self, resource: Resource, manifest: Manifest, type: type[T]) -> T: ...
    async def create(self, resource: Resource, manifest: Manifest, type: type[Any] = dict) -> Any:
        """POST, in the manifest's namespace; the object as stored. Raises AlreadyExists."""
        raise NotImplementedError

    async def replace(self, resource: Resource, manifest: Manifest, *, subresource: str | None = None) -> Manifest:
        """PUT. With metadata.resourceVersion, raises Conflict if it is no longer that one."""
        raise NotImplementedError

    async def apply(
        self,
        resource: Resource,
        manifest: Manifest,
        *,
        field_manager: str,
        force: bool = True,
        subresource: str | None = None,
    ) -> Manifest:
        """Server-side apply: the manifest holds exactly the fields that the manager wants to own; the object as stored.

        `subresource="status"` writes status alone. Without `force`, raises Conflict for fields of other managers.
        https://kubernetes.io/docs/reference/using-api/server-side-apply/
        """
        raise NotImplementedError

    async def merge_patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        patch: Mapping[str, Any],
        *,
        subresource: str | None = None,
        field_manager: str | None = None,
    ) -> Manifest:
        """JSON merge patch (RFC 7386): None removes a key, lists are replaced whole; the object as stored."""
        raise NotImplementedError

    async def json_patch(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        operations: Sequence[Mapping[str, Any]],
        *,
        subresource: str | None = None,
        field_manager: str | None = None,
    ) -> Manifest:
        """JSON patch (RFC 6902); a failed `test` operation raises Invalid. The object as stored."""
        raise NotImplementedError

    async def delete(
        self,
        resource: Resource,
        namespace: str | None,
        name: str,
        *,
        uid: str | None = None,
        resource_version: str | None = None,
        grace_period_seconds: int | None = None,
        propagation_policy: Literal["Foreground", "Background", "Orphan"] | None = None,
    ) -> None:
        """Ask for deletion (finalizers and grace may delay it). With `uid` or `resource_version`, only that very object
        or version, else Conflict. Raises NotFound.
        """
        raise NotImplementedError

    async def evict(
        self, namespace: str, name: str, *, uid: str | None = None, grace_period_seconds: int | None = None
    ) -> None:
        """Delete a pod if its PodDisruptionBudgets allow it, else raise TooManyRequests at once."""
        raise NotImplementedError

    @overload
    def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: int = 300,
        read_deadline: float = 70.0,
    ) -> AsyncIterator[WatchEvent[Manifest]]: ...
    @overload
    def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: int = 300,
        read_deadline: float = 70.0,
        type: type[T],
    ) -> AsyncIterator[WatchEvent[T]]: ...
    def watch(
        self,
        resource: Resource,
        namespace: str | None = None,
        *,
        resource_version: str,
        label_selector: str = "",
        field_selector: str = "",
        timeout_seconds: int = 300,
        read_deadline: float = 70.0,
        type: type[Any] = dict,
    ) -> AsyncIterator[WatchEvent[Any]]:
        """One watch stream from a resourceVersion on, with bookmarks, until the server ends it. A Reflector does more.

        Raises Gone when the version is too old, Unreachable when the stream is cut or silent for `read_deadline` s.
        """
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """One line of a watch: `object` is None for a BOOKMARK."""

    kind: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: T | None
    resource_version: str
