"""One pass over one LoginSet, and the making of its host keys."""

import asyncio
import tempfile
from collections.abc import Iterable
from pathlib import Path

from sidecars.kube import DEPLOYMENTS, ENDPOINT_SLICES, SECRETS, AlreadyExists, records
from sidecars.operator import upgrade, workload
from sidecars.operator.caches import LOGINSETS
from sidecars.operator.context import Context, Key, NotUsableError
from sidecars.operator.controller import keys
from sidecars.policy.conditions import Condition
from sidecars.workloads import loginset as render
from sidecars.workloads import names
from sidecars.workloads.controller import slurm_key
from sidecars.workloads.resources import LoginSet, ResourceError, read


async def reconcile(context: Context, key: Key) -> None:
    """Bring the login nodes to what the LoginSet says; report."""
    namespace, name = key
    manifest = context.caches.loginsets.store.get(namespace, name)
    if manifest is None:
        context.nudged.pop(key, None)
        return
    try:
        loginset = read(LoginSet, manifest)
    except ResourceError as error:
        await context.report(LOGINSETS, manifest, [Condition("Ready", "False", "Invalid", str(error))])
        return
    if loginset.metadata.deletion_timestamp is not None:
        return
    try:
        controller = context.needed_controller(namespace, loginset.spec.controller_ref.name)
        with workload.usable():
            keys.wait_for(context, namespace, slurm_key(controller))
        await _have_host_keys(context, loginset)
        facts = context.facts(controller)
        pods = context.caches.login_pods.store.by("loginset", key)
        with workload.usable():
            rendered = [
                *render.objects(loginset, controller, facts),
                *render.addresses(
                    loginset,
                    _addresses(pods),
                    context.caches.live(ENDPOINT_SLICES, namespace, names.login_hosts(name)),
                ),
            ]
        held = upgrade.arrange(context, rendered, "login", upgrade.before_clients(context, controller))
        await workload.apply_all(context, manifest, "LoginSet", lambda: rendered)
        # sshd is told by the pod itself (workloads/login.yaml); open sessions go on.
        digest = render.ssh_config_digest(loginset, controller, facts)
        await workload.nudge(context, manifest, pods, names.SSHD_CONF_HASH, digest)
        ready = workload.readiness(context, DEPLOYMENTS, namespace, name)
        if held is not None:
            ready = held.condition
            if (seconds := upgrade.again(held)) is not None:
                context.queues.loginsets.add_after(key, seconds)
    except NotUsableError as error:
        ready = workload.refused(context, manifest, error)
    selector = f"{names.APP_INSTANCE}={name},{names.APP_NAME}=login"
    more = {**workload.counts(context, DEPLOYMENTS, namespace, name), "selector": selector}
    await context.report(LOGINSETS, manifest, [ready], more)


def _addresses(pods: Iterable[records.Pod]) -> dict[str, str]:
    """Of the pods that run; those on their host's network have the host's name, not theirs."""
    return {
        pod.metadata.name: pod.status.pod_ip
        for pod in pods
        if pod.status.pod_ip and pod.status.phase == "Running" and not pod.spec.host_network
    }


async def _have_host_keys(context: Context, loginset: LoginSet) -> None:
    if context.caches.secrets.store.get(loginset.namespace, names.ssh_host_keys(loginset.name)) is not None:
        return
    secret = render.host_keys_secret(loginset, await make_host_keys())
    try:
        await context.client.create(SECRETS, secret)
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
