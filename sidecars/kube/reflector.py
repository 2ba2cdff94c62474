"""Keeps a store equal to what the API server holds: list, watch, and recovery from every way in which a watch ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

if TYPE_CHECKING:
    import random
    from collections.abc import Awaitable, Callable, Sequence

    from sidecars.kube.client import Client
    from sidecars.kube.resources import Manifest, Resource
    from sidecars.kube.store import Store

T = TypeVar("T")


class Reflector(Generic[T]):
    """The objects of one resource, in all namespaces or in the given ones, in `store`."""

    store: Store[T]

    @overload
    def __new__(
        cls,
        client: Client,
        resource: Resource,
        *,
        namespaces: Sequence[str] | None = None,
        label_selector: str = "",
        field_selector: str = "",
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> Reflector[Manifest]: ...
    @overload
    def __new__(
        cls,
        client: Client,
        resource: Resource,
        *,
        namespaces: Sequence[str] | None = None,
        type: type[T],
        label_selector: str = "",
        field_selector: str = "",
        clock: Callable[[], float] | None = None,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        rng: random.Random | None = None,
    ) -> Reflector[T]: ...
    def __new__(cls, client: Client, resource: Resource, **options: Any) -> Reflector[Any]:
        """`namespaces` None: all. `clock` (seconds, monotonic) and `sleep` default to the event loop's."""
        raise NotImplementedError

    async def run(self) -> None:
        """List and watch until cancelled; survives every fault of the server and the network. Call once."""
        raise NotImplementedError

    @property
    def synced(self) -> bool:
        """True once the store held a complete list, of every namespace."""
        raise NotImplementedError

    async def wait_synced(self, timeout: float) -> None:
        """Wait for the first complete list. TimeoutError naming the resource and the last fault after `timeout` s."""
        raise NotImplementedError
