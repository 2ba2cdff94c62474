"""Both carriers against a slurmrestd on a real port: versions, tokens, faults and deadlines."""

import asyncio
import contextlib
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Protocol, TypeVar

import pytest

from sidecars.simulate import Fault, SlurmModel, serve
from sidecars.slurm import protocol
from sidecars.slurm.client import Client
from sidecars.slurm.errors import (
    AuthenticationError,
    Malformed,
    NotFound,
    NoToken,
    ServerFault,
    SlurmError,
    Unreachable,
)
from sidecars.slurm.protocol import Request
from sidecars.slurm.rest import Rest
from sidecars.slurm.tokens import TokenSource

T = TypeVar("T")

KEY = b"0123456789abcdef0123456789abcdef"


class Carry(Protocol):
    """One call by either carrier."""

    async def __call__(self, request: Request[T], *, timeout: float | None = None) -> T: ...


class Server:
    """A model behind a port, and how to make a carrier for it (or for another address or key)."""

    def __init__(
        self, model: SlurmModel, url: str, make: Callable[[str, TokenSource], Carry]
    ) -> None:
        self.model = model
        self.url = url
        self.key = KEY
        self.make = make
        self.call = self.carrier(url)

    def carrier(self, url: str) -> Carry:
        return self.make(url, TokenSource(lambda: self.key, clock=time.time))


def by_thread(url: str, tokens: TokenSource) -> Carry:
    rest = Rest(url, tokens.token)

    async def carry(request: Request[T], *, timeout: float | None = None) -> T:
        return await asyncio.to_thread(rest.call, request, timeout=timeout)

    return carry


@pytest.fixture(params=["aiohttp", "standard library"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[Server]:
    clients: list[Client] = []

    def by_aiohttp(url: str, tokens: TokenSource) -> Carry:
        clients.append(Client(url, tokens))
        return clients[-1].call

    model = SlurmModel()
    model.key = KEY
    model.node_register("n1")
    async with serve(model) as url:
        yield Server(model, url, by_aiohttp if request.param == "aiohttp" else by_thread)
        for client in clients:
            await client.close()


async def failure(call: Awaitable[Any]) -> SlurmError:
    with pytest.raises(SlurmError) as caught:
        await call
    return caught.value


async def test_a_question_is_answered_with_a_valid_token(server: Server) -> None:
    nodes = await server.call(protocol.get_nodes())
    assert nodes is not None
    assert [node.name for node in nodes.nodes] == ["n1"]


async def test_a_write_arrives(server: Server) -> None:
    await server.call(protocol.update_nodes(["n1"], state=["DRAIN"], reason="ü"))
    assert server.model.nodes["n1"].reason == "ü"


async def test_nothing_new_is_none(server: Server) -> None:
    assert await server.call(protocol.get_nodes(2_000_000_000)) is None


async def test_an_older_server_is_spoken_to_in_its_version_and_asked_once_only(
    server: Server,
) -> None:
    server.model.versions = ("v0.0.44",)
    await server.call(protocol.update_nodes(["n1"], comment="x"))
    await server.call(protocol.ping())
    assert len(server.model.calls) == 2


async def test_a_request_is_sent_in_its_own_version_where_the_server_offers_it(
    server: Server,
) -> None:
    await server.call(protocol.get_queue())
    await server.call(protocol.get_nodes())
    assert [call.version for call in server.model.calls] == ["v0.0.44", "v0.0.45"]
    server.model.versions = ("v0.0.45",)
    listed = await server.call(protocol.get_queue())
    assert listed is not None
    assert not listed.exclusive_known


async def test_a_server_that_changes_its_version_is_found_again(server: Server) -> None:
    server.model.versions = ("v0.0.44",)
    await server.call(protocol.ping())
    server.model.versions = ("v0.0.45",)
    await server.call(protocol.ping())


async def test_a_server_without_a_version_of_ours_is_a_fault(server: Server) -> None:
    server.model.versions = ("v0.0.99",)
    assert isinstance(await failure(server.call(protocol.ping())), ServerFault)


async def test_a_changed_key_is_used_at_once(server: Server) -> None:
    await server.call(protocol.get_nodes())
    server.key = server.model.key = b"another key another key another "
    await server.call(protocol.get_nodes())


async def test_a_wrong_key_is_an_authentication_error_and_a_right_one_heals_it(
    server: Server,
) -> None:
    server.key = b"another key another key another "
    assert isinstance(await failure(server.call(protocol.get_nodes())), AuthenticationError)
    server.key = KEY
    await server.call(protocol.get_nodes())


async def test_without_a_key_nothing_is_sent(server: Server) -> None:
    server.key = b""
    error = await failure(server.call(protocol.get_nodes()))
    assert isinstance(error, NoToken)
    assert "key is empty" in str(error)
    assert server.model.calls == []


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (Fault.SERVER_ERROR, ServerFault),
        (Fault.NO_SLURMCTLD, ServerFault),
        (Fault.ERRORS_WITH_200, ServerFault),
        (Fault.BAD_TOKEN, AuthenticationError),
        (Fault.BAD_TOKEN_OLD, AuthenticationError),
        (Fault.NO_TOKEN, AuthenticationError),
        (Fault.TRUNCATED, Malformed),
        (Fault.CUT, Unreachable),
    ],
)
@pytest.mark.parametrize("question", [protocol.get_nodes(), protocol.get_jobs()], ids=str)
async def test_each_fault_has_its_error_and_the_next_call_succeeds(
    server: Server, question: Request[Any], fault: Fault, kind: type[SlurmError]
) -> None:
    server.model.fail(fault, 1)
    assert isinstance(await failure(server.call(question)), kind)
    await server.call(question)


