"""Finds the credentials: a kubeconfig, or the service account of the pod.

https://kubernetes.io/docs/concepts/configuration/organize-cluster-access-kubeconfig/
"""

from __future__ import annotations

import base64
import binascii
import os
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import msgspec

from sidecars.kube.credentials import Credentials, Source
from sidecars.kube.errors import CredentialsError
from sidecars.kube.exec_plugin import ExecPlugin

E = TypeVar("E")
_SERVICE_ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")


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


def load_credentials(kubeconfig: Path | None = None) -> Credentials:
    """Load the credentials of the kubeconfig; without one, those of $KUBECONFIG, whose files are
    merged as kubectl does; without that, those of the pod's service account. Raises
    CredentialsError, which names file, field and remedy.
    """
    if kubeconfig is not None:
        return _from_kubeconfig([kubeconfig])
    paths = [Path(path) for path in os.environ.get("KUBECONFIG", "").split(os.pathsep) if path]
    if paths:
        existing = [path for path in paths if path.exists()]
        return _from_kubeconfig(existing or paths)
    return from_service_account(_SERVICE_ACCOUNT)


def from_service_account(folder: Path) -> Credentials:
    """Load the credentials that the kubelet mounts at `folder`. Raises CredentialsError."""
    host, port = (
        os.environ.get("KUBERNETES_SERVICE_HOST"),
        os.environ.get("KUBERNETES_SERVICE_PORT", "443"),
    )
    if not host or not (folder / "token").exists():
        raise CredentialsError(
            "no credentials for Kubernetes: this is not a pod with a service account"
            f" ({'no ' + str(folder / 'token') if host else 'KUBERNETES_SERVICE_HOST is not set'});"
            " set KUBECONFIG to the path of a kubeconfig"
        )
    return Credentials(
        server=f"https://{f'[{host}]' if ':' in host else host}:{port}",
        source=f"service account in {folder}",
        ca=folder / "ca.crt",
        token=folder / "token",
    )


def _from_kubeconfig(paths: list[Path]) -> Credentials:
    context_name: str | None = None
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
        raise CredentialsError(
            f"{source}: current-context is not set; `kubectl config use-context NAME` sets it"
        )
    path, context = _named(contexts, "contexts", context_name, source)
    cluster_path, cluster_entry = _named(clusters, "clusters", context.cluster, source)
    user_path, user_entry = _named(users, "users", context.user, source)
    return _credentials(
        cluster_path.parent, cluster_entry, user_path.parent, user_entry, context, source
    )


def _read_kubeconfig(path: Path) -> _Config:
    # Imported here, because only developers need it: a pod has no kubeconfig.
    import yaml

    try:
        content = yaml.safe_load(path.read_bytes())
    except OSError as error:
        raise CredentialsError(f"kubeconfig {path}: can't be read: {error.strerror}") from error
    except (yaml.YAMLError, UnicodeDecodeError, ValueError, RecursionError) as error:
        # A parser's message may quote the line, and with it a secret: only its place is reported.
        mark = getattr(error, "problem_mark", None)
        where = f" at line {mark.line + 1}" if mark is not None else ""
        raise CredentialsError(f"kubeconfig {path}: is not YAML{where}") from None
    try:
        return msgspec.convert(content, type=_Config)
    except msgspec.ValidationError as error:
        raise CredentialsError(f"kubeconfig {path}: {error}") from None


def _named(
    entries: dict[str, tuple[Path, E]], field_name: str, name: str, source: str
) -> tuple[Path, E]:
    if name not in entries:
        raise CredentialsError(
            f"{source}: {field_name} has no {name!r} (it has: {', '.join(entries) or 'none'})"
        )
    return entries[name]


def _credentials(
    cluster_folder: Path,
    cluster: _Cluster,
    user_folder: Path,
    user: _User,
    context: _Context,
    source: str,
) -> Credentials:
    server = cluster.server.rstrip("/")
    where = f"{source}: cluster {context.cluster!r}"
    if not _is_url(server):
        raise CredentialsError(
            f"{where}: server is {cluster.server!r}, not a URL like https://host:6443"
        )
    if cluster.proxy_url:
        raise CredentialsError(f"{where}: proxy-url is not supported; reach the server directly")
    user_where = f"{source}: user {context.user!r}"
    for field_name, value in (("auth-provider", user.auth_provider), ("username", user.username)):
        if value is not None:
            raise CredentialsError(
                f"{user_where}: {field_name} is not supported (Kubernetes removed it); use exec"
            )
    if user.exec is not None and user.exec.interactive_mode == "Always":
        raise CredentialsError(
            f"{user_where}: exec.interactiveMode is Always, but no terminal exists"
        )
    certificate = _piece(
        user_folder,
        user.client_certificate,
        user.client_certificate_data,
        f"{user_where}: client-certificate",
    )
    key = _piece(user_folder, user.client_key, user.client_key_data, f"{user_where}: client-key")
    if (certificate is None) != (key is None):
        missing = "client-key" if key is None else "client-certificate"
        raise CredentialsError(
            f"{user_where}: {missing} (or {missing}-data) is missing: they are needed as a pair"
        )
    token: Source = user.token.encode() if user.token else None
    if user.token_file:
        token = user_folder / user.token_file
    return Credentials(
        server=server,
        source=source,
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


def _piece(folder: Path, path: str | None, data: str | None, where: str) -> Source:
    """Return the content of a `*-data` field, which has precedence, or the file that the other
    field names.
    """
    if data:
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error as error:
            raise CredentialsError(f"{where}-data is not base64: {error}") from None
    return folder / path if path else None
