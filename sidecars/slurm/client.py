"""The aiohttp client of `sidecars.slurm.protocol`, for operator and exporter.

slurmrestd sends each refusal twice: the answer that counts, with `Connection: Close`, and after it
a second answer in plain text. aiohttp considers that an attack and drops both, so the second one is
cut off here.
"""

import asyncio
import contextlib
import functools
import logging
import re
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

import aiohttp
import msgspec
from aiohttp.client_proto import ResponseHandler
from yarl import URL

from sidecars.contract import ports
from sidecars.slurm.errors import AuthenticationError, NoToken, Unreachable
from sidecars.slurm.health import READYZ
from sidecars.slurm.protocol import (
    STATUS_NO_SUCH_ENDPOINT,
    TOKEN_HEADER,
    USER_HEADER,
    VERSIONS,
    Request,
    decode,
    get_job_states,
    get_node,
    get_nodes,
    versions_to_try,
)
from sidecars.slurm.records import Node, Nodes
from sidecars.slurm.streaming import JobsReader
from sidecars.slurm.tokens import Tokens, checked

T = TypeVar("T")

_MAX_BODY = 256 * 2**20
"""Bytes of an answer's body; ten times what slurmrestd sends for 10,000 nodes."""
_MAX_HEAD = 65_536  # bytes of an answer's head; more is left to aiohttp to refuse

log = logging.getLogger(__name__)

_MEMBERS = msgspec.json.Decoder(dict[str, msgspec.Raw])
_RECORDS = msgspec.json.Decoder(list[msgspec.Raw])
_STATES = get_job_states().target("")
_OF_NODES = frozenset({get_nodes().read, get_node("NAME").read})
"""How answers are read that consist of `Node`. Others have more of the same text."""
_NO_ERRORS = b"[]"


class Decoder:
    """`protocol.decode`, but what is the same as in the answer before, byte for byte, is not read
    again.

    Slurm answers any change with all nodes, most of them unchanged, and the states of all jobs each
    time. Stores the text of the last answer's node records, and that of the states. Equal states
    are the same object.
    """

    def __init__(self) -> None:
        self._nodes: dict[bytes, Node] = {}
        self._states: tuple[bytes, Any] = b"", None

    def __call__(self, request: Request[T], status: int, body: bytes) -> T:
        """Return the typed answer. Raises SlurmError, as `protocol.decode` does."""
        if status == 200 and request.target("") == _STATES:
            return self._job_states(request, status, body)
        texts: list[bytes] = []

        def parse(body: bytes) -> Any:
            try:
                members = _MEMBERS.decode(body)
                texts[:] = map(bytes, _RECORDS.decode(members.pop("nodes")))
            except (KeyError, msgspec.MsgspecError):
                return msgspec.json.decode(body)
            known = self._nodes if request.read in _OF_NODES else {}
            nodes = [known.get(text) or msgspec.json.decode(text) for text in texts]
            return {
                "nodes": nodes,
                **{key: msgspec.json.decode(member) for key, member in members.items()},
            }

        answer = decode(request, status, body, parse=parse)
        # The answer for one node alone is no reason to forget the others.
        if isinstance(answer, Nodes):
            self._nodes = dict(zip(texts, answer.nodes, strict=True))
        return answer

    def _job_states(self, request: Request[T], status: int, body: bytes) -> T:
        text = b""
        with contextlib.suppress(KeyError, msgspec.MsgspecError):
            members = _MEMBERS.decode(body)
            if bytes(members.get("errors", _NO_ERRORS)) == _NO_ERRORS:
                text = bytes(members["jobs"])
        known, answer = self._states
        if text and text == known:
            same: T = answer
            return same
        found = decode(request, status, body, parse=msgspec.json.decode)
        self._states = text, found
        return found


