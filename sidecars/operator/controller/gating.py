"""The configuration gate's effects: publish, nudge, know how the pods stand to it, report; and the primary's label."""

import contextlib
import json
import logging
from collections.abc import Sequence
from typing import Literal

from sidecars.kube import PODS, Manifest, NotFound, records
from sidecars.operator import workload
from sidecars.operator.context import Context, Key
from sidecars.operator.controller.failover import Pods
from sidecars.operator.controller.pods import NUDGE, carries_label, pod_view
from sidecars.policy import configuration, failover, gate, upgrades
from sidecars.policy.conditions import Condition
from sidecars.policy.gate import Published
from sidecars.workloads import config, names
from sidecars.workloads import controller as render
from sidecars.workloads.config import ConfigSet
from sidecars.workloads.facts import Facts
from sidecars.workloads.resources import Controller, NodeSet

log = logging.getLogger(__name__)

EVENTS: dict[tuple[str, str], tuple[Literal["Normal", "Warning"], str]] = {
    (gate.ACCEPTED, "True"): ("Normal", "ConfigurationAccepted"),
    (gate.ACCEPTED, "False"): ("Warning", "ConfigurationRejected"),
    (gate.RUNNING, "True"): ("Normal", "ConfigurationRunning"),
}


def lint(
    context: Context, controller: Controller, config_set: ConfigSet, nodesets: Sequence[NodeSet]
) -> tuple[list[str], list[str]]:
    """Why the configuration may not be published, and what is only told: each with place, value and what to do."""
    cluster = context.clusters.get((controller.namespace, controller.name))
    view = cluster.view() if cluster is not None else None
    findings = configuration.lint(
        config_set,
        nodesets,
        upgrades.version(str(controller.spec.slurmctld.get("image") or "")),
        view.nodes if view is not None and (view.nodes or view.problem is None) else None,
    )
    return (
        [str(finding) for finding in findings if finding.severity == "error"],
        [str(finding) for finding in findings if finding.severity == "warning"],
    )


async def publish(
    context: Context, manifest: Manifest, controller: Controller, config_set: ConfigSet, facts: Facts
) -> None:
    """Write the ConfigMaps. Raises NotUsableError."""
    await workload.apply_all(
        context, manifest, "Controller", lambda: config.config_maps(controller, config_set, facts.published)
    )


async def follow(
    context: Context,
    key: Key,
    controller: Controller,
    config_set: ConfigSet,
    linted: tuple[Sequence[str], Sequence[str]],
    facts: Facts,
) -> list[Condition]:
    """Nudge the pods and ask them where something is outstanding; the gate's conditions as far as they are known."""
    found, warnings = linted
    pods = _pods(context, key)
    views = [pod_view(pod) for pod in pods]
    sha256 = _published(context, controller) if found else config_set.sha256
    published = None
    if sha256 is not None:
        live = controller.spec.config_update == "Reconfigure"
        published = Published(sha256, render.mark(controller, sha256, facts), live)
    context.statuses.want(key, published, views)
    known = context.statuses.known(key)
    if published is not None:
        for view in views:
            mark = gate.nudge(published, view, known.get(view.name), context.statuses.since(key))
            if mark is not None:
                await _patch(context, key[0], view.name, {"annotations": {NUDGE: mark}})
    return gate.conditions(published, found, views, known, config_set.origin, warnings)


async def label_primary(context: Context, key: Key, controller: Controller) -> None:
    """Have the label, and with it the Service, follow the primary. A slurmctld that stands alone needs none."""
    if not controller.spec.ha.enabled or controller.spec.external:
        context.primaries.want(key, None)
        return
    pods = _pods(context, key)
    labelled = next((pod.metadata.name for pod in pods if carries_label(pod)), None)
    addresses = {pod.metadata.name: pod.status.pod_ip for pod in pods}
    context.primaries.want(key, Pods(addresses, labelled))
    changes = failover.labels({pod.metadata.name: carries_label(pod) for pod in pods}, context.primaries.get(key))
    for name, gets in changes.items():
        await _patch(context, key[0], name, {"labels": {failover.ACTIVE: "true" if gets else None}})
        if gets and labelled is not None:
            log.info("Controller %s/%s: %s is the primary now, after %s", *key, name, labelled)


def tell(context: Context, manifest: Manifest, conditions: Sequence[Condition]) -> None:
    """Events for what an administrator reads later: a configuration accepted, rejected, running."""
    present = {
        condition.get("type"): (condition.get("status"), condition.get("message"))
        for condition in (manifest.get("status") or {}).get("conditions") or []
    }
    for condition in conditions:
        event = EVENTS.get((condition.type, condition.status))
        if event is not None and present.get(condition.type) != (condition.status, condition.message):
            context.events.emit(manifest, *event, "Configure", condition.message)


def forget(context: Context, key: Key) -> None:
    """The Controller is gone, or is not ours to configure."""
    context.statuses.want(key, None, ())
    context.primaries.want(key, None)


def _pods(context: Context, key: Key) -> list[records.Pod]:
    return sorted(context.caches.slurmctld_pods.store.by("controller", key), key=lambda pod: pod.metadata.name)


def _published(context: Context, controller: Controller) -> str | None:
    """The digest of what is published; None if nothing is."""
    live = context.caches.config_maps.store.get(controller.namespace, names.config(controller.name, 0)) or {}
    try:
        return str(json.loads((live.get("data") or {})[config.MANIFEST])["sha256"])
    except (KeyError, TypeError, ValueError):
        return None


async def _patch(context: Context, namespace: str, pod: str, metadata: Manifest) -> None:
    with contextlib.suppress(NotFound):
        await context.client.merge_patch(PODS, namespace, pod, {"metadata": metadata})
