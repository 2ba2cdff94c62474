"""The configuration gate's effects: publish, nudge, know how the pods stand to it, report; and the primary's label."""

import contextlib
import logging
from collections.abc import Sequence
from typing import Literal

from sidecars.kube import PODS, Manifest, NotFound, records
from sidecars.operator.controller.failover import Pods
from sidecars.operator.controller.memory import Memory
from sidecars.operator.controller.pods import NUDGE, carries_label, pod_view
from sidecars.operator.runtime import workload
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy import failover, gate
from sidecars.policy.conditions import Condition
from sidecars.policy.configuration import lint as rules
from sidecars.policy.gate import Published
from sidecars.slurm import versions
from sidecars.workloads import config_maps, names
from sidecars.workloads import controller as render
from sidecars.workloads.config import ConfigSet
from sidecars.workloads.facts import Facts
from sidecars.workloads.resources import Controller, NodeSet

log = logging.getLogger(__name__)

EVENTS: dict[tuple[str, str], tuple[Literal["Normal", "Warning"], str]] = {
    (gate.ACCEPTED, "True"): ("Normal", "ConfigurationAccepted"),
    (gate.ACCEPTED, "False"): ("Warning", "ConfigurationRejected"),
    (gate.RUNNING, "True"): ("Normal", "ConfigurationRunning"),
    (failover.START_GATED, "False"): ("Warning", "StartNotGated"),
}


def lint(
    runtime: Runtime, controller: Controller, config_set: ConfigSet, nodesets: Sequence[NodeSet]
) -> tuple[list[str], list[str]]:
    """Why the configuration may not be published, and what is only told: each with place, value and what to do."""
    cluster = runtime.clusters.get((controller.namespace, controller.name))
    view = cluster.view() if cluster is not None else None
    findings = rules.lint(
        config_set,
        nodesets,
        versions.of_image(str(controller.spec.slurmctld.get("image") or "")),
        view.nodes if view is not None and (view.nodes or view.problem is None) else None,
    )
    return (
        [str(finding) for finding in findings if finding.severity == "error"],
        [str(finding) for finding in findings if finding.severity == "warning"],
    )


async def publish(
    runtime: Runtime, manifest: Manifest, controller: Controller, config_set: ConfigSet, facts: Facts
) -> None:
    """Write the ConfigMaps. Raises NotUsableError."""
    await workload.apply_all(
        runtime, manifest, "Controller", lambda: config_maps.config_maps(controller, config_set, facts.published)
    )


async def follow(
    runtime: Runtime,
    memory: Memory,
    key: Key,
    controller: Controller,
    config_set: ConfigSet,
    linted: tuple[Sequence[str], Sequence[str]],
    facts: Facts,
) -> list[Condition]:
    """Nudge the pods and ask them where something is outstanding; the gate's conditions as far as they are known."""
    found, warnings = linted
    pods = _pods(runtime, key)
    views = [pod_view(pod) for pod in pods]
    sha256 = _published(runtime, controller) if found else config_set.sha256
    published = None
    if sha256 is not None:
        live = controller.spec.config_update == "Reconfigure"
        published = Published(sha256, render.mark(controller, sha256, facts), live)
    memory.statuses.want(key, published, views)
    known = memory.statuses.known(key)
    if published is not None:
        for view in views:
            mark = gate.nudge(published, view, known.get(view.name), memory.statuses.since(key))
            if mark is not None:
                await _patch(runtime, key[0], view.name, {"annotations": {NUDGE: mark}})
    starts = [failover.start_gated(views, known)] if controller.spec.ha.enabled else []
    return [*gate.conditions(published, found, views, known, config_set.origin, warnings), *starts]


async def label_primary(runtime: Runtime, memory: Memory, key: Key, controller: Controller) -> None:
    """Have the label, and with it the Service, follow the primary. A slurmctld that stands alone needs none."""
    if not controller.spec.ha.enabled or controller.spec.external:
        memory.primaries.want(key, None)
        return
    pods = _pods(runtime, key)
    labelled = next((pod.metadata.name for pod in pods if carries_label(pod)), None)
    addresses = {pod.metadata.name: pod.status.pod_ip for pod in pods}
    memory.primaries.want(key, Pods(addresses, labelled))
    changes = failover.labels({pod.metadata.name: carries_label(pod) for pod in pods}, memory.primaries.get(key))
    for name, gets in changes.items():
        await _patch(runtime, key[0], name, {"labels": {failover.ACTIVE: "true" if gets else None}})
        if gets and labelled is not None:
            log.info("Controller %s/%s: %s is the primary now, after %s", *key, name, labelled)


def tell(runtime: Runtime, manifest: Manifest, conditions: Sequence[Condition]) -> None:
    """Events for what an administrator reads later: a configuration accepted, rejected, running; a start not gated."""
    present = {
        condition.get("type"): (condition.get("status"), condition.get("message"))
        for condition in (manifest.get("status") or {}).get("conditions") or []
    }
    for condition in conditions:
        event = EVENTS.get((condition.type, condition.status))
        if event is not None and present.get(condition.type) != (condition.status, condition.message):
            runtime.events.emit(manifest, *event, "Configure", condition.message)


def _pods(runtime: Runtime, key: Key) -> list[records.Pod]:
    return sorted(runtime.caches.slurmctld_pods.store.by("controller", key), key=lambda pod: pod.metadata.name)


def _published(runtime: Runtime, controller: Controller) -> str | None:
    """The digest of what is published; None if nothing is."""
    live = runtime.caches.own_config_maps.store.get(controller.namespace, names.config(controller.name, 0)) or {}
    return config_maps.published_digest(live)


async def _patch(runtime: Runtime, namespace: str, pod: str, metadata: Manifest) -> None:
    with contextlib.suppress(NotFound):
        await runtime.client.merge_patch(PODS, namespace, pod, {"metadata": metadata})
