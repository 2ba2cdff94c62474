"""The role as a whole: tokens, paths, formats and compression, against a simulated slurmrestd over
HTTP.
"""

import asyncio
import contextlib
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import AsyncIterator
from pathlib import Path

import aiohttp
import pytest

from sidecars.exporter import main
from sidecars.exporter.settings import Settings
from sidecars.simulate import SlurmModel
from sidecars.simulate.carriers import serve as simulated
from sidecars.slurm.tokens import sign
from tests.cluster.control_plane import free_ports
from tests.unit.exporter.exposition import parsed

KEY = b"0123456789abcdef0123456789abcdef"
PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,text/plain;"
    "version=0.0.4;q=0.4,*/*;q=0.1"
)


@pytest.fixture
def port() -> int:
    """A free port."""
    [found] = free_ports(1)
    return found


@contextlib.asynccontextmanager
async def running(settings: Settings, *, up: float = 1) -> AsyncIterator[str]:
    """The exporter until the end of the block, which ends it by SIGTERM; its address.

    The block begins when all sources were read and Slurm is up, or not.
    """
    task = asyncio.create_task(main.run(settings, host="127.0.0.1"))
    scheme = "http" if settings.certificate is None else "https"
    url = f"{scheme}://127.0.0.1:{settings.port}"
    try:
        await until(url, up=up)
        yield url
    finally:
        os.kill(os.getpid(), signal.SIGTERM)
        await task


async def until(url: str, *, up: float) -> None:
    """Wait until all sources were read and Slurm is up, or not; the test's own limit ends it."""
    async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=False)) as session:
        while True:
            with contextlib.suppress(aiohttp.ClientError):
                async with session.get(f"{url}/metrics") as answer:
                    found = parsed(await answer.read())
                    if (
                        all(found["slurm_exporter_collections_total"].values())
                        and found["slurm_exporter_up"][()] == up
                    ):
                        return
            await asyncio.sleep(0.02)


@contextlib.asynccontextmanager
async def slurm() -> AsyncIterator[tuple[SlurmModel, str]]:
    model = SlurmModel(time.time)
    model.key = KEY
    model.node_register("n0")
    async with simulated(model) as url:
        yield model, url


async def get(url: str, **headers: str) -> tuple[int, str, str, bytes]:
    """Status, content type, encoding and raw body."""
    async with (
        aiohttp.ClientSession(
            auto_decompress=False, connector=aiohttp.TCPConnector(ssl=False)
        ) as session,
        session.get(url, headers={"Accept-Encoding": "identity", **headers}) as answer,
    ):
        encoding = answer.headers.get("Content-Encoding", "")
        return answer.status, answer.headers["Content-Type"], encoding, await answer.read()


async def test_the_exporter_signs_tokens_and_serves_both_formats_plain_and_compressed(
    tmp_path: Path, port: int
) -> None:
    key = tmp_path / "jwt.key"
    key.write_bytes(KEY)
    async with (
        slurm() as (_, restd),
        running(Settings(restd, key_file=key, port=port)) as url,
    ):
        status, kind, encoding, body = await get(f"{url}/metrics")
        assert (status, kind, encoding) == (200, "text/plain; version=0.0.4; charset=utf-8", "")
        assert parsed(body)["slurm_nodes"]["idle",] == 1
        status, kind, _, body = await get(f"{url}/metrics", Accept=PROMETHEUS)
        assert (status, kind) == (200, "application/openmetrics-text; version=1.0.0; charset=utf-8")
        assert parsed(body, openmetrics=True)["slurm_nodes"]["idle",] == 1
        _, _, encoding, body = await get(f"{url}/metrics", **{"Accept-Encoding": "gzip"})
        assert encoding == "gzip"
        assert body[:2] == b"\x1f\x8b"
        assert [(await get(url + path))[0] for path in ("/healthz", "/readyz", "/other")] == [
            200,
            200,
            404,
        ]


async def test_a_token_file_that_is_renewed_is_read_again(tmp_path: Path, port: int) -> None:
    token = tmp_path / "token"
    token.write_text(sign(b"another key, which slurmctld refuses", "slurm", 60, time.time()))
    async with slurm() as (_, restd):
        settings = Settings(restd, token_file=token, interval=0.1, port=port)
        async with running(settings, up=0) as url:
            refused = parsed((await get(f"{url}/metrics"))[3])
            assert refused["slurm_exporter_errors_total"]["token", "nodes"] >= 1
            token.write_text(sign(KEY, "slurm", 60, time.time()) + "\n")
            await until(url, up=1)


async def test_a_missing_key_is_an_error_of_the_token_and_the_exporter_still_answers(
    tmp_path: Path, port: int
) -> None:
    missing = tmp_path / "missing"
    settings = Settings("http://127.0.0.1:1", key_file=missing, interval=3600.0, port=port)
    async with running(settings, up=0) as url:
        found = parsed((await get(f"{url}/metrics"))[3])
        assert found["slurm_exporter_up"] == {(): 0}
        assert found["slurm_exporter_errors_total"]["token", "nodes"] == 1
        assert (await get(f"{url}/readyz"))[0] == 200


async def test_metrics_are_served_over_tls(tmp_path: Path, port: int) -> None:
    key, certificate, signing = tmp_path / "tls.key", tmp_path / "tls.crt", tmp_path / "jwt.key"
    signing.write_bytes(KEY)
    command = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "ec",
        "-pkeyopt",
        "ec_paramgen_curve:P-256",
        "-nodes",
    ]
    command += ["-subj", "/CN=exporter", "-keyout", str(key), "-out", str(certificate)]
    await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)
    async with slurm() as (_, restd):
        settings = Settings(restd, key_file=signing, port=port, certificate=(certificate, key))
        async with running(settings) as url:
            assert (await get(f"{url}/healthz"))[0] == 200
            with pytest.raises(aiohttp.ClientError):
                await get(f"http://127.0.0.1:{settings.port}/healthz")


def test_what_can_not_be_used_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main.main(["--fast"], environment={}) == 2
    assert "'--fast'" in capsys.readouterr().err
    assert main.main(environment={}) == 2
    assert "SLURMRESTD_URL" in capsys.readouterr().err
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        environment = {
            "SLURMRESTD_URL": "http://127.0.0.1:1",
            "EXPORTER_PORT": str(taken.getsockname()[1]),
        }
        assert main.main(environment=environment) == 1
    assert "can't serve on port" in capsys.readouterr().err


def test_a_certificate_that_does_not_exist_is_refused(
    tmp_path: Path, port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    environment = {
        "SLURMRESTD_URL": "http://127.0.0.1:1",
        "EXPORTER_PORT": str(port),
        "EXPORTER_TLS_CERTIFICATE_FILE": str(tmp_path / "tls.crt"),
        "EXPORTER_TLS_KEY_FILE": str(tmp_path / "tls.key"),
    }
    assert main.main(environment=environment) == 1
    assert "can't serve" in capsys.readouterr().err
    assert issubclass(ssl.SSLError, OSError)
