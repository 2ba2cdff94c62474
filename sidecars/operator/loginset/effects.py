"""Applies what a pass over one LoginSet decided, beyond what all kinds share: host keys, and hints to the kubelets."""

import asyncio
import tempfile
from collections.abc import Iterable
from pathlib import Path

from sidecars.kube import SECRETS, AlreadyExists, records
from sidecars.operator.loginset.memory import Memory
from sidecars.operator.runtime import workload
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy.reasons import Ready
from sidecars.workloads import loginset as render
from sidecars.workloads import names
from sidecars.workloads.references import Reference
from sidecars.workloads.resources import LoginSet


async def nudge(runtime: Runtime, memory: Memory, key: Key, pods: Iterable[records.Pod], digest: str) -> None:
    """Have the kubelets bring a changed sshd configuration into the pods at once, by annotating them.

    Without, it takes a minute or more. Nothing is done for the configuration that this process saw first.
    """
    if memory.get(key) not in (None, digest):
        await workload.annotate(runtime, pods, names.SSHD_CONF_HASH, digest)
    memory[key] = digest


async def create_host_keys(runtime: Runtime, loginset: LoginSet) -> None:
    """Create the Secret with the host keys unless it exists. Raises NotUsableError and ApiError."""
    if runtime.contents.exists(Reference("Secret", loginset.namespace, names.ssh_host_keys(loginset.name))):
        return
    secret = render.host_keys_secret(loginset, await make_host_keys())
    try:
        await runtime.client.create(SECRETS, secret)
    except AlreadyExists:
        return  # The cache is behind: the Secret's event wakes this LoginSet again.


async def make_host_keys() -> dict[str, str]:
    """New sshd host keys by file name, private ones in OpenSSH's format. Raises NotUsableError if ssh-keygen fails."""
    keys: dict[str, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in render.HOST_KEY_TYPES:
            path = Path(folder) / f"ssh_host_{kind}_key"
            try:
                keygen = await asyncio.create_subprocess_exec(
                    *("ssh-keygen", "-q", "-t", kind, "-N", "", "-C", "", "-f", str(path)),
                    stderr=asyncio.subprocess.PIPE,
                )
            except FileNotFoundError as error:
                raise NotUsableError(
                    Ready.HOST_KEYS_FAILED, "ssh-keygen is missing where the operator runs: install openssh-client"
                ) from error
            try:
                _, output = await keygen.communicate()
            finally:
                if keygen.returncode is None:  # the operator stops
                    keygen.kill()
                    await keygen.wait()
            if keygen.returncode != 0:
                raise NotUsableError(
                    Ready.HOST_KEYS_FAILED, f"ssh-keygen -t {kind}: {output.decode(errors='replace').strip()}"
                )
            for file in (path, path.with_name(path.name + ".pub")):
                keys[file.name] = file.read_text()
    return keys