class Client:
    """Calls one slurmrestd over kept connections, at most `concurrency` at a time.

    Use as `async with Client(url, tokens) as client`. A refused token is dropped, so that the next
    call has a new one. `versions` of the API are tried in this order. With `user`, requests are
    sent as this user: the tokens are those of SlurmUser or root then, and a name that is no user's
    is no request, but NoToken.
    """

    def __init__(
        self,
        url: str,
        tokens: Tokens,
        *,
        timeout: float = 15.0,
        concurrency: int = 8,
        versions: Sequence[str] = VERSIONS,
        user: str | None = None,
    ) -> None:
        parsed = URL(url)
        if parsed.scheme not in {"http", "https"} or not parsed.host:
            raise ValueError(f"slurmrestd's address {url!r} should be http://HOST:PORT")
        self._url = url.rstrip("/")
        self._host = parsed.host
        self._tokens = tokens
        self._timeout = timeout
        self._concurrency = concurrency
        self._versions = tuple(versions)
        self._user = user
        self._session: aiohttp.ClientSession | None = None
        self._version: str | None = None
        self._decode = Decoder()

    @property
    def version(self) -> str | None:
        """The API version that the server has accepted; None before the first answer."""
        return self._version

    async def call(self, request: Request[T], *, timeout: float | None = None) -> T:
        """Send the request and decode its answer within `timeout` seconds, waiting for a free
        connection included.

        The request's API version is used, or else the first that the server offers. Raises
        SlurmError. After Unreachable the outcome of a write is unknown.
        """
        seconds = self._timeout if timeout is None else timeout
        try:
            token = self._tokens.token()
            if self._user is not None:
                checked(self._user)
        except (OSError, ValueError) as error:
            raise NoToken(str(request), f"no token can be signed: {error}") from error
        try:
            async with asyncio.timeout(seconds):
                status, body = await self._exchange(request, token)
        except TimeoutError:
            raise Unreachable(
                str(request), f"no whole answer from {self._host} within {seconds:g} s"
            ) from None
        except (aiohttp.ClientError, OSError) as error:
            raise Unreachable(
                str(request), f"{self._host}: {type(error).__name__}: {error}"
            ) from error
        try:
            if isinstance(body, JobsReader):
                return decode(request, status, body.start, parse=lambda _: body.finish())
            return self._decode(request, status, body)
        except AuthenticationError:
            self._tokens.forget()
            raise

    async def _exchange(self, request: Request[T], token: str) -> tuple[int, bytes | JobsReader]:
        headers = {
            TOKEN_HEADER: token,
            "Accept": "application/json",
            "Content-Type": "application/json",
            **({} if self._user is None else {USER_HEADER: self._user}),
        }
        status = STATUS_NO_SUCH_ENDPOINT
        body: bytes | JobsReader = b""
        chosen = request.version if request.version in self._versions else self._version
        for version in versions_to_try(chosen, self._versions):
            url = URL(self._url + request.target(version), encoded=True)
            async with self._opened().request(
                request.method, url, data=request.content(), headers=headers, allow_redirects=False
            ) as response:
                status = response.status
                if request.all_jobs is not None and status == 200:
                    body = JobsReader(request.all_jobs)
                    async for chunk in response.content.iter_any():
                        body.feed(chunk)
                else:
                    body = await whole(response, _MAX_BODY)
            if status != STATUS_NO_SUCH_ENDPOINT:
                if version not in (self._version, request.version):
                    log.info("slurmrestd at %s: REST API %s", self._host, version)
                if version != request.version:
                    self._version = version
                break
        return status, body

    def _opened(self) -> aiohttp.ClientSession:
        # Created at the first call, because a session belongs to the running loop.
        if self._session is None:
            self._session = aiohttp.ClientSession(
                connector=_Connector(limit=self._concurrency),
                timeout=aiohttp.ClientTimeout(total=None),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    async def close(self) -> None:
        """End the connections. A later call opens new ones."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()


async def whole(response: aiohttp.ClientResponse, limit: int) -> bytes:
    """Return the body. Raises OSError for one of more than `limit` bytes, before it is read to its
    end.
    """
    parts: list[bytes] = []
    async for part in response.content.iter_any():
        limit -= len(part)
        if limit < 0:
            raise OSError("the answer is too long")
        parts.append(part)
    return b"".join(parts)


async def ready(address: str, *, port: int = ports.SLURMCTLD, seconds: float = 1.0) -> bool | None:
    """Return whether the slurmctld at an IP address is the primary, or None without an answer in
    `seconds`.
    """
    host = f"[{address}]" if ":" in address else address
    try:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=seconds)) as session,
            session.get(f"http://{host}:{port}{READYZ}", allow_redirects=False) as answer,
        ):
            return answer.status < 300
    except (aiohttp.ClientError, OSError, TimeoutError):
        return None


class _OneAnswer(ResponseHandler):
    """A connection that drops what follows the body of an answer that closes it.

    It parses only answers with a length, as all of slurmrestd's are, and only to find their end.
    """

    _CLOSES = re.compile(rb"\r\nconnection:[ \t]*close[ \t]*\r\n", re.IGNORECASE)
    _LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]{1,12})[ \t]*\r\n", re.IGNORECASE)

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._head = b""
        self._left = 0
        self._closes = False

    def data_received(self, data: bytes) -> None:
        if self._left or self._closes:
            data = data[: self._left] if self._closes else data
            self._left = max(0, self._left - len(data))
        elif self._head or data.startswith(b"HTTP/1."):
            # A head that arrives in parts is buffered until it is complete.
            self._head += data
            end = self._head.find(b"\r\n\r\n") + 4
            if end < 4 and len(self._head) < _MAX_HEAD:
                return
            data, self._head = self._head, b""
            length = self._LENGTH.search(data, 0, end)
            if length is not None:
                end += int(length[1])
                self._closes = self._CLOSES.search(data, 0, end) is not None
                self._left = max(0, end - len(data))
                data = data[:end] if self._closes else data
        if data:
            super().data_received(data)


class _Connector(aiohttp.TCPConnector):
    """Creates such connections."""

    def __init__(self, *, limit: int) -> None:
        super().__init__(limit=limit)
        self._factory = functools.partial(_one_answer, asyncio.get_running_loop())


def _one_answer(loop: asyncio.AbstractEventLoop) -> ResponseHandler:
    return _OneAnswer(loop)
