"""Keeps a Slurm daemon's former image until the daemons that Slurm's order puts before it are up to
date and ready.
"""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from sidecars.kube import DEPLOYMENTS, STATEFUL_SETS, Manifest, Resource
from sidecars.operator.runtime.apply import APPLIED
from sidecars.operator.runtime.lookup import controller_of
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy import upgrades
from sidecars.policy.reasons import Ready
from sidecars.policy.upgrades import Before, Block, Live
from sidecars.slurm import versions
from sidecars.workloads import names
from sidecars.workloads.assembly import container, containers_of
from sidecars.workloads.resources import Controller

AGAIN_SECONDS = 2.0
"""How soon a waiting resource is reconciled again if no change wakes it earlier."""


def arrange(
    runtime: Runtime, manifests: list[Manifest], daemon: str, before: Before
) -> Block | None:
    """Put the former image back into the workload among `manifests` if that is to wait; without a
    former image, remove the workload. Returns why. Changes `manifests`.
    """
    workload = next(
        (it for it in manifests if it["kind"] in {STATEFUL_SETS.kind, DEPLOYMENTS.kind}), None
    )
    if workload is None:
        return None
    metadata, spec = workload["metadata"], workload["spec"]["template"]["spec"]
    wanted = container(spec, daemon).get("image")
    found = live(
        runtime, APPLIED[workload["kind"]], metadata["namespace"], metadata["name"], daemon
    )
    if (
        found is not None
        and (newest := upgrades.ran(found)) is not None
        and daemon in {"slurmctld", "slurmdbd"}
    ):
        metadata["annotations"] = {
            **metadata.get("annotations", {}),
            names.RAN_VERSION: versions.text(newest),
        }
    if not wanted:
        return None
    blocked = upgrades.block(daemon, found, wanted, before)
    if blocked is not None and found is None:
        manifests.remove(workload)
    elif blocked is not None and found is not None:
        for item in containers_of(spec):
            if item.get("image") == wanted:
                item["image"] = found.image
    return blocked


def live(
    runtime: Runtime, resource: Resource, namespace: str, name: str, daemon: str
) -> Live | None:
    """Return a workload as last seen, or None if it doesn't exist."""
    manifest = runtime.caches.live(resource, namespace, name)
    if manifest is None:
        return None
    try:
        image = str(container(manifest["spec"]["template"]["spec"], daemon).get("image", ""))
    except LookupError:
        return None
    status, replicas = manifest.get("status") or {}, manifest["spec"].get("replicas", 1)
    ready = upgrades.rolled_out(status, manifest["metadata"].get("generation", 0), replicas)
    ran = versions.parse((manifest["metadata"].get("annotations") or {}).get(names.RAN_VERSION, ""))
    return Live(image, ready, ran)


def again(blocked: Block | None) -> float | None:
    """Return after how many seconds to look again at what is blocked, None for what only another
    image changes.
    """
    waits = blocked is not None and blocked.reason in {Ready.WAITING_FOR_UPGRADE, Ready.TAKING_OVER}
    return AGAIN_SECONDS if waits else None


def before_slurmctld(runtime: Runtime, controller: Controller) -> Before:
    """Return what must be up to date before slurmctld."""
    reference = controller.spec.accounting_ref
    if reference is None:
        return upgrades.NOTHING
    manifest = runtime.caches.accountings.store.get(controller.namespace, reference.name)
    if manifest is None or manifest["spec"].get("external"):
        return upgrades.NOTHING
    return _before(runtime, "Accounting", manifest, names.accounting(reference.name), "slurmdbd")


def before_clients(runtime: Runtime, controller: Controller) -> Before:
    """Return what must be up to date before slurmrestd and login nodes."""
    manifest = runtime.caches.controllers.store.get(controller.namespace, controller.name)
    if manifest is None or controller.spec.external:
        return upgrades.NOTHING
    before = _before(
        runtime, "Controller", manifest, names.controller(controller.name), "slurmctld"
    )
    waits = before.waits or before_slurmctld(runtime, controller).waits
    return replace(before, waits=waits, moves=bool(waits))


def before_workers(runtime: Runtime, controller: Controller) -> Before:
    """Return what must be up to date before NodeSets."""
    before = before_clients(runtime, controller)
    waits = before.waits
    if waits:
        return before
    for manifest in _of(runtime.caches.restapis.store.values(), controller):
        name = names.restapi(manifest["metadata"]["name"])
        waits = waits or _not_done(runtime, "RestApi", manifest, DEPLOYMENTS, name, "slurmrestd")
    for manifest in _of(runtime.caches.loginsets.store.values(), controller):
        name = manifest["metadata"]["name"]
        waits = waits or _not_done(runtime, "LoginSet", manifest, DEPLOYMENTS, name, "login")
    return replace(before, waits=waits)


def _before(runtime: Runtime, kind: str, manifest: Manifest, name: str, daemon: str) -> Before:
    found = live(runtime, STATEFUL_SETS, manifest["metadata"]["namespace"], name, daemon)
    waits = _not_done(runtime, kind, manifest, STATEFUL_SETS, name, daemon)
    return Before(waits, daemon, found.image if found is not None else "", bool(waits))


def _not_done(
    runtime: Runtime, kind: str, manifest: Manifest, resource: Resource, name: str, daemon: str
) -> str:
    metadata, spec = manifest["metadata"], manifest["spec"]
    found = live(runtime, resource, metadata["namespace"], name, daemon)
    wanted = (spec.get(daemon) or {}).get("image")
    if found is not None and found.ready and wanted in (None, "", found.image):
        return ""
    return f"{kind} {metadata['name']!r} is up to date and ready" + (
        f" with image {wanted}" if wanted else ""
    )


def _of(manifests: Iterable[Manifest], controller: Controller) -> list[dict[str, Any]]:
    return [
        item
        for item in manifests
        if controller_of(item) == (controller.namespace, controller.name)
        and not item["metadata"].get("deletionTimestamp")
    ]
