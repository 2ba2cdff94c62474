"""Sends requests to the API server: connections, credentials, deadlines, retries, and how many at
once.

Knows URLs and bytes; `sidecars.kube.client` knows verbs, `sidecars.kube.responses` what the bytes
say.
"""

from __future__ import annotations

import asyncio
import contextlib
import copy
from asyncio import sslproto
from typing import TYPE_CHECKING, Self
from urllib.parse import urlencode

import aiohttp
from yarl import URL

from sidecars.kube import responses
from sidecars.kube.errors import LeadershipLost, Unauthorized, Unreachable

if TYPE_CHECKING:
    import random
    from collections.abc import AsyncIterator, Callable, Mapping

    from sidecars.kube.credentials import Credentials
    from sidecars.kube.errors import ApiError

JSON = "application/json"
"""Content type of what is sent and accepted, unless a request names another one."""
_SLOTS_APART = 4
_TLS_BYTES = 2**15
"""Size of the buffer of a TLS connection. asyncio takes 256 KiB, for each watch and request."""
_USER_AGENT = "slurm-charts"


class _Body(aiohttp.payload.Payload):
    """The body of a write. `check` is called when the connection is open and nothing has been sent
    on it yet.

    `refused` is what `check` raised, None otherwise.
    """

    def __init__(self, content: bytes, content_type: str, check: Callable[[], None]) -> None:
        super().__init__(content, content_type=content_type)
        self._content = content
        self._check = check
        self.refused: LeadershipLost | None = None

    @property
    def size(self) -> int:
        return len(self._content)

    @property
    def autoclose(self) -> bool:
        return True

    def decode(self, encoding: str = "utf-8", errors: str = "strict") -> str:
        return self._content.decode(encoding, errors)

    async def write(self, writer: aiohttp.abc.AbstractStreamWriter) -> None:
        await self.write_with_length(writer, None)

    async def write_with_length(
        self, writer: aiohttp.abc.AbstractStreamWriter, content_length: int | None
    ) -> None:
        try:
            self._check()
        except LeadershipLost as error:
            self.refused = error
            raise
        await writer.write(self._content)


