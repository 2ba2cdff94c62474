"""Every server of ours, attacked from loopback: `sidecars.serving`."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from unittest import mock

import aiohttp
import pytest
from aiohttp import web

from sidecars import generated, serving
from sidecars.connections import Connection, Connections, Limits
from tests.cluster.certificates import Authority
from tests.cluster.control_plane import free_ports

ATTACKER = "127.0.0.2"
SMALL = Limits(connections=4, in_flight=100_000, unread=2)
LONG = 16 << 20
"""Bytes of an answer, more than the sockets of both sides take."""


class Server:
    """With or without TLS. POST answers with the number of bytes that it got, /long with LONG
    bytes.
    """

    def __init__(self, port: int, client: ssl.SSLContext | None, seen: asyncio.Queue[str]) -> None:
        self.port, self.client, self.seen = port, client, seen
        self.url = f"{'https' if client else 'http'}://127.0.0.1:{port}"

    @contextlib.asynccontextmanager
    async def connected(self, *, source: str = ATTACKER, tls: bool = True) -> AsyncIterator["Wire"]:
        reader, writer = await asyncio.open_connection(
            "127.0.0.1", self.port, ssl=self.client if tls else None, local_addr=(source, 0)
        )
        try:
            yield Wire(reader, writer)
        finally:
            writer.transport.abort()


class Wire:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        """Send it, unless the server has ended the connection."""
        self.writer.write(data)
        with contextlib.suppress(ConnectionError):
            await self.writer.drain()

    async def answer(self) -> bytes:
        """The first line of an answer, and no more of it."""
        line = await self.reader.readline()
        await self.reader.readuntil(b"ok\n")
        return line.strip()

    async def rest(self) -> int:
        """The bytes that it still gets, until LONG or its end."""
        self.writer.transport.resume_reading()  # type: ignore[attr-defined]
        count = 0
        with contextlib.suppress(OSError):
            while count < LONG and (found := await self.reader.read(1 << 20)):
                count += len(found)
        return count

    async def lines(self) -> list[bytes]:
        """All lines until the server has ended it."""
        found = b""
        with contextlib.suppress(OSError):
            while more := await self.reader.read(1000):
                found += more
        return found.splitlines()

    async def ended(self) -> None:
        """Until the server has ended it."""
        with contextlib.suppress(OSError):
            while await self.reader.read(1000):
                pass


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No connection is ended for its silence or its age."""
    for name in ("HEADER_SECONDS", "IDLE_SECONDS"):
        monkeypatch.setattr(serving, name, 3600)


@contextlib.asynccontextmanager
async def served(folder: Path, *, tls: bool) -> AsyncIterator[Server]:
    async def count(request: web.Request) -> web.Response:
        return web.Response(text=f"{len(await request.read())} ok\n")

    seen: asyncio.Queue[str] = asyncio.Queue()

    class Watched(Connections):
        def stuck(self, connection: Connection) -> None:
            seen.put_nowait("stuck")
            super().stuck(connection)

        def _end(self, connection: Connection) -> None:
            super()._end(connection)
            seen.put_nowait("ended")

    async def long(_: web.Request) -> web.Response:
        return web.Response(body=bytes(LONG))

    app = web.Application()
    app.router.add_post("/", count)
    app.router.add_get("/", count)
    app.router.add_get("/long", long)
    [port] = free_ports(1)
    files = folder / "tls.crt", folder / "tls.key"
    client = None
    if tls:
        certificate, key = await generated.certificate("localhost", 2)
        files[0].write_text(certificate)
        files[1].write_text(key)
        client = ssl.create_default_context(cadata=certificate)
        client.check_hostname = False
    with mock.patch.object(serving, "Connections", Watched):
        end = await serving.serve(app, "127.0.0.1", port, files if tls else None, SMALL)
    try:
        yield Server(port, client, seen)
    finally:
        await end()


GET = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"
tls_and_plain = pytest.mark.parametrize("tls", [True, False], ids=["tls", "plain"])


