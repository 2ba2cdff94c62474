"""The role `webhook`."""

import asyncio
import contextlib
import io
import json
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from sidecars import generated, serving
from sidecars.bridge import webhook
from sidecars.bridge.webhook import Settings, main, parse
from sidecars.connections import Limits
from sidecars.serving import serve
from tests.cluster.control_plane import free_ports
from tests.support.apiserver import until
from tests.support.flood import Flood, flood, resident
from tests.unit.bridge.core.test_admission import review

HOST = "w.slurm.svc"


def test_flags_become_settings() -> None:
    assert parse(["--certificate", "/c"]) == Settings(Path("/c"))
    assert parse(["--certificate", "/c", "--port", "9", "--log-level", "debug"]) == Settings(
        Path("/c"), 9, "debug"
    )


@pytest.mark.parametrize(
    ("flags", "words"),
    [([], "--certificate"), (["--certificate", "/c", "--port", "-1"], "'-1' is not a port")],
)
def test_a_bad_value_is_named(
    flags: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parse(flags)
    assert words in capsys.readouterr().err


def test_without_a_certificate_it_does_not_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert main(["--certificate", str(tmp_path), "--port", str(free_ports(1)[0])]) == 1
    assert f"with the certificate in {tmp_path}" in caplog.text


async def put(folder: Path, certificate: str, key: str) -> ssl.SSLContext:
    """Write them, as a kubelet does; what trusts them."""
    (folder / "tls.key").write_text(key)
    (folder / "tls.crt").write_text(certificate)
    return ssl.create_default_context(cadata=certificate)


ROLE = """
import asyncio, sys
from pathlib import Path
from sidecars import serving
from sidecars.bridge import webhook

serving.HEADER_SECONDS = 3600
sleep, over = asyncio.sleep, Path(sys.argv[1])

async def until_over(seconds):
    if seconds != webhook.DRAIN_SECONDS:
        return await sleep(seconds)
    while not over.exists():
        await sleep(0.05)

asyncio.sleep = until_over
sys.exit(webhook.main(sys.argv[2:]))
"""
"""The role, which disconnects no client for its silence, and drains until a file exists: at any
speed of the host, until the test has seen enough.
"""


@contextlib.asynccontextmanager
async def role(folder: Path, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """The role in a process of its own, with this folder's certificate. At SIGTERM, it drains until
    the folder has the file `over`.
    """
    words = (str(folder / "over"), f"--certificate={folder}", f"--port={port}")
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", ROLE, *words)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


@pytest.mark.parametrize("address", ["127.0.0.1", "[::1]"])
async def test_it_answers_at_both_families_until_after_sigterm_and_ends(
    tmp_path: Path, address: str
) -> None:
    [port] = free_ports(1)
    trust = await put(tmp_path, *await generated.certificate(HOST, 2))
    url = f"https://{address}:{port}"
    async with role(tmp_path, port) as process, aiohttp.ClientSession() as session:

        async def ask() -> aiohttp.ClientResponse:
            async with session.post(
                f"{url}/gate", data=review({}), ssl=trust, server_hostname=HOST
            ) as answered:
                assert json.loads(await answered.read())["response"]["allowed"]
                return answered

        async def ready() -> bool:
            try:
                async with session.get(
                    f"{url}/readyz", ssl=trust, server_hostname=HOST
                ) as answered:
                    return answered.status == 200
            except aiohttp.ClientConnectionError:
                return False

        await until("it to be ready", ready)
        assert (await ask()).headers.get("Connection") != "close"
        process.send_signal(signal.SIGTERM)

        async def draining() -> bool:
            return (await ask()).headers.get("Connection") == "close"

        await until("it to send API servers to other pods", draining)
        assert process.returncode is None
        (tmp_path / "over").touch()
        assert await process.wait() == 0


async def is_answered(session: aiohttp.ClientSession, trust: ssl.SSLContext) -> bool:
    """Whether a question gets its answer now."""
    try:
        async with session.post(
            "/gate", data=review({}), ssl=trust, server_hostname=HOST
        ) as answered:
            return answered.status == 200
    except aiohttp.ClientConnectionError:
        return False


async def until_at_most(attack: Flood, connections: int) -> None:
    """Wait until so many connections of the flood are left, but some."""

    async def within() -> bool:
        return 0 < await asyncio.to_thread(attack.alive) <= connections

    await until("what exceeds the bound to be ended, and no more", within)


async def test_hundreds_of_idle_connections_neither_fill_its_memory_nor_delay_an_answer(
    tmp_path: Path,
) -> None:
    """Any pod of the cluster can open them. `python -m tests.bench.webhook` opens 5,000."""
    [port] = free_ports(1)
    trust = await put(tmp_path, *await generated.certificate(HOST, 2))
    async with (
        role(tmp_path, port) as process,
        aiohttp.ClientSession(f"https://127.0.0.1:{port}") as session,
    ):

        async def ask() -> bool:
            return await is_answered(session, trust)

        await until("an answer", ask)
        with flood(port) as attack:
            await asyncio.to_thread(attack.grow, 600)
            # docs/security.md: at most 512, and one of them asks.
            await until_at_most(attack, 511)
            assert await ask()
            assert resident(process.pid) <= 128 << 20


async def test_questions_without_an_end_are_bounded_by_bytes_and_others_are_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any pod of the cluster can send them, as slowly as it likes, and of any size."""
    monkeypatch.setattr(webhook, "LIMITS", Limits(connections=100, in_flight=100_000))
    # Nothing is ended for its slowness.
    monkeypatch.setattr(webhook, "QUESTION_SECONDS", 3600)
    monkeypatch.setattr(serving, "HEADER_SECONDS", 3600)
    [port] = free_ports(1)
    trust = await put(tmp_path, *await generated.certificate(HOST, 2))
    running = asyncio.create_task(webhook.run(Settings(tmp_path, port), "127.0.0.1"))
    try:
        async with aiohttp.ClientSession(f"https://127.0.0.1:{port}") as session:

            async def ask() -> bool:
                return await is_answered(session, trust)

            await until("an answer", ask)
            with flood(port) as attack:
                await asyncio.to_thread(attack.grow, 20)
                await asyncio.to_thread(
                    attack.send,
                    b"POST /gate HTTP/1.1\r\nContent-Length: 99999\r\n\r\n" + b"x" * 9_000,
                )
                assert await ask()
                await until_at_most(attack, 11)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_what_is_no_question_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    [port] = free_ports(1)
    trust = await put(tmp_path, *await generated.certificate(HOST, 2))
    files = tmp_path / "tls.crt", tmp_path / "tls.key"
    end = await serve(webhook.application(), "127.0.0.1", port, files, webhook.LIMITS)
    try:
        async with aiohttp.ClientSession(f"https://127.0.0.1:{port}") as session:
            async with session.post(
                "/gate", data=b"{}", ssl=trust, server_hostname=HOST
            ) as answered:
                assert answered.status == 400
                assert "not an AdmissionReview" in await answered.text()
            async with session.post(
                "/gate", data=io.BytesIO(b"x" * (9 << 20)), ssl=trust, server_hostname=HOST
            ) as answered:
                assert answered.status == 413
            monkeypatch.setattr(webhook, "QUESTION_SECONDS", 0.05)
            never = asyncio.Event()

            async def slowly() -> AsyncIterator[bytes]:
                yield b"{"
                await never.wait()

            async with session.post(
                "/gate", data=slowly(), ssl=trust, server_hostname=HOST
            ) as answered:
                assert answered.status == 408
                never.set()
    finally:
        await end()
