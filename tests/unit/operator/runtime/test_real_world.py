"""What the operator takes from the process that it runs in."""

import pytest
from aiohttp import web

from sidecars.contract import status
from sidecars.kube import boottime
from sidecars.operator.runtime.real_world import STATUS_BYTES, RealWorld, fetch_status
from tests.cluster.control_plane import free_ports


def test_what_was_known_before_the_host_slept_is_old_when_it_wakes() -> None:
    assert RealWorld().clock is boottime


@pytest.mark.parametrize(
    "body",
    [
        b" " * (STATUS_BYTES + 1),
        b"[" * 100_000,
        b"[1]",
        b"5",
        b"null",
        b"",
        b"\xff",
        b'{"a": 1',
        b'{"a": ' + b"[" * 100_000,
    ],
)
async def test_an_answer_of_a_pod_that_is_no_status_is_a_failure_and_never_read_without_end(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def answer(_: web.BaseRequest) -> web.Response:
        return web.Response(body=body, content_type="application/json")

    [port] = free_ports(1)
    monkeypatch.setattr(status, "PORT", port)
    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.0)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port).start()
        with pytest.raises((OSError, ValueError)):
            await fetch_status("127.0.0.1", "signed")
    finally:
        await runner.cleanup()
