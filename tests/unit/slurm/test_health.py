"""What is concluded from slurmctld's /livez and /readyz, and of silence, by both ways to ask."""

import asyncio
import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest
from aiohttp import web

from sidecars.slurm import client, health

SECONDS = 60.0
"""For an answer that comes, at any speed of the host."""


@pytest.fixture
def unused_port() -> Iterator[int]:
    """A port that nobody else can get, and at which nobody listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        yield unused.getsockname()[1]


@contextlib.contextmanager
def answering(text: bytes) -> Iterator[int]:
    """A port that answers each connection so; with nothing it keeps silent."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(1000)
                        if text:
                            connection.sendall(text)
                        else:
                            connection.recv(1000)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("status", "alive"), [(200, True), (204, True), (503, False), (404, False)]
)
def test_slurmctld_is_alive_when_it_reports_it(status: int, alive: bool) -> None:
    with answering(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode()) as port:
        assert health.alive("127.0.0.1", port, SECONDS) is alive


def test_nobody_who_listens_is_not_alive(unused_port: int) -> None:
    assert health.alive("127.0.0.1", unused_port, SECONDS) is False


@pytest.mark.parametrize("status", [200, 503])
def test_any_answer_shows_that_slurmctld_runs(status: int, unused_port: int) -> None:
    with answering(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode()) as port:
        assert health.answers("127.0.0.1", port, SECONDS) is True
    assert health.answers("127.0.0.1", unused_port, SECONDS) is False


def test_a_connection_that_is_cut_does_not_show_that_slurmctld_has_ended() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            server.accept()[0].close()

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ConnectionError):
            health.answers("127.0.0.1", server.getsockname()[1], SECONDS)
        thread.join()


@pytest.mark.parametrize(("status", "leads"), [(200, True), (503, False)])
def test_slurmctld_leads_when_it_reports_it(status: int, leads: bool) -> None:
    with answering(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode()) as port:
        assert health.leads("127.0.0.1", port, SECONDS) is leads


def test_nobody_who_listens_leads(unused_port: int) -> None:
    assert health.leads("127.0.0.1", unused_port, SECONDS) is False


def test_a_host_that_is_not_known_does_not_lead_but_one_that_could_not_be_looked_up_may(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def looked_up(host: str, *_: object) -> list[object]:
        raise socket.gaierror({"gone": socket.EAI_NONAME}.get(host, socket.EAI_AGAIN), "no address")

    monkeypatch.setattr(socket, "getaddrinfo", looked_up)
    assert health.leads("gone", 6817, 5) is False
    with pytest.raises(socket.gaierror):
        health.leads("unknown", 6817, 5)


def test_one_that_hangs_up_may_lead() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            server.accept()[0].close()

        thread = threading.Thread(target=serve)
        thread.start()
        with pytest.raises(ConnectionError):
            health.leads("127.0.0.1", server.getsockname()[1], SECONDS)
        thread.join()


@pytest.mark.parametrize("text", [b"", b"slurm\r\n\r\n"])
def test_silence_and_what_is_no_http_report_nothing(text: bytes) -> None:
    with answering(text) as port, pytest.raises(OSError, match=r"timed out|no HTTP"):
        health.alive("127.0.0.1", port, 0.2)


@pytest.mark.parametrize(("status", "primary"), [(200, True), (503, False)])
async def test_a_slurmctld_is_the_primary_when_it_reports_it(status: int, primary: bool) -> None:
    asked: list[str] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request.path)
        return web.Response(status=status)

    server = web.Application()
    server.router.add_get("/{path:.*}", answer)
    runner = web.AppRunner(server)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        port = runner.addresses[0][1]
        assert await client.ready("127.0.0.1", port=port, seconds=SECONDS) is primary
    finally:
        await runner.cleanup()
    assert asked == ["/readyz"]


async def test_a_slurmctld_that_does_not_answer_reports_nothing_of_being_the_primary(
    unused_port: int,
) -> None:
    assert await client.ready("127.0.0.1", port=unused_port, seconds=SECONDS) is None
    with answering(b"") as port:
        async with asyncio.timeout(SECONDS):
            assert await client.ready("127.0.0.1", port=port, seconds=0.1) is None