@tls_and_plain
@pytest.mark.usefixtures("patient")
async def test_connections_that_send_nothing_are_bounded_and_keep_nobody_out(
    tmp_path: Path, *, tls: bool
) -> None:
    async with served(tmp_path, tls=tls) as server, contextlib.AsyncExitStack() as stack:
        client = await stack.enter_async_context(server.connected(source="127.0.0.1"))
        await client.send(GET)
        assert await client.answer() == b"HTTP/1.1 200 OK"
        idle = [await stack.enter_async_context(server.connected(tls=False)) for _ in range(10)]
        for it in idle[: 10 - SMALL.connections + 1]:
            await it.ended()
        await client.send(GET)
        assert await client.answer() == b"HTTP/1.1 200 OK"


@tls_and_plain
async def test_who_does_not_send_all_headers_in_time_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, tls: bool
) -> None:
    monkeypatch.setattr(serving, "HEADER_SECONDS", 1)
    async with served(tmp_path, tls=tls) as server:
        async with server.connected(tls=False) as mute:
            await mute.ended()
        # On a busy host, it is disconnected in the handshake.
        with contextlib.suppress(ConnectionError):
            async with server.connected() as slow:
                await slow.send(GET[:-2])
                await slow.ended()


@tls_and_plain
async def test_a_connection_is_not_kept_long_without_a_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, tls: bool
) -> None:
    monkeypatch.setattr(serving, "HEADER_SECONDS", 3600)
    monkeypatch.setattr(serving, "IDLE_SECONDS", 0.2)
    async with served(tmp_path, tls=tls) as server, server.connected() as idle:
        await idle.send(GET)
        assert await idle.answer() == b"HTTP/1.1 200 OK"
        await idle.send(GET[:-2])
        await idle.ended()


@tls_and_plain
@pytest.mark.usefixtures("patient")
async def test_requests_without_an_end_share_a_number_of_bytes_and_those_of_others_are_answered(
    tmp_path: Path, *, tls: bool
) -> None:
    begun = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n" + b"x" * 30_000
    headers = b"GET / HTTP/1.1\r\nHost: a\r\n" + b"".join(
        b"X-%d: %s\r\n" % (it, b"x" * 5000) for it in range(6)
    )
    async with served(tmp_path, tls=tls) as server, contextlib.AsyncExitStack() as stack:
        first, second, third = [
            await stack.enter_async_context(server.connected()) for _ in range(3)
        ]
        await first.send(begun)
        await second.send(headers)
        with contextlib.suppress(OSError):
            await third.send(begun + b"x" * 30_000)
        await third.ended()
        async with (
            aiohttp.ClientSession() as session,
            session.post(server.url, data=b"x" * 20_000, ssl=server.client or True) as answered,
        ):
            assert await answered.text() == "20000 ok\n"


@tls_and_plain
async def test_a_request_with_more_bytes_than_all_may_have_ends_without_answer_and_log_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, tls: bool
) -> None:
    async with served(tmp_path, tls=tls) as server, aiohttp.ClientSession() as session:
        with pytest.raises(aiohttp.ClientConnectionError):
            await session.post(server.url, data=b"x" * 200_000, ssl=server.client or True)
        async with session.get(server.url, ssl=server.client or True) as answered:
            assert answered.status == 200
    assert not caplog.records


@contextlib.asynccontextmanager
async def unread(server: Server) -> AsyncIterator[Wire]:
    """Ask for the long answer, and take nothing of it until `rest`."""
    async with server.connected() as client:
        client.writer.transport.pause_reading()  # type: ignore[attr-defined]
        await client.send(b"GET /long HTTP/1.1\r\nHost: a\r\n\r\n")
        assert await server.seen.get() == "stuck"
        yield client


@tls_and_plain
async def test_who_does_not_take_an_answer_is_disconnected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, tls: bool
) -> None:
    monkeypatch.setattr(serving, "UNREAD_SECONDS", 0.1)
    async with served(tmp_path, tls=tls) as server, asyncio.timeout(20), unread(server) as client:
        assert await server.seen.get() == "ended"
        assert await client.rest() < LONG


@tls_and_plain
async def test_few_answers_wait_for_clients_that_do_not_take_them_and_others_get_theirs(
    tmp_path: Path, *, tls: bool
) -> None:
    async with (
        served(tmp_path, tls=tls) as server,
        asyncio.timeout(20),
        unread(server) as first,
        unread(server),
        unread(server) as last,
    ):
        assert await server.seen.get() == "ended"
        async with (
            aiohttp.ClientSession() as session,
            session.get(f"{server.url}/long", ssl=server.client or True) as answered,
        ):
            assert len(await answered.read()) == LONG
        assert await first.rest() < LONG
        assert await last.rest() >= LONG


