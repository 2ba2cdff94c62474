"""One pass over one LoginSet, and the making of its host keys."""

import asyncio
import tempfile
from collections.abc import Iterable
from pathlib import Path

from sidecars.custom_resources import LOGINSETS
from sidecars.kube import DEPLOYMENTS, ENDPOINT_SLICES, SECRETS, AlreadyExists, records
from sidecars.operator.keys import distribution
from sidecars.operator.loginset.memory import Memory
from sidecars.operator.runtime import workload
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.upgrade import order
from sidecars.policy.conditions import Condition
from sidecars.workloads import loginset as render
from sidecars.workloads import names
from sidecars.workloads.controller import slurm_key
from sidecars.workloads.references import Reference
from sidecars.workloads.resources import LoginSet, ResourceError, read


async def reconcile(runtime: Runtime, memory: Memory, key: Key) -> None:
    """Bring the login nodes to what the LoginSet says; report."""
    namespace, name = key
    manifest = runtime.caches.loginsets.store.get(namespace, name)
    if manifest is None:
        memory.pop(key, None)
        return
    try:
        loginset = read(LoginSet, manifest)
    except ResourceError as error:
        await runtime.status.report(LOGINSETS, manifest, [Condition("Ready", "False", "Invalid", str(error))])
        return
    if loginset.metadata.deletion_timestamp is not None:
        return
    try:
        controller = runtime.lookup.needed_controller(namespace, loginset.spec.controller_ref.name)
        with workload.usable():
            distribution.wait_for(runtime, namespace, slurm_key(controller))
        await _have_host_keys(runtime, loginset)
        facts = await runtime.lookup.facts(controller, manifest)
        pods = runtime.caches.login_pods.store.by("loginset", key)
        with workload.usable():
            rendered = [
                *render.objects(loginset, controller, facts),
                *render.addresses(
                    loginset,
                    _addresses(pods),
                    runtime.caches.live(ENDPOINT_SLICES, namespace, names.login_hosts(name)),
                ),
            ]
        held = order.arrange(runtime, rendered, "login", order.before_clients(runtime, controller))
        await workload.apply_all(runtime, manifest, "LoginSet", lambda: rendered)
        # sshd is told by the pod itself (workloads/login.yaml); open sessions go on.
        digest = render.ssh_config_digest(loginset, controller, facts)
        await _nudge(runtime, memory, key, pods, digest)
        ready = workload.readiness(runtime, DEPLOYMENTS, namespace, name)
        if held is not None:
            ready = held.condition
            if (seconds := order.again(held)) is not None:
                runtime.queues.loginsets.add_after(key, seconds)
    except NotUsableError as error:
        ready = workload.refused(runtime, manifest, error)
    selector = f"{names.APP_INSTANCE}={name},{names.APP_NAME}=login"
    more = {**workload.counts(runtime, DEPLOYMENTS, namespace, name), "selector": selector}
    await runtime.status.report(LOGINSETS, manifest, [ready], more)


async def _nudge(runtime: Runtime, memory: Memory, key: Key, pods: Iterable[records.Pod], digest: str) -> None:
    """Have the kubelets bring a changed sshd configuration into the pods at once, by annotating them.

    Without, it takes a minute or more. Nothing is done for the configuration that this process saw first.
    """
    if memory.get(key) not in (None, digest):
        await workload.annotate(runtime, pods, names.SSHD_CONF_HASH, digest)
    memory[key] = digest


def _addresses(pods: Iterable[records.Pod]) -> dict[str, str]:
    """Of the pods that run; those on their host's network have the host's name, not theirs."""
    return {
        pod.metadata.name: pod.status.pod_ip
        for pod in pods
        if pod.status.pod_ip and pod.status.phase == "Running" and not pod.spec.host_network
    }


async def _have_host_keys(runtime: Runtime, loginset: LoginSet) -> None:
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
                    "HostKeys", "ssh-keygen is missing where the operator runs: install openssh-client"
                ) from error
            try:
                _, said = await keygen.communicate()
            finally:
                if keygen.returncode is None:  # we were told to stop meanwhile
                    keygen.kill()
                    await keygen.wait()
            if keygen.returncode != 0:
                raise NotUsableError("HostKeys", f"ssh-keygen -t {kind}: {said.decode(errors='replace').strip()}")
            for file in (path, path.with_name(path.name + ".pub")):
                keys[file.name] = file.read_text()
    return keys
