"""The order in which the objects of SchedMD's operator are taken over: slurmdbd, slurmctld, then
everything else.

Until slurmctld runs as this operator's, it keeps its configuration, and login nodes, slurmrestd and
workers keep their pods. If slurmctld can't be taken over, the cluster runs on as it was.
"""

from collections.abc import Sequence

from sidecars import objects
from sidecars.kube import STATEFUL_SETS, Manifest, Resource
from sidecars.operator.runtime import workload
from sidecars.operator.runtime.apply import APPLIED_HASH, is_settled
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.upgrade.order import AGAIN_SECONDS
from sidecars.policy.reasons import Ready
from sidecars.policy.upgrades import Block
from sidecars.workloads import names
from sidecars.workloads.resources import Controller


async def is_pending(runtime: Runtime, resource: Resource, namespace: str, name: str) -> bool:
    """Return whether the object exists, and this operator has not applied it yet or SchedMD's has
    written to it since.
    """
    live = await workload.find(runtime, resource, namespace, name)
    return live is not None and not _is_applied(live)


async def replaces_slurmctld(runtime: Runtime, controller: Controller) -> bool:
    """Return whether a slurmctld exists that this operator's StatefulSet is to replace."""
    if controller.spec.external:
        return False
    place = controller.namespace, names.controller(controller.name)
    if await is_pending(runtime, STATEFUL_SETS, *place):
        return True
    pods = runtime.caches.slurmctld_pods.store.by(
        "controller", (controller.namespace, controller.name)
    )
    # Those of this operator are without a StatefulSet while that is being created again.
    return (
        any(map(_is_former_slurmctld, pods)) and runtime.caches.live(STATEFUL_SETS, *place) is None
    )


async def block(
    runtime: Runtime, controller: Controller, resource: Resource, name: str
) -> Block | None:
    """Return why the workload of this name, of SchedMD's operator, is left as it is. Return None if
    it isn't or need not be.
    """
    waits = slurmctld_first(runtime, controller)
    if waits is None or not await is_pending(runtime, resource, controller.namespace, name):
        return None
    return waits


def slurmctld_first(runtime: Runtime, controller: Controller) -> Block | None:
    """Return why nothing of SchedMD's operator may be replaced yet, None once slurmctld runs as
    this operator's.
    """
    if controller.spec.external:
        return None
    message = _not_done(runtime, controller.namespace, names.controller(controller.name))
    return (
        Block(Ready.TAKING_OVER, f"pods of SchedMD's operator are replaced as soon as {message}")
        if message
        else None
    )


def check_slurmctld(runtime: Runtime, controller: Controller, faults: Sequence[str]) -> None:
    """Raise NotUsableError while the present slurmctld has to stay. `faults`: of the configuration
    for the next.
    """
    if faults:
        text = "; ".join(faults)
        raise NotUsableError(
            Ready.INVALID, f"the present slurmctld stays until its configuration is valid: {text}"
        )
    reference = controller.spec.accounting_ref
    accounting = (
        runtime.caches.accountings.store.get(controller.namespace, reference.name)
        if reference is not None
        else None
    )
    if accounting is None or accounting["spec"].get("external"):
        return
    message = _not_done(
        runtime, controller.namespace, names.accounting(accounting["metadata"]["name"])
    )
    if message:
        runtime.queues.controllers.add_after((controller.namespace, controller.name), AGAIN_SECONDS)
        raise NotUsableError(
            Ready.TAKING_OVER,
            f"the slurmctld of SchedMD's operator is replaced as soon as {message}",
        )


def is_former(pod: objects.Pod) -> bool:
    """Return whether SchedMD's operator created the worker pod: this one annotates its pods with a
    hash of slurm.key.
    """
    return names.SLURM_KEY_HASH not in pod.metadata.annotations


def _is_former_slurmctld(pod: objects.Pod) -> bool:
    """Return whether SchedMD's operator may have created the pod: only this one's has dry runs in a
    container of their own.
    """
    return "check" not in {it.name for it in pod.status.init_container_statuses}


def _is_applied(live: Manifest) -> bool:
    """Return whether the object has been taken over as a whole: the annotation is removed with the
    fields, and applied afterwards.
    """
    return is_settled(live) and APPLIED_HASH in (live["metadata"].get("annotations") or {})


def _not_done(runtime: Runtime, namespace: str, name: str) -> str:
    """Return what is missing until a StatefulSet runs as this operator's, "" if nothing is."""
    live = runtime.caches.live(STATEFUL_SETS, namespace, name)
    if live is None or not _is_applied(live):
        return f"StatefulSet {name} is taken over and its pods are ready"
    ready = workload.readiness(runtime, STATEFUL_SETS, namespace, name)
    return "" if ready.status == "True" else f"StatefulSet {name} is ready ({ready.message})"
