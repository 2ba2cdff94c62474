"""Applies what a pass over one LoginSet decided, beyond what all kinds share: host keys, and hints
to the kubelets.
"""

from collections.abc import Iterable

from sidecars import generated, objects
from sidecars.kube import SECRETS, AlreadyExists
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


async def nudge(
    runtime: Runtime, memory: Memory, key: Key, pods: Iterable[objects.Pod], digest: str
) -> None:
    """Have the kubelets bring a changed sshd configuration into the pods at once, by annotating
    them.

    Without, it takes a minute or more. Nothing is done for the configuration that this process saw
    first.
    """
    if memory.get(key) not in (None, digest):
        await workload.annotate(runtime, pods, names.SSHD_CONF_HASH, digest)
    memory[key] = digest


async def create_host_keys(runtime: Runtime, loginset: LoginSet) -> None:
    """Create the Secret with the host keys unless it exists. Raises NotUsableError and ApiError."""
    if runtime.contents.exists(
        Reference("Secret", loginset.namespace, names.ssh_host_keys(loginset.name))
    ):
        return
    secret = render.host_keys_secret(loginset, await make_host_keys())
    try:
        await runtime.client.create(SECRETS, secret)
    except AlreadyExists:
        return  # The cache is behind: the Secret's event wakes this LoginSet again.


async def make_host_keys() -> dict[str, str]:
    """Generate new sshd host keys. Return them by file name, private ones in OpenSSH's format.
    Raises NotUsableError if ssh-keygen fails.
    """
    try:
        return await generated.host_keys(render.HOST_KEY_TYPES)
    except generated.GenerationError as error:
        raise NotUsableError(Ready.HOST_KEYS_FAILED, str(error)) from error
