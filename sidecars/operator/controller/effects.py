"""Applies what a pass over one Controller decided: connection, ConfigMaps, hints to the kubelets,
label, Events.
"""

import contextlib
import logging
import math
from collections.abc import Sequence
from functools import partial
from typing import Literal

from sidecars.kube import PODS, Manifest, NotFound, ServerError
from sidecars.operator.controller import observe, quotes
from sidecars.operator.controller.failover import Pods
from sidecars.operator.controller.memory import Memory
from sidecars.operator.controller.observe import Observed
from sidecars.operator.controller.pods import NUDGE, carries_label, pod_view
from sidecars.operator.runtime import workload
from sidecars.operator.runtime.contents import NotReadError
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.runtime.waking import key_of
from sidecars.operator.upgrade import order
from sidecars.policy import failover, gate
from sidecars.policy.conditions import Condition, timestamp
from sidecars.policy.gate import Published
from sidecars.policy.reasons import EventReason
from sidecars.policy.upgrades import Block
from sidecars.workloads import config_maps, names, nodeset, references
from sidecars.workloads import controller as render
from sidecars.workloads.resources import Controller

log = logging.getLogger(__name__)

EVENTS: dict[tuple[str, str], tuple[Literal["Normal", "Warning"], EventReason]] = {
    (gate.ACCEPTED, "True"): ("Normal", EventReason.CONFIGURATION_ACCEPTED),
    (gate.ACCEPTED, "False"): ("Warning", EventReason.CONFIGURATION_REJECTED),
    (gate.RUNNING, "True"): ("Normal", EventReason.CONFIGURATION_RUNNING),
    (failover.START_GATED, "False"): ("Warning", EventReason.START_NOT_GATED),
}


async def connect(runtime: Runtime, key: Key, manifest: Manifest) -> NotReadError | None:
    """Have the Slurm cluster polled while a RestApi serves it. Raises KubeError.

    Returns why something that the Controller refers to, such as its JWT key, could not be read.
    """
    unread = None
    try:
        await runtime.contents.read(references.of(manifest))
    except NotReadError as error:
        unread = error
    await runtime.clusters.want(key, runtime.lookup.url(runtime.lookup.restapi_of(*key)))
    return unread


async def publish(
    runtime: Runtime, manifest: Manifest, controller: Controller, observed: Observed
) -> None:
    """Write the ConfigMaps. Raises NotUsableError.

    The first configuration of a cluster counts as accepted: slurmrestd need not wait for a
    slurmctld that starts.
    """

    def rendered() -> list[Manifest]:
        published = config_maps.config_maps(
            controller, observed.config_set, observed.facts.published
        )
        if controller.spec.external or not first:
            return published
        return [
            *published,
            *config_maps.accepted(controller, {it["metadata"]["name"]: it for it in published}),
        ]

    accepted = runtime.lookup.config_maps(
        controller.namespace, partial(names.accepted_config, controller.name)
    )
    first = not accepted and not observe.slurmctld_pods(runtime, key_of(manifest))
    await workload.apply_all(runtime, manifest, "Controller", rendered)


async def apply_slurmctld(
    runtime: Runtime, manifest: Manifest, controller: Controller, observed: Observed
) -> tuple[Block | None, NotUsableError | ServerError | None]:
    """Apply its Services and its StatefulSet. Why it keeps its image, and why not all is applied;
    nothing else waits for them, also if a webhook of the API server fails.
    """
    blocked = None
    try:
        with workload.usable():
            rendered = render.workload(controller, observed.config_set, observed.facts)
        blocked = order.arrange(
            runtime, rendered, "slurmctld", order.before_slurmctld(runtime, controller)
        )
        # One that keeps its image might not be created while it is blocked.
        await workload.apply_all(
            runtime, manifest, "Controller", lambda: rendered, recreates=blocked is None
        )
    except (NotUsableError, ServerError) as error:
        return blocked, error
    return blocked, None


async def apply_shared(
    runtime: Runtime, manifest: Manifest, controller: Controller, observed: Observed
) -> NotUsableError | None:
    """Apply what all NodeSets share. Why not all is applied; nothing else waits for it."""
    try:
        await workload.apply_all(
            runtime,
            manifest,
            "Controller",
            lambda: nodeset.shared_objects(controller, observed.nodesets, observed.facts),
        )
    except NotUsableError as error:
        return error
    return None