class Transport:
    """One API server. `request` and `stream` raise ApiError when refused, Unreachable without an
    answer in time.

    A 429 is waited out within the deadline by its Retry-After, and so is a 5xx with Retry-After for
    reads. After a 401, the request is sent a second time with credentials that are read again.
    Nothing else is retried: only the caller knows whether that is safe.
    """

    def __init__(
        self,
        session: aiohttp.ClientSession,
        credentials: Credentials,
        *,
        concurrency: int,
        timeout: float,
        rng: random.Random,
    ) -> None:
        """Use `connect`, which owns the session."""
        self._session = session
        self._credentials = credentials
        self._slots = asyncio.Semaphore(concurrency)
        self._timeout = timeout
        self._rng = rng
        self._seconds_left: Callable[[], float] | None = None

    @classmethod
    @contextlib.asynccontextmanager
    async def connect(
        cls, credentials: Credentials, *, concurrency: int, timeout: float, rng: random.Random
    ) -> AsyncIterator[Self]:
        """Open while the block runs; at most `concurrency` requests at once (streams apart), each
        for `timeout` s.
        """
        sslproto.SSLProtocol.max_size = _TLS_BYTES
        session = aiohttp.ClientSession(
            # Requests are bounded by our own slots, which streams must not use up.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=30),
            read_bufsize=2**18,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10.0),
            # Compression would cost more CPU than the bytes it saves inside a cluster.
            headers={"User-Agent": _USER_AGENT, "Accept-Encoding": "identity"},
        )
        async with session:
            yield cls(session, credentials, concurrency=concurrency, timeout=timeout, rng=rng)
        # Connections whose request was cancelled still close their TLS; aiohttp offers nothing to
        # wait for (https://docs.aiohttp.org/en/stable/client_advanced.html#graceful-shutdown).
        await asyncio.sleep(0.25)

    def guarded(self, seconds_left: Callable[[], float]) -> Self:
        """See Client.guarded."""
        other = copy.copy(self)
        other._seconds_left = seconds_left  # noqa: SLF001 - its own copy
        return other

    def apart(self) -> Self:
        """See Client.apart."""
        other = copy.copy(self)
        other._slots = asyncio.Semaphore(_SLOTS_APART)  # noqa: SLF001 - its own copy
        return other

    async def request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        *,
        content: bytes | None = None,
        content_type: str = JSON,
        accept: str = JSON,
    ) -> bytes:
        """Return the body of a 2xx response. Empty values of `query` are left out."""
        request = f"{method} {path}"
        url = self._url(path, query)
        deadline = self._timeout
        if method != "GET" and self._seconds_left is not None:
            deadline = min(deadline, self._seconds_left())
            self._check_lead(request)
        try:
            async with asyncio.timeout(deadline) as limit, self._slots:
                renewed = False
                while True:
                    try:
                        return await self._send(method, url, content, content_type, accept, request)
                    except Unauthorized:
                        if renewed:
                            raise
                        renewed = True
                        self._credentials.invalidate()
                    except _RetryLater as later:
                        # Requests that were refused together must not come back together.
                        wait = later.seconds + self._rng.uniform(0.0, 0.5)
                        left = (limit.when() or 0.0) - asyncio.get_running_loop().time()
                        if wait >= left:
                            raise later.error from None
                        await asyncio.sleep(wait)
        except TimeoutError:
            raise Unreachable(f"{request}: no answer within {deadline:g} s") from None

    @contextlib.asynccontextmanager
    async def stream(
        self, path: str, query: Mapping[str, str], *, accept: str, read_deadline: float
    ) -> AsyncIterator[AsyncIterator[bytes]]:
        """Provide the lines of a GET whose response does not end soon, while the block runs. The
        block is entered when the server accepts. Takes no slot. Raises Unreachable after
        `read_deadline` seconds without a byte.
        """
        request = f"WATCH {path}"
        access = await self._credentials.access()
        try:
            async with self._session.get(
                self._url(path, query),
                headers=_headers(accept, access.authorization),
                ssl=access.ssl or True,
                server_hostname=access.server_hostname,
                timeout=aiohttp.ClientTimeout(
                    total=None, sock_connect=10.0, sock_read=read_deadline
                ),
            ) as response:
                if response.status != 200:
                    raise self._refusal(response, await response.read(), request)
                try:
                    yield _lines(response.content)
                except _Truncated:
                    raise Unreachable(
                        f"{request}: the stream ended in the middle of an event"
                    ) from None
                finally:
                    # A caller that stops early does not wait for the end of TLS.
                    if (
                        response.connection is not None
                        and response.connection.transport is not None
                    ):
                        response.connection.transport.abort()
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(f"{request}: {_cause(error)}") from error

    async def _send(
        self,
        method: str,
        url: URL,
        content: bytes | None,
        content_type: str,
        accept: str,
        request: str,
    ) -> bytes:
        access = await self._credentials.access()
        body = (
            None
            if content is None
            else _Body(content, content_type, lambda: self._check_lead(request))
        )
        try:
            async with self._session.request(
                method,
                url,
                data=body,
                headers=_headers(accept, access.authorization),
                ssl=access.ssl or True,
                server_hostname=access.server_hostname,
                allow_redirects=False,
            ) as response:
                answer = await response.read()
                if 200 <= response.status < 300:
                    return answer
        except (aiohttp.ClientError, OSError) as error:
            if body is not None and body.refused is not None:
                raise body.refused from None
            raise Unreachable(f"{request}: {_cause(error)}") from error
        refusal = self._refusal(response, answer, request)
        after = _retry_after(response)
        if after is not None and (
            response.status == 429 or (response.status >= 500 and method == "GET")
        ):
            raise _RetryLater(refusal, after)
        raise refusal

    def _check_lead(self, request: str) -> None:
        if self._seconds_left is not None and self._seconds_left() <= 0:
            raise LeadershipLost(f"{request}: not sent, the lease is not held")

    def _url(self, path: str, query: Mapping[str, str] | None) -> URL:
        given = {name: value for name, value in (query or {}).items() if value}
        return URL(
            f"{self._credentials.server}{path}{'?' if given else ''}{urlencode(given)}",
            encoded=True,
        )

    def _refusal(self, response: aiohttp.ClientResponse, body: bytes, request: str) -> ApiError:
        source, retry_after = self._credentials.source, _retry_after(response)
        return responses.refusal(
            response.status, body, request=request, source=source, retry_after=retry_after
        )


class _RetryLater(Exception):
    """The server asks to try again in so many seconds."""

    def __init__(self, error: ApiError, seconds: float) -> None:
        super().__init__(error, seconds)
        self.error = error
        self.seconds = seconds


class _Truncated(Exception):
    """The stream ended without a line's end."""


async def _lines(content: aiohttp.StreamReader) -> AsyncIterator[bytes]:
    """Yield lines of any length, as fast as they arrive."""
    rest: list[bytes] = []
    async for chunk in content.iter_any():
        lines = chunk.split(b"\n")
        if len(lines) > 1:
            rest.append(lines[0])
            lines[0] = b"".join(rest)
            rest = []
        rest.append(lines.pop())
        for line in lines:
            if line:
                yield line
    if any(rest):
        raise _Truncated


def _cause(error: Exception) -> str:
    """Describe the fault in words."""
    cause = getattr(error, "certificate_error", None) or getattr(error, "os_error", None) or error
    return str(cause) or cause.__class__.__name__


def _retry_after(response: aiohttp.ClientResponse) -> float | None:
    value = response.headers.get("Retry-After", "")
    return float(value) if value.isdecimal() and len(value) < 9 else None


def _headers(accept: str, authorization: str | None) -> dict[str, str]:
    return (
        {"Accept": accept}
        if authorization is None
        else {"Accept": accept, "Authorization": authorization}
    )
