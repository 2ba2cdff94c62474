"""Applies the files of declared users, and has kubelets bring them into running pods at once."""

from collections.abc import Mapping

from sidecars import objects
from sidecars.kube import PODS, Manifest
from sidecars.operator.runtime import workload
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.workloads import config_maps, names
from sidecars.workloads.resources import Controller

_UNWATCHED = "app.kubernetes.io/name in (slurmrestd,slurmdbd)"


def present(runtime: Runtime, controller: Controller) -> Mapping[str, str] | None:
    """Return the files as they were applied, or None if they never were."""
    live = runtime.caches.own_config_maps.store.get(
        controller.namespace, names.users(controller.name)
    )
    return None if live is None else live.get("data") or {}


async def store(
    runtime: Runtime, manifest: Manifest, controller: Controller, files: Mapping[str, str]
) -> None:
    """Apply the ConfigMap that pods mount. Raises NotUsableError and KubeError."""
    rendered = config_maps.users(controller, files)
    await workload.apply_all(runtime, manifest, "Controller", lambda: [rendered])


async def nudge(runtime: Runtime, key: Key, controller: Controller, mark: str) -> None:
    """Annotate all pods of the cluster. Without, a kubelet brings a change in after up to 90 s.
    Raises KubeError.
    """
    namespace, name = key
    caches = runtime.caches
    pods: list[objects.Pod] = [
        pod
        for pod in caches.pods.store.values()
        if (pod.metadata.namespace, pod.metadata.labels.get(names.CLUSTER)) == key
    ]
    pods += [
        pod
        for pod in caches.slurmctld_pods.store.values()
        if (pod.metadata.namespace, pod.metadata.labels.get(names.APP_INSTANCE)) == key
    ]
    for logins in runtime.lookup.loginsets_of(*key):
        pods += caches.login_pods.store.by("loginset", (logins.namespace, logins.name))
    restapi = runtime.lookup.restapi_of(namespace, name)
    accounting = controller.spec.accounting_ref
    daemons = {
        *([("slurmrestd", restapi.name)] if restapi is not None else []),
        *([("slurmdbd", accounting.name)] if accounting is not None else []),
    }
    found, _ = await runtime.client.list(
        PODS, namespace, label_selector=_UNWATCHED, type=objects.Pod
    )
    pods += [
        pod
        for pod in found
        if (pod.metadata.labels.get(names.APP_NAME), pod.metadata.labels.get(names.APP_INSTANCE))
        in daemons
    ]
    await workload.annotate(runtime, pods, names.USERS_NUDGE, mark)