async def accept(
    runtime: Runtime, memory: Memory, manifest: Manifest, controller: Controller
) -> None:
    """Copy the published configuration for all other readers once slurmctld runs with it. Raises
    NotUsableError.
    """
    key = key_of(manifest)
    pods = [pod_view(pod) for pod in observe.slurmctld_pods(runtime, key)]
    sha256 = observe.published(runtime, controller)
    if sha256 is None or not gate.is_accepted(sha256, pods, memory.statuses.known(key)):
        return
    published = runtime.lookup.config_maps(key[0], partial(names.config, key[1]))
    present = runtime.lookup.config_maps(key[0], partial(names.accepted_config, key[1]))
    # The cache may have a part of another configuration.
    if config_maps.files(published.values()):
        await workload.apply_all(
            runtime,
            manifest,
            "Controller",
            lambda: config_maps.accepted(controller, published, present),
        )


async def follow(
    runtime: Runtime, memory: Memory, key: Key, controller: Controller, observed: Observed
) -> list[Condition]:
    """Nudge the pods and ask them where something is outstanding; the gate's conditions as far as
    they are known.
    """
    views = [pod_view(pod) for pod in observe.slurmctld_pods(runtime, key)]
    sha256 = (
        observe.published(runtime, controller) if observed.faults else observed.config_set.sha256
    )
    published = None
    if sha256 is not None:
        live = controller.spec.config_update == "Reconfigure"
        published = Published(sha256, render.mark(controller, sha256, observed.facts), live)
    memory.statuses.want(key, published, views)
    statuses = memory.statuses.known(key)
    if published is not None:
        for view in views:
            mark = gate.nudge(published, view, statuses.get(view.name), memory.statuses.since(key))
            if mark is not None:
                await _patch(runtime, key[0], view.name, {"annotations": {NUDGE: mark}})
    quoted = await quotes.read(runtime, memory.quotes, key, views, statuses, observed.config_set)
    starts = [failover.start_gated(views, statuses)] if controller.spec.ha.enabled else []
    return [
        *gate.conditions(
            published,
            observed.faults,
            views,
            statuses,
            observed.config_set.origin,
            observed.warnings,
            quoted,
        ),
        *starts,
    ]


async def label_primary(runtime: Runtime, memory: Memory, key: Key, controller: Controller) -> None:
    """Have the label, and with it the Service, follow the primary. A slurmctld that stands alone
    needs none.
    """
    if not controller.spec.ha.enabled or controller.spec.external:
        memory.primaries.want(key, None)
        return
    pods = observe.slurmctld_pods(runtime, key)
    labelled = next((pod.metadata.name for pod in pods if carries_label(pod)), None)
    addresses = {pod.metadata.name: pod.status.pod_ip for pod in pods}
    memory.primaries.want(key, Pods(addresses, labelled))
    primary = memory.primaries.get(key)
    carrying = {
        pod.metadata.name: carries_label(pod)
        and (pod.metadata.name != primary or failover.ACTIVE_SINCE in pod.metadata.annotations)
        for pod in pods
    }
    changes = failover.labels(carrying, primary)
    for name, gets in changes.items():
        label = {failover.ACTIVE: "true" if gets else None}
        # Never earlier than the take-over, which is up to a few seconds ago.
        since = {failover.ACTIVE_SINCE: timestamp(math.ceil(runtime.now())) if gets else None}
        await _patch(runtime, key[0], name, {"labels": label, "annotations": since})
        if gets and labelled not in (None, name):
            log.info("Controller %s/%s: %s is the primary now, after %s", *key, name, labelled)


def emit_events(runtime: Runtime, manifest: Manifest, conditions: Sequence[Condition]) -> None:
    """Events for what an administrator reads later: a configuration accepted, rejected, running; a
    start not gated.
    """
    present = {
        condition.get("type"): (condition.get("status"), condition.get("message"))
        for condition in (manifest.get("status") or {}).get("conditions") or []
    }
    for condition in conditions:
        event = EVENTS.get((condition.type, condition.status))
        if event is not None and present.get(condition.type) != (
            condition.status,
            condition.message,
        ):
            runtime.events.emit(manifest, *event, "Configure", condition.message)


async def _patch(runtime: Runtime, namespace: str, pod: str, metadata: Manifest) -> None:
    with contextlib.suppress(NotFound):
        await runtime.client.merge_patch(PODS, namespace, pod, {"metadata": metadata})
