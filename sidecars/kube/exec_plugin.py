"""Asks an exec plug-in of a kubeconfig for credentials.

https://kubernetes.io/docs/reference/access-authn-authz/authentication/#client-go-credential-plugins
"""

from __future__ import annotations

import asyncio
import os
import selectors
import signal
import subprocess
import time
from datetime import datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec

from sidecars.kube.errors import UNREADABLE, CredentialsError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

_MAX_OUTPUT = 1 << 20


class ExecEnv(msgspec.Struct, frozen=True):
    """users[*].user.exec.env[*]."""

    name: str
    value: str


class ExecPlugin(msgspec.Struct, frozen=True, rename="camel"):
    """users[*].user.exec."""

    command: str
    api_version: str
    args: tuple[str, ...] | None = None
    env: tuple[ExecEnv, ...] | None = None
    install_hint: str | None = None
    provide_cluster_info: bool = False
    interactive_mode: Literal["Never", "IfAvailable", "Always"] = "IfAvailable"


class ExecStatus(msgspec.Struct, frozen=True, rename="camel"):
    """status of an ExecCredential: a token, or both of certificate and key."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: Annotated[datetime, msgspec.Meta(tz=True)] | None = None


class _ExecCredential(msgspec.Struct, frozen=True, rename="camel"):
    api_version: str
    status: ExecStatus


async def ask(
    plugin: ExecPlugin,
    cluster: dict[str, Any],
    *,
    source: str,
    directory: Path,
    seconds: float,
    clock: Callable[[], datetime],
) -> ExecStatus:
    """Run the plug-in, at most for so many seconds, and return its answer. Raises CredentialsError.

    `cluster` describes the API server, to a plug-in that asks for it. `source` is where the plug-in
    is configured, for messages. A relative command is relative to `directory`. By `clock`, the wall
    clock, an answer can have expired.
    """
    where = f"{source}: exec plug-in {plugin.command!r}"
    hint = f" ({plugin.install_hint.strip()})" if plugin.install_hint else ""
    spec: dict[str, Any] = {"interactive": False}
    if plugin.provide_cluster_info:
        spec["cluster"] = cluster
    info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": spec}
    env = os.environ | {item.name: item.value for item in plugin.env or ()}
    env["KUBERNETES_EXEC_INFO"] = msgspec.json.encode(info).decode()
    command = str(directory / plugin.command) if "/" in plugin.command else plugin.command
    status, out, err = await asyncio.to_thread(
        _run, [command, *(plugin.args or ())], env, seconds, where, hint
    )
    if status != 0:
        last = err.decode(errors="replace").strip().rpartition("\n")[2]
        raise CredentialsError(
            f"{where} failed with exit code {status}: {last or 'no message'}{hint}"
        )
    try:
        credential = msgspec.json.decode(out, type=_ExecCredential)
    except UNREADABLE as error:
        raise CredentialsError(f"{where} printed no valid ExecCredential: {error}{hint}") from None
    if credential.api_version != plugin.api_version:
        raise CredentialsError(
            f"{where} answered with apiVersion {credential.api_version}, the kubeconfig has "
            f"{plugin.api_version}"
        )
    found = credential.status
    if not found.token and not (found.client_certificate_data and found.client_key_data):
        raise CredentialsError(
            f"{where} answered with neither status.token nor both of status.clientCertificateData "
            f"and status.clientKeyData{hint}"
        )
    expires = found.expiration_timestamp
    if expires is not None and expires <= clock():
        raise CredentialsError(
            f"{where} answered with a credential that expired at {expires.isoformat()}: log in "
            f"again, or set the clock of this machine{hint}"
        )
    return found


def _run(
    command: list[str], env: dict[str, str], seconds: float, where: str, hint: str
) -> tuple[int, bytes, bytes]:
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
                    elif len(printed[key.fd]) > _MAX_OUTPUT:
                        raise CredentialsError(
                            f"{where} printed more than {_MAX_OUTPUT >> 20} MiB{hint}"
                        )
            status = process.wait(max(end - time.monotonic(), 0))
        except (TimeoutError, subprocess.TimeoutExpired):
            raise CredentialsError(f"{where} gave no answer within {seconds:g} s{hint}") from None
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
    out, err = printed.values()
    return status, bytes(out), bytes(err)
