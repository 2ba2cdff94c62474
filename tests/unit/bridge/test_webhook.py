"""The role `webhook`."""

import asyncio
import io
import json
import signal
import ssl
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from sidecars import generated
from sidecars.bridge import webhook
from sidecars.bridge.webhook import Settings, main, parse
from sidecars.serving import serve
from tests.cluster.control_plane import free_ports
from tests.support.apiserver import until
from tests.unit.policy.bridge.test_admission import review

HOST = "w.slurm.svc"


def test_flags_become_settings() -> None:
    assert parse(["--certificate", "/c"]) == Settings(Path("/c"))
    assert parse(["--certificate", "/c", "--port", "9", "--log-level", "debug"]) == Settings(Path("/c"), 9, "debug")


@pytest.mark.parametrize(
    ("flags", "words"), [([], "--certificate"), (["--certificate", "/c", "--port", "-1"], "'-1' is not a port")]
)
def test_a_bad_value_is_named(flags: list[str], words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(flags)
    assert words in capsys.readouterr().err


def test_without_a_certificate_it_does_not_start(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert main(["--certificate", str(tmp_path), "--port", str(free_ports(1)[0])]) == 1
    assert f"with the certificate in {tmp_path}" in caplog.text


async def put(folder: Path, certificate: str, key: str) -> ssl.SSLContext:
    """Write them, as a kubelet does; what trusts them."""
    (folder / "tls.key").write_text(key)
    (folder / "tls.crt").write_text(certificate)
    return ssl.create_default_context(cadata=certificate)


async def test_it_answers_until_after_sigterm_and_ends(tmp_path: Path) -> None:
    [port] = free_ports(1)
    trust = await put(tmp_path, *await generated.certificate(HOST, 2))
    program = "import sys; from sidecars.bridge import webhook; webhook.DRAIN_SECONDS = 1.0; "
    program += "sys.exit(webhook.main(sys.argv[1:]))"
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program, f"--certificate={tmp_path}", f"--port={port}")
    )
    url = f"https://127.0.0.1:{port}"
    async with aiohttp.ClientSession() as session:

        async def ask() -> aiohttp.ClientResponse:
            async with session.post(f"{url}/gate", data=review({}), ssl=trust, server_hostname=HOST) as answered:
                assert json.loads(await answered.read())["response"]["allowed"]
                return answered

        async def ready() -> bool:
            try:
                async with session.get(f"{url}/readyz", ssl=trust, server_hostname=HOST) as answered:
                    return answered.status == 200
            except aiohttp.ClientConnectionError:
                return False

        try:
            await until("it to be ready", ready)
            assert (await ask()).headers.get("Connection") != "close"
            process.send_signal(signal.SIGTERM)

            async def draining() -> bool:
                return (await ask()).headers.get("Connection") == "close"

            await until("it to send API servers to other pods", draining)
            assert await process.wait() == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


async def test_large_questions_do_not_fill_the_memory_and_keep_no_small_one_from_its_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Any pod of the cluster can send them, as slowly as it likes."""
    monkeypatch.setattr(webhook, "LARGE_AT_ONCE", 2)
    [port] = free_ports(1)
    trust = await put(tmp_path, *await generated.certificate(HOST, 2))
    end = await serve(webhook.application(), "127.0.0.1", port, (tmp_path / "tls.crt", tmp_path / "tls.key"))
    begun, go_on = asyncio.Event(), asyncio.Event()

    async def slowly() -> AsyncIterator[bytes]:
        yield review({})[:5]
        begun.set()
        await go_on.wait()
        yield review({})[5:]

    try:
        async with aiohttp.ClientSession(f"https://127.0.0.1:{port}") as session:

            async def ask(data: AsyncIterator[bytes] | bytes, **headers: str) -> int:
                asked = session.post("/gate", data=data, headers=headers, ssl=trust, server_hostname=HOST)
                async with asked as answered:
                    return answered.status

            first = asyncio.create_task(ask(slowly()))
            await begun.wait()
            begun.clear()
            second = asyncio.create_task(ask(slowly(), **{"Content-Length": str(webhook.LARGE + 1)}))
            await begun.wait()

            async def refused() -> bool:
                return await ask(b"x" * (webhook.LARGE + 1)) == 503

            await until("large questions to be refused", refused)
            assert await ask(review({})) == 200
            go_on.set()
            assert await first == 200
            second.cancel()
            await asyncio.gather(second, return_exceptions=True)

            async def read_again() -> bool:
                return await ask(b"x" * (webhook.LARGE + 1)) == 400

            await until("large questions to be read again", read_again)
    finally:
        await end()


async def test_what_is_no_question_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    [port] = free_ports(1)
    trust = await put(tmp_path, *await generated.certificate(HOST, 2))
    files = tmp_path / "tls.crt", tmp_path / "tls.key"
    end = await serve(webhook.application(), "127.0.0.1", port, files)
    try:
        async with aiohttp.ClientSession(f"https://127.0.0.1:{port}") as session:
            async with session.post("/gate", data=b"{}", ssl=trust, server_hostname=HOST) as answered:
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

            async with session.post("/gate", data=slowly(), ssl=trust, server_hostname=HOST) as answered:
                assert answered.status == 408
                never.set()
    finally:
        await end()