NO_REQUESTS = {
    "other bytes": b"\xff\xfe\x00\r\n\r\n",
    "a path that is not UTF-8": b"GET /\xff\xfe HTTP/1.1\r\nHost: a\r\n\r\n",
    "another version": b"GET / HTTP/9.9\r\nHost: a\r\n\r\n",
    "HTTP/2": b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
    "no host": b"GET / HTTP/1.1\r\n\r\n",
    "a long header": GET[:-2] + b"X: " + b"x" * 20_000 + b"\r\n\r\n",
    "many headers": GET[:-2] + b"X: x\r\n" * 5000 + b"\r\n",
    "a folded header": GET[:-2] + b"X: x\r\n y\r\n\r\n",
    "two lengths": (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nxx"
    ),
    "a length and chunks": (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"0\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n"
    ),
    "chunks that are none": (
        b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n"
    ),
    "a body that is not gzip": (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Encoding: gzip\r\nContent-Length: 4\r\n\r\nabcd"
    ),
}


@tls_and_plain
async def test_what_is_no_request_is_refused_once_and_fills_no_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, *, tls: bool
) -> None:
    async with served(tmp_path, tls=tls) as server, asyncio.timeout(20):
        for name, sent in NO_REQUESTS.items():
            async with server.connected() as client:
                with contextlib.suppress(OSError):
                    await client.send(sent)
                lines = [it for it in await client.lines() if it.startswith(b"HTTP/")]
                assert [it.split()[1] for it in lines] in ([b"400"], []), name
    assert not caplog.records


async def test_a_failed_handshake_ends_its_connection_and_nothing_else(tmp_path: Path) -> None:
    async with served(tmp_path, tls=True) as server:
        async with server.connected(tls=False) as wrong:
            await wrong.send(GET)
            await wrong.ended()
        async with server.connected() as client:
            await client.send(GET)
            assert await client.answer() == b"HTTP/1.1 200 OK"


async def test_only_clients_with_a_certificate_of_the_authority_are_answered(
    tmp_path: Path,
) -> None:
    async def answer(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    authority, [port] = Authority(tmp_path), free_ports(1)
    app = web.Application()
    app.router.add_get("/", answer)
    served_by = authority.issue("server", "server", hosts=["localhost"])
    clients = authority.certificate.read_text()
    end = await serving.serve(app, "127.0.0.1", port, served_by, clients=clients)
    trust = ssl.create_default_context(cafile=authority.certificate)
    try:
        async with aiohttp.ClientSession() as session:
            url = f"https://localhost:{port}"
            stranger = ssl.create_default_context(cafile=authority.certificate)
            own, key = await generated.certificate("front-proxy-client", 2)
            (tmp_path / "own.pem").write_text(own + key)
            stranger.load_cert_chain(tmp_path / "own.pem")
            for refused in (trust, stranger):
                with pytest.raises(aiohttp.ClientConnectionError):
                    await session.get(url, ssl=refused)
            trust.load_cert_chain(*authority.issue("front-proxy", "front-proxy-client"))
            async with session.get(url, ssl=trust) as answered:
                assert await answered.text() == "ok\n"
    finally:
        await end()


async def test_a_port_that_is_taken_is_reported(tmp_path: Path) -> None:
    async with served(tmp_path, tls=False) as server:
        with pytest.raises(OSError, match="address already in use"):
            await serving.serve(web.Application(), "127.0.0.1", server.port, None)


@pytest.mark.parametrize("address", ["127.0.0.1", "::1"])
async def test_without_a_host_all_addresses_of_both_families_are_served(address: str) -> None:
    async def ok(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    app = web.Application()
    app.router.add_get("/", ok)
    [port] = free_ports(1)
    end = await serving.serve(app, "", port, None)
    try:
        reader, writer = await asyncio.open_connection(address, port)
        writer.write(b"GET / HTTP/1.0\r\n\r\n")
        assert (await reader.readline()).startswith(b"HTTP/1.0 200")
        writer.close()
    finally:
        await end()