async def test_many_jobs_arrive_whole_and_in_order(server: Server) -> None:
    submitted = [
        server.model.job_submit(name=f'}},{{"job_id": {number}') for number in range(2_000)
    ]
    answer = await server.call(protocol.get_jobs())
    assert answer is not None
    assert [job.job_id for job in answer.jobs] == submitted
    assert answer.jobs[7].name == '},{"job_id": 7'


async def test_an_unknown_node_is_not_found(server: Server) -> None:
    assert isinstance(await failure(server.call(protocol.delete_node("zz"))), NotFound)


@pytest.mark.parametrize("fault", [Fault.HANG, Fault.SLOW])
async def test_an_answer_that_does_not_come_in_time_is_given_up(
    server: Server, fault: Fault
) -> None:
    server.model.fail(fault, 1, seconds=300)
    started = time.monotonic()
    error = await failure(server.call(protocol.get_nodes(), timeout=0.2))
    assert isinstance(error, Unreachable)
    assert "0.2 s" in str(error)
    assert time.monotonic() - started < 60


@contextlib.asynccontextmanager
async def listening(
    answer: Callable[[asyncio.StreamWriter], Awaitable[None]],
) -> AsyncIterator[str]:
    """A port whose every connection is treated by `answer` after the first line; the URL."""
    connections: set[asyncio.Task[None]] = set()

    async def treat(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readline()
        with contextlib.suppress(ConnectionError):
            await answer(writer)
        writer.transport.abort()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.add(asyncio.create_task(treat(reader, writer)))

    listener = await asyncio.start_server(accept, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    listener.close()
    await listener.wait_closed()
    await asyncio.gather(*connections)


async def test_an_answer_that_trickles_in_is_given_up_in_time(server: Server) -> None:
    async def trickle(writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        while True:
            writer.write(b" ")
            await writer.drain()
            await asyncio.sleep(0.02)

    started = time.monotonic()
    async with listening(trickle) as url:
        error = await failure(server.carrier(url)(protocol.ping(), timeout=0.3))
        assert time.monotonic() - started < 60
    assert isinstance(error, Unreachable)


async def test_a_port_where_nobody_listens_is_unreachable(server: Server) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        url = f"http://127.0.0.1:{unused.getsockname()[1]}"
        assert isinstance(await failure(server.carrier(url)(protocol.ping())), Unreachable)


async def test_something_that_does_not_speak_http_is_unreachable(server: Server) -> None:
    async def babble(writer: asyncio.StreamWriter) -> None:
        writer.write(b"\x00\x01nonsense\r\n\r\n")
        await writer.drain()

    async with listening(babble) as url:
        assert isinstance(await failure(server.carrier(url)(protocol.ping())), Unreachable)


async def sent_bytewise(writer: asyncio.StreamWriter, answer: bytes) -> None:
    for position in range(len(answer)):
        writer.write(answer[position : position + 1])
        await writer.drain()
        await asyncio.sleep(0)


REFUSAL = b'{"errors": [{"error_number": 2018, "error": "Invalid node name specified"}]}'


@pytest.mark.parametrize("in_parts", [False, True])
async def test_a_refusal_that_is_sent_twice_counts_once(server: Server, in_parts: bool) -> None:
    head = b"HTTP/1.1 422 UNPROCESSABLE CONTENT\r\nConnection: Close\r\nContent-Length: %d\r\n\r\n"
    twice = head % len(REFUSAL) + REFUSAL + head % 5 + b"error"

    async def answer(writer: asyncio.StreamWriter) -> None:
        if in_parts:
            await sent_bytewise(writer, twice)
        else:
            writer.write(twice)
            await writer.drain()

    async with listening(answer) as url:
        assert isinstance(await failure(server.carrier(url)(protocol.delete_node("zz"))), NotFound)


@pytest.mark.parametrize(
    "answer",
    [
        b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nd\r\n{"pings": []}\r\n0\r\n\r\n',
        b'HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{"pings": []}',
        b'HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n{"pings": []}',
    ],
)
async def test_answers_of_a_proxy_in_between_are_understood(server: Server, answer: bytes) -> None:
    async def send(writer: asyncio.StreamWriter) -> None:
        await sent_bytewise(writer, answer)

    async with listening(send) as url:
        assert await server.carrier(url)(protocol.ping()) == ()


async def test_a_connection_is_used_again_after_answers_of_each_kind(server: Server) -> None:
    for _ in range(3):
        await server.call(protocol.get_nodes())
        assert await server.call(protocol.get_nodes(2_000_000_000)) is None
        await failure(server.call(protocol.get_node("zz")))
        await failure(server.call(protocol.delete_node("zz")))


@pytest.mark.parametrize("url", ["", "slurm-restapi:6820", "ftp://x", "http://"])
def test_an_address_that_is_none_is_refused_at_once(url: str) -> None:
    tokens = TokenSource(lambda: KEY, clock=time.time)
    with pytest.raises(ValueError, match="should be http://HOST:PORT"):
        Rest(url, tokens.token)
    with pytest.raises(ValueError, match="should be http://HOST:PORT"):
        Client(url, tokens)


async def test_an_answer_without_end_is_not_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    model = SlurmModel()
    model.node_register("n1")
    monkeypatch.setattr("sidecars.slurm.client._MAX_BODY", 64)
    async with (
        serve(model) as url,
        Client(url, TokenSource(lambda: KEY, clock=time.time)) as client,
    ):
        with pytest.raises(Unreachable, match="the answer is too long"):
            await client.call(protocol.get_nodes())
