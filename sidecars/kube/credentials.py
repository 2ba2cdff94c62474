"""Where the API server is and how to be let in: in-cluster service accounts and kubeconfig files.

Tokens and certificates rotate, so files are read again (at most REREAD seconds old), exec plug-ins are asked again
before their answer expires, and everything at once after a 401. No secret appears in an error or a repr.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import os
import selectors
import signal
import ssl
import subprocess
import tempfile
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec

from sidecars.kube.errors import UNREADABLE, CredentialsError

if TYPE_CHECKING:
    from collections.abc import Callable

E = TypeVar("E")
REREAD = 60.0
"""Seconds after which files are read again. The kubelet renews a token when 20 % of its life are left."""
_EARLY = 60.0
_AGAIN = 1.0
"""Seconds until those that could not be had are asked for again."""
_PLUGIN_MAY_PRINT = 1 << 20
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


class Access(NamedTuple):
    """What one request carries."""

    authorization: str | None
    """The Authorization header; None: no such header."""
    ssl: ssl.SSLContext | None
    """None for plain HTTP."""
    server_hostname: str | None = None
    """The name that the server's certificate must bear, where it isn't that of the URL."""


# A piece of PEM or a token: as it stands, or the file that holds it.
_Source = bytes | Path | None


class ExecEnv(msgspec.Struct, frozen=True):
    """users[*].user.exec.env[*]."""

    name: str
    value: str


class ExecPlugin(msgspec.Struct, frozen=True, rename="camel"):
    """users[*].user.exec.

    https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
    """

    command: str
    api_version: str
    args: tuple[str, ...] | None = None
    env: tuple[ExecEnv, ...] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool = False
    interactive_mode: Literal["Never", "IfAvailable", "Always"] = "IfAvailable"


class _ExecStatus(msgspec.Struct, frozen=True, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    status: _ExecStatus


@dataclass(frozen=True, slots=True)
class _Material:
    """The pieces that a request is authenticated by, as read at one moment."""

    token: str | None = field(repr=False)
    ca: bytes | None = field(repr=False)
    certificate: bytes | None = field(repr=False)
    key: bytes | None = field(repr=False)


@dataclass(eq=False)
class Credentials:
    """How to reach one API server. Made by `load_credentials`."""

    server: str
    """Base URL, without a slash at the end."""
    source: str
    """Where these come from, for messages."""
    namespace: str = "default"
    ca: _Source = field(default=None, repr=False)
    """PEM; without it the system's certificate authorities."""
    certificate: _Source = field(default=None, repr=False)
    key: _Source = field(default=None, repr=False)
    token: _Source = field(default=None, repr=False)
    plugin: ExecPlugin | None = field(default=None, repr=False)
    plugin_source: str = ""
    """Where the plug-in is asked for, for messages."""
    directory: Path = field(default=Path(), repr=False)
    """What the plug-in's command is relative to."""
    verify: bool = True
    tls_server_name: str | None = None
    plugin_deadline: float = 20.0
    """Seconds. Less than a request may take, so that it fails with an error that names the plug-in."""
    clock: Callable[[], float] = field(default=time.monotonic, repr=False)
    wall_clock: Callable[[], datetime] = field(default=lambda: datetime.now(UTC), repr=False)

    def __post_init__(self) -> None:
        self._renewal: asyncio.Task[Access | CredentialsError] | None = None
        self._renew_at = self._expires = float("-inf")
        self._access: Access | None = None
        self._context: tuple[_Material, ssl.SSLContext] | None = None

    async def access(self) -> Access:
        """What the next request carries. Raises CredentialsError, at the latest after `plugin_deadline`.

        Nobody waits for a plug-in that is asked early, while its answer of before is good.
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
        """The server refused them: read everything anew at the next `access`."""
        self._renew_at = self._expires = float("-inf")

    async def _renew(self) -> Access | CredentialsError:
        try:
            self._access, self._renew_at, self._expires = await self._obtain()
        except CredentialsError as error:
            self._renew_at = self.clock() + _AGAIN
            return error
        return self._access

    async def _obtain(self) -> tuple[Access, float, float]:
        """What requests carry, when to renew it, and until when it is good; by `clock`."""
        until = self.clock() + REREAD
        if not any(isinstance(piece, Path) for piece in (self.ca, self.certificate, self.key, self.token)):
            until = float("inf")
        expires = until if self.plugin is None else float("inf")
        token, certificate, key = self.token, self.certificate, self.key
        if self.plugin is not None:
            status = await self._ask(self.plugin)
            if status.token:
                token = status.token.encode()
            if status.client_certificate_data and status.client_key_data:
                certificate, key = status.client_certificate_data.encode(), status.client_key_data.encode()
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

    def _read(self, piece: _Source, what: str) -> bytes | None:
        if not isinstance(piece, Path):
            return piece
        try:
            content = piece.read_bytes()
        except OSError as error:
            raise CredentialsError(f"{self.source}: can't read the {what} file {piece}: {error.strerror}") from error
        if not content.strip():
            raise CredentialsError(f"{self.source}: the {what} file {piece} is empty")
        return content

    def _token(self, content: bytes | None) -> str | None:
        if content is None:
            return None
        token = content.decode("ascii", errors="replace").strip()
        if not (token.isascii() and token.isprintable()):
            raise CredentialsError(f"{self.source}: the token holds characters that no HTTP header may")
        return token

    def _tls(self, material: _Material) -> ssl.SSLContext:
        # The same context as long as nothing changed: connections are pooled by it.
        without_token = _Material(None, material.ca, material.certificate, material.key)
        if self._context is not None and self._context[0] == without_token:
            return self._context[1]
        try:
            context = ssl.create_default_context(cadata=material.ca.decode("ascii") if material.ca else None)
        except (ssl.SSLError, UnicodeDecodeError, ValueError) as error:
            raise CredentialsError(f"{self.source}: the certificate authority is not PEM: {error}") from error
        # Python 3.13 turned on checks that the authorities of many clusters don't pass; Go has none of them.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if not self.verify:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if material.certificate is not None and material.key is not None:
            try:
                _load_certificate(context, material.certificate, material.key)
            except (ssl.SSLError, OSError) as error:
                raise CredentialsError(
                    f"{self.source}: the client certificate and key are not a PEM pair: {error.strerror or error}"
                ) from None
        self._context = without_token, context
        return context

    async def _ask(self, plugin: ExecPlugin) -> _ExecStatus:
        where = f"{self.plugin_source}: exec plug-in {plugin.command!r}"
        hint = f" ({plugin.install_hint.strip()})" if plugin.install_hint else ""
        spec: dict[str, Any] = {"interactive": False}
        if plugin.provide_cluster_info:
            ca = self._read(self.ca, "certificate authority")
            spec["cluster"] = {"server": self.server, "insecure-skip-tls-verify": not self.verify} | (
                {"certificate-authority-data": base64.b64encode(ca).decode()} if ca else {}
            )
        info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
        env = os.environ | {item.name: item.value for item in plugin.env or ()}
        env["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(info).decode()
        command = str(self.directory / plugin.command) if "/" in plugin.command else plugin.command
        status, out, err = await asyncio.to_thread(
            _run, [command, *(plugin.args or ())], env, self.plugin_deadline, where, hint
        )
        if status != 0:
            last = err.decode(errors="replace").strip().rpartition("\n")[2]
            raise CredentialsError(f"{where} failed with exit code {status}: {last or 'no message'}{hint}")
        try:
            credential = msgspec.json.decode(out, type=_ExecCredential)
        except UNREADABLE as error:
            raise CredentialsError(f"{where} printed no valid ExecCredential: {error}{hint}") from None
        if credential.api_version != plugin.api_version:
            raise CredentialsError(
                f"{where} answered with apiVersion {credential.api_version}, the kubeconfig says {plugin.api_version}"
            )
        found = credential.status
        if not found.token and not (found.client_certificate_data and found.client_key_data):
            raise CredentialsError(
                f"{where} answered with neither status.token nor both of status.clientCertificateData and"
                f" status.clientKeyData{hint}"
            )
        expires = found.expiration_timestamp
        if expires is not None and expires <= self.wall_clock():
            raise CredentialsError(
                f"{where} answered with a credential that expired at {expires.isoformat()}: log in again, or set the"
                f" clock of this machine{hint}"
            )
        return found


def _run(command: list[str], env: dict[str, str], seconds: float, where: str, hint: str) -> tuple[int, bytes, bytes]:
    """Run a plug-in to its end and wait for it: exit status, standard output, standard error.

    One that doesn't end in time is killed, with what it has started. Raises CredentialsError.
    """
    end = time.monotonic() + seconds
    try:
        process = subprocess.Popen(
            command,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        raise CredentialsError(f"{where} can't be started: {why}{hint}") from error
    with process, selectors.DefaultSelector() as outputs:
        try:
            printed = {}
            for stream in filter(None, (process.stdout, process.stderr)):
                printed[outputs.register(stream, selectors.EVENT_READ).fd] = bytearray()
            while outputs.get_map():
                ready = outputs.select(max(end - time.monotonic(), 0))
                if not ready:
                    raise TimeoutError
                for key, _ in ready:
                    data = os.read(key.fd, 1 << 16)
                    printed[key.fd] += data
                    if not data:
                        outputs.unregister(key.fileobj)
                    elif len(printed[key.fd]) > _PLUGIN_MAY_PRINT:
                        raise CredentialsError(f"{where} printed more than {_PLUGIN_MAY_PRINT >> 20} MiB{hint}")
            status = process.wait(max(end - time.monotonic(), 0))
        except (TimeoutError, subprocess.TimeoutExpired):
            raise CredentialsError(f"{where} gave no answer within {seconds:g} s{hint}") from None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
    out, err = printed.values()
    return status, bytes(out), bytes(err)


def _load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes) -> None:
    """Python's ssl takes client certificates from files only; the folder is its owner's alone."""
    with tempfile.TemporaryDirectory() as folder:
        pair = Path(folder, "pair.pem")
        pair.write_bytes(key + b"\n" + certificate + b"\n")
        # A key with a pass phrase must fail rather than ask on the terminal.
        context.load_cert_chain(pair, password=lambda: b"")


class _Cluster(msgspec.Struct, frozen=True, rename="kebab"):
    server: str
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool = False
    tls_server_name: str | None = None
    proxy_url: str | None = None


class _User(msgspec.Struct, frozen=True, rename="kebab"):
    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    exec: ExecPlugin | None = None
    username: str | None = None
    auth_provider: Any = None


class _Context(msgspec.Struct, frozen=True):
    cluster: str
    user: str
    namespace: str = "default"


class _NamedCluster(msgspec.Struct, frozen=True):
    name: str
    cluster: _Cluster


class _NamedUser(msgspec.Struct, frozen=True):
    name: str
    user: _User | None = None


class _NamedContext(msgspec.Struct, frozen=True):
    name: str
    context: _Context


class _Config(msgspec.Struct, frozen=True, rename="kebab"):
    clusters: tuple[_NamedCluster, ...] | None = None
    users: tuple[_NamedUser, ...] | None = None
    contexts: tuple[_NamedContext, ...] | None = None
    current_context: str | None = None


def load_credentials(kubeconfig: Path | None = None, *, context: str | None = None) -> Credentials:
    """Those of the kubeconfig; without one, of $KUBECONFIG (several, parted by colons, as kubectl merges them); without
    that, of the pod's service account. Raises CredentialsError naming file, field and remedy.
    """
    if kubeconfig is not None:
        return _from_kubeconfig([kubeconfig], context)
    paths = [Path(path) for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    if paths:
        there = [path for path in paths if path.exists()]
        return _from_kubeconfig(there or paths, context)
    return _from_service_account(_SERVICE_ACCOUNT)


def _from_service_account(folder: Path) -> Credentials:
    host, port = os.environ.get("KUBERNETES_SERVICE_HOST"), os.environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host or not (folder / "token").exists():
        raise CredentialsError(
            "no credentials for Kubernetes: this is no pod with a service account"
            f" ({'no ' + str(folder / 'token') if host else 'KUBERNETES_SERVICE_HOST is not set'});"
            " set KUBECONFIG to the path of a kubeconfig"
        )
    try:
        namespace = (folder / "namespace").read_text().strip()
    except OSError:
        namespace = "default"
    return Credentials(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        source=f"service account in {folder}",
        namespace=namespace,
        ca=folder / "ca.crt",
        token=folder / "token",
    )


def _from_kubeconfig(paths: list[Path], context_name: str | None) -> Credentials:
    clusters: dict[str, tuple[Path, _Cluster]] = {}
    users: dict[str, tuple[Path, _User]] = {}
    contexts: dict[str, tuple[Path, _Context]] = {}
    for path in paths:
        config = _read_kubeconfig(path)
        for cluster in config.clusters or ():
            clusters.setdefault(cluster.name, (path, cluster.cluster))
        for user in config.users or ():
            users.setdefault(user.name, (path, user.user or _User()))
        for named in config.contexts or ():
            contexts.setdefault(named.name, (path, named.context))
        context_name = context_name or config.current_context
    source = f"kubeconfig {os.pathsep.join(map(str, paths))}"
    if not context_name:
        raise CredentialsError(f"{source}: current-context is not set; `kubectl config use-context NAME` sets it")
    path, context = _named(contexts, "contexts", context_name, source)
    cluster_path, cluster_entry = _named(clusters, "clusters", context.cluster, source)
    user_path, user_entry = _named(users, "users", context.user, source)
    return _credentials(cluster_path.parent, cluster_entry, user_path.parent, user_entry, context, source)


def _read_kubeconfig(path: Path) -> _Config:
    # Needed by developers only: in a pod there is no kubeconfig to read.
    import yaml

    try:
        content = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise CredentialsError(f"kubeconfig {path}: can't be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        # A parser's message may quote the line, and with it a secret: its place is all that is told.
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        raise CredentialsError(f"kubeconfig {path}: is not YAML{where}") from None
    try:
        return msgspec.convert(content, type=_Config)
    except msgspec.ValidationError as error:
        raise CredentialsError(f"kubeconfig {path}: {error}") from None


def _named(entries: dict[str, tuple[Path, E]], field_name: str, name: str, source: str) -> tuple[Path, E]:
    if name not in entries:
        raise CredentialsError(f"{source}: {field_name} has no {name!r} (there are: {', '.join(entries) or 'none'})")
    return entries[name]


def _credentials(
    cluster_folder: Path, cluster: _Cluster, user_folder: Path, user: _User, context: _Context, source: str
) -> Credentials:
    server = cluster.server.rstrip("/")
    where = f"{source}: cluster {context.cluster!r}"
    if not _is_url(server):
        raise CredentialsError(f"{where}: server is {cluster.server!r}, not a URL like https://host:6443")
    if cluster.proxy_url:
        raise CredentialsError(f"{where}: proxy-url is not supported; reach the server directly")
    user_where = f"{source}: user {context.user!r}"
    for field_name, value in (("auth-provider", user.auth_provider), ("username", user.username)):
        if value is not None:
            raise CredentialsError(f"{user_where}: {field_name} is not supported (Kubernetes removed it); use exec")
    if user.exec is not None and user.exec.interactive_mode == "Always":
        raise CredentialsError(f"{user_where}: exec.interactiveMode is Always, but nobody is there to answer")
    certificate = _piece(
        user_folder, user.client_certificate, user.client_certificate_data, f"{user_where}: client-certificate"
    )
    key = _piece(user_folder, user.client_key, user.client_key_data, f"{user_where}: client-key")
    if (certificate is None) != (key is None):
        missing = "client-key" if key is None else "client-certificate"
        raise CredentialsError(f"{user_where}: {missing} (or {missing}-data) is missing: they are needed as a pair")
    token: _Source = user.token.encode() if user.token else None
    if user.token_file:
        token = user_folder / user.token_file
    return Credentials(
        server=server,
        source=source,
        namespace=context.namespace,
        ca=_piece(
            cluster_folder,
            cluster.certificate_authority,
            cluster.certificate_authority_data,
            f"{where}: certificate-authority",
        ),
        certificate=certificate,
        key=key,
        token=token,
        plugin=user.exec,
        plugin_source=user_where,
        directory=user_folder,
        verify=not cluster.insecure_skip_tls_verify,
        tls_server_name=cluster.tls_server_name,
    )


def _is_url(server: str) -> bool:
    try:
        parts = urlsplit(server)
        return parts.scheme in {"https", "http"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _piece(folder: Path, path: str | None, data: str | None, where: str) -> _Source:
    """The data of a `*-data` field, which goes before the file of its sibling."""
    if data:
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise CredentialsError(f"{where}-data is not base64: {error}") from None
    return folder / path if path else None
