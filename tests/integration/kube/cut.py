"""A TCP relay in front of the API server whose connections a test can cut or freeze, and a hand on
etcd.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import ssl
from typing import TYPE_CHECKING, Self
from urllib.request import Request, urlopen

import yaml

if TYPE_CHECKING:
    from pathlib import Path

    from tests.cluster.control_plane import ControlPlane


class Relay:
    """Async context manager. `kubeconfig` reaches the API server through it."""

    def __init__(self, plane: ControlPlane, folder: Path) -> None:
        self.kubeconfig = folder / "relay.kubeconfig"
        self.connections = 0
        self._plane = plane
        self._open = asyncio.Event()
        self._open.set()
        self._writers: set[asyncio.StreamWriter] = set()
        self._serving: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        config = yaml.safe_load(self._plane.kubeconfig.read_text())
        config["clusters"][0]["cluster"]["server"] = f"https://127.0.0.1:{port}"
        self.kubeconfig.write_text(yaml.safe_dump(config))
        return self

    async def __aexit__(self, *_: object) -> None:
        self.cut()
        self._server.close()
        await self._server.wait_closed()
        if self._serving:
            await asyncio.wait(self._serving, timeout=5)
        await asyncio.sleep(0)  # in which aborted transports close

    def cut(self) -> None:
        """Break all connections and take no more until `mend`."""
        self._open.clear()
        for writer in self._writers:
            writer.transport.abort()

    def mend(self) -> None:
        """Let connections through again."""
        self._open.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._writers.add(writer)
        task: asyncio.Task[None] | None = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            if not self._open.is_set():
                writer.transport.abort()
                return
            port = self._plane.place.ports["kube-apiserver"]
            with contextlib.suppress(OSError):
                onward_reader, onward_writer = await asyncio.open_connection("127.0.0.1", port)
                self._writers.add(onward_writer)
                async with asyncio.TaskGroup() as both:
                    both.create_task(_copy(reader, onward_writer))
                    both.create_task(_copy(onward_reader, writer))
                self._writers.discard(onward_writer)
                await asyncio.sleep(0)
        finally:
            writer.transport.abort()
            self._writers.discard(writer)
            self._serving.discard(task)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while content := await reader.read(2**16):
            writer.write(content)
            await writer.drain()
    writer.transport.abort()


def compact(plane: ControlPlane) -> None:
    """Make etcd forget everything but the newest state, as the API server has it do every five
    minutes.
    """
    certificate, key = plane.authority.issue("apiserver-etcd", "kube-apiserver-etcd")
    trust = ssl.create_default_context(cafile=str(plane.authority.certificate))
    trust.load_cert_chain(certificate, key)

    def ask(path: str, body: dict[str, object]) -> dict[str, dict[str, str]]:
        url = f"https://127.0.0.1:{plane.place.ports['etcd']}{path}"
        request = Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
        with urlopen(request, context=trust, timeout=60) as answer:  # noqa: S310 - ours
            result: dict[str, dict[str, str]] = json.load(answer)
            return result

    revision = ask("/v3/kv/range", {"key": "eA=="})["header"]["revision"]
    ask("/v3/kv/compaction", {"revision": revision, "physical": True})
