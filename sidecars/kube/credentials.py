"""The address of an API server, and what authenticates requests to it; `sidecars.kube.kubeconfig`
finds both.

Tokens and certificates rotate, so files are read again (at most REREAD seconds old), exec plug-ins
are asked again before their answer expires, and everything at once after a 401. No secret appears
in an error or a repr.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from sidecars.kube import exec_plugin
from sidecars.kube.errors import CredentialsError

if TYPE_CHECKING:
    from collections.abc import Callable

    from sidecars.kube.exec_plugin import ExecPlugin, ExecStatus

REREAD = 60.0
"""Seconds after which files are read again. The kubelet renews a token when 20 % of its life are
left.
"""
_EARLY = 60.0
_AGAIN = 1.0
"""Seconds until those that could not be obtained are requested again."""


class Access(NamedTuple):
    """What one request carries."""

    authorization: str | None
    """The Authorization header; None: no such header."""
    ssl: ssl.SSLContext | None
    """None for plain HTTP."""
    server_hostname: str | None = None
    """The name that the server's certificate must bear, where it isn't that of the URL."""


Source = bytes | Path | None
"""PEM or a token: its bytes, or the file that contains them."""


@dataclass(frozen=True, slots=True)
class _Material:
    """The pieces that a request is authenticated by, as read at one moment."""

    token: str | None = field(repr=False)
    ca: bytes | None = field(repr=False)
    certificate: bytes | None = field(repr=False)
    key: bytes | None = field(repr=False)


@dataclass(eq=False)
class Credentials:
    """How to reach one API server. `load_credentials` creates them."""

    server: str
    """Base URL, without a slash at the end."""
    source: str
    """Where these come from, for messages."""
    ca: Source = field(default=None, repr=False)
    """PEM; without it the system's certificate authorities."""
    certificate: Source = field(default=None, repr=False)
    key: Source = field(default=None, repr=False)
    token: Source = field(default=None, repr=False)
    plugin: ExecPlugin | None = field(default=None, repr=False)
    plugin_source: str = ""
    """Where the plug-in is asked for, for messages."""
    directory: Path = field(default=Path(), repr=False)
    """What the plug-in's command is relative to."""
    verify: bool = True
    tls_server_name: str | None = None
    plugin_deadline: float = 20.0
    """Seconds. Less than a request may take, so that it fails with an error that names the plug-in.
    """
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    wall_clock: Callable[[], datetime] = field(default=lambda: datetime.now(UTC), repr=False)

    def __post_init__(self) -> None:
        self._renewal: asyncio.Task[Access | CredentialsError] | None = None
        self._renew_at = self._expires = float("-inf")
        self._access: Access | None = None
        self._context: tuple[_Material, ssl.SSLContext] | None = None

    async def access(self) -> Access:
        """Return the credentials of the next request. Raises CredentialsError, at the latest after
        `plugin_deadline`. Nobody waits for a plug-in that is asked early, while its answer of
        before is good.
        """
        now = self.clock()
        if self._renewal is None or (now >= self._renew_at and self._renewal.done()):
            self._renewal = asyncio.create_task(self._renew())
        if self._access is not None and now < self._expires:
            return self._access
        # One who gives up takes nothing from the others that wait.
        outcome = await asyncio.shield(self._renewal)
        if isinstance(outcome, CredentialsError):
            raise CredentialsError(str(outcome)) from outcome
        return outcome

    def invalidate(self) -> None:
        """Read everything again at the next `access`: the server refused the credentials."""
        self._renew_at = self._expires = float("-inf")

    async def _renew(self) -> Access | CredentialsError:
        try:
            self._access, self._renew_at, self._expires = await self._obtain()
        except CredentialsError as error:
            self._renew_at = self.clock() + _AGAIN
            return error
        return self._access

    async def _obtain(self) -> tuple[Access, float, float]:
        """Obtain the credentials of requests, the time to renew them, and the time until which they
        are good, by `clock`.
        """
        until = self.clock() + REREAD
        if not any(
            isinstance(piece, Path) for piece in (self.ca, self.certificate, self.key, self.token)
        ):
            until = float("inf")
        expires = until if self.plugin is None else float("inf")
        token, certificate, key = self.token, self.certificate, self.key
        if self.plugin is not None:
            status = await self._ask(self.plugin)
            if status.token:
                token = status.token.encode()
            if status.client_certificate_data and status.client_key_data:
                certificate, key = (
                    status.client_certificate_data.encode(),
                    status.client_key_data.encode(),
                )
            if status.expiration_timestamp is not None:
                left = (status.expiration_timestamp - self.wall_clock()).total_seconds()
                until = min(until, self.clock() + max(left - _EARLY, left / 2))
                expires = min(expires, self.clock() + left)
        material = _Material(
            token=self._token(self._read(token, "token")),
            ca=self._read(self.ca, "certificate authority"),
            certificate=self._read(certificate, "client certificate"),
            key=self._read(key, "client key"),
        )
        authorization = f"Bearer {material.token}" if material.token else None
        context = self._tls(material) if self.server.startswith("https://") else None
        return Access(authorization, context, self.tls_server_name), until, expires

    def _read(self, piece: Source, what: str) -> bytes | None:
        if not isinstance(piece, Path):
            return piece
        try:
            content = piece.read_bytes()
        except OSError as error:
            raise CredentialsError(
                f"{self.source}: can't read the {what} file {piece}: {error.strerror}"
            ) from error
        if not content.strip():
            raise CredentialsError(f"{self.source}: the {what} file {piece} is empty")
        return content

    def _token(self, content: bytes | None) -> str | None:
        if content is None:
            return None
        token = content.decode("ascii", errors="replace").strip()
        if not (token.isascii() and token.isprintable()):
            raise CredentialsError(
                f"{self.source}: the token contains characters that no HTTP header may contain"
            )
        return token

    def _tls(self, material: _Material) -> ssl.SSLContext:
        # The same context as long as nothing changed: connections are pooled by it.
        without_token = _Material(None, material.ca, material.certificate, material.key)
        if self._context is not None and self._context[0] == without_token:
            return self._context[1]
        try:
            context = ssl.create_default_context(
                cadata=material.ca.decode("ascii") if material.ca else None
            )
        except (ssl.SSLError, UnicodeDecodeError, ValueError) as error:
            raise CredentialsError(
                f"{self.source}: the certificate authority is not PEM: {error}"
            ) from error
        # Python 3.13 turned on checks that the authorities of many clusters don't pass; Go has none
        # of them.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if material.certificate is not None and material.key is not None:
            try:
                _load_certificate(context, material.certificate, material.key)
            except (ssl.SSLError, OSError) as error:
                raise CredentialsError(
                    f"{self.source}: the client certificate and key are not a PEM pair: "
                    f"{error.strerror or error}"
                ) from None
        self._context = without_token, context
        return context

    async def _ask(self, plugin: ExecPlugin) -> ExecStatus:
        ca = self._read(self.ca, "certificate authority") if plugin.provide_cluster_info else None
        cluster = {"server": self.server, "insecure-skip-tls-verify": not self.verify} | (
            {"certificate-authority-data": base64.b64encode(ca).decode()} if ca else {}
        )
        return await exec_plugin.ask(
            plugin,
            cluster,
            source=self.plugin_source,
            directory=self.directory,
            seconds=self.plugin_deadline,
            clock=self.wall_clock,
        )


def _load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Python's ssl takes client certificates from files only; the folder is its owner's alone."""
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder, "pair.pem")
        pair.write_bytes(key + b"\n" + certificate + b"\n")
        # A key with a pass phrase must fail rather than ask on the terminal.
        context.load_cert_chain(pair, password=lambda: b"")
