"""One pass over one LoginSet."""

from sidecars.custom_resources import LOGINSETS
from sidecars.kube import DEPLOYMENTS, ENDPOINT_SLICES
from sidecars.operator.keys import distribution
from sidecars.operator.loginset import effects, observe
from sidecars.operator.loginset.memory import Memory
from sidecars.operator.runtime import workload
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.upgrade import order, takeover
from sidecars.policy.conditions import Condition
from sidecars.policy.reasons import Ready
from sidecars.workloads import loginset as render
from sidecars.workloads import names
from sidecars.workloads.controller import slurm_key
from sidecars.workloads.resources import LoginSet, ResourceError, read


async def reconcile(runtime: Runtime, memory: Memory, key: Key) -> None:
    """Bring the login nodes to what the LoginSet describes; report."""
    namespace, name = key
    manifest = runtime.caches.loginsets.store.get(namespace, name)
    if manifest is None:
        memory.pop(key, None)
        return
    try:
        loginset = read(LoginSet, manifest)
    except ResourceError as error:
        await runtime.status.report(
            LOGINSETS, manifest, [Condition("Ready", "False", Ready.INVALID, str(error))]
        )
        return
    if loginset.metadata.deletion_timestamp is not None:
        return
    failure: NotUsableError | None = None
    try:
        controller = runtime.lookup.needed_controller(namespace, loginset.spec.controller_ref.name)
        with workload.usable():
            distribution.wait_for(runtime, namespace, slurm_key(controller))
        await effects.create_host_keys(runtime, loginset)
        facts = await runtime.lookup.facts(controller, manifest)
        pods = runtime.caches.login_pods.store.by("loginset", key)
        with workload.usable():
            rendered = [
                *render.objects(loginset, controller, facts),
                *render.addresses(
                    loginset,
                    observe.addresses(pods),
                    runtime.caches.live(ENDPOINT_SLICES, namespace, names.login_hosts(name)),
                ),
            ]
        blocked = await takeover.block(runtime, controller, DEPLOYMENTS, name)
        if blocked is None:
            blocked = order.arrange(
                runtime, rendered, "login", order.before_clients(runtime, controller)
            )
            await workload.apply_all(runtime, manifest, "LoginSet", lambda: rendered)
        # The pod itself has sshd reload (workloads/login.yaml); open sessions continue.
        digest = render.ssh_config_digest(loginset, controller, facts)
        await effects.nudge(runtime, memory, key, pods, digest)
        ready = workload.readiness(runtime, DEPLOYMENTS, namespace, name)
        if blocked is not None:
            ready = blocked.condition
            if (seconds := order.again(blocked)) is not None:
                runtime.queues.loginsets.add_after(key, seconds)
    except NotUsableError as error:
        failure, ready = error, workload.refused(runtime, manifest, error)
    selector = f"{names.APP_INSTANCE}={name},{names.APP_NAME}=login"
    more = {**await workload.counts(runtime, DEPLOYMENTS, manifest, name), "selector": selector}
    await runtime.status.report(LOGINSETS, manifest, [ready], more)
    workload.raise_retried(failure)
