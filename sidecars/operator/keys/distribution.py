"""The keys of auth/slurm that daemons have: a Secret that the operator applies and changes step by
step.
"""

import base64
import contextlib
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from sidecars import objects
from sidecars.contract.manifest import SLURM_JWKS
from sidecars.kube import DEPLOYMENTS, STATEFUL_SETS, Manifest
from sidecars.operator.core import keys
from sidecars.operator.runtime import workload
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.operator.runtime.queues import Key
from sidecars.operator.runtime.runtime import Runtime
from sidecars.policy import conditions
from sidecars.policy.conditions import Condition
from sidecars.policy.reasons import EventReason, Ready, SlurmKey
from sidecars.slurm import jwks, protocol
from sidecars.slurm.errors import NotYet, SlurmError
from sidecars.slurm.pending import PendingRequest
from sidecars.workloads import controller as render
from sidecars.workloads import names
from sidecars.workloads.facts import Facts, MissingReferenceError
from sidecars.workloads.references import Reference
from sidecars.workloads.resources import Controller, KeySelector

log = logging.getLogger(__name__)

AGAIN_SECONDS = 1.0


@dataclass(slots=True)
class Distribution:
    """How far the distribution of one Controller's keys has come."""

    walk: keys.Walk
    request: PendingRequest[None] | None = None
    """The request that has slurmctld have all daemons read the keys; None while none is pending."""


Distributions = dict[Key, Distribution]
"""By Controller."""


async def distribute(
    runtime: Runtime,
    distributions: Distributions,
    manifest: Manifest,
    controller: Controller,
    facts: Facts,
) -> Condition:
    """Apply the next step to the daemons' keys. Raises NotUsableError while no daemon can mount
    them.
    """
    key = (controller.namespace, controller.name)
    with workload.usable():
        first = render.slurm_key(controller)
        base = runtime.lookup.secret_value(controller.namespace, facts, first, "spec.slurmKeyRef")
    sharing = sorted(
        item["metadata"]["name"]
        for item in runtime.caches.controllers.store.values()
        if item["metadata"]["namespace"] == controller.namespace
        and ((item["spec"].get("slurmKeyRef") or {}).get("name")) == first.name
    )
    if sharing[0] != controller.name:
        wait_for(runtime, controller.namespace, first)
        message = f"Controller {sharing[0]!r} has the same spec.slurmKeyRef, and keeps the keys"
        return Condition(keys.TYPE, "True", SlurmKey.SHARED, message)
    following = None
    following_ref = controller.spec.next_slurm_key_ref
    if following_ref is not None:
        if len(sharing) > 1:
            message = (
                f"spec.nextSlurmKeyRef: Controllers {', '.join(sharing)} share Secret "
                f"{first.name!r}, and one of them can't get another key alone: give each a Secret "
                "of its own"
            )
            return Condition(keys.TYPE, "False", SlurmKey.SHARED, message)
        try:
            value = runtime.lookup.secret_value(
                controller.namespace, facts, following_ref, "spec.nextSlurmKeyRef"
            )
        except MissingReferenceError as error:
            wait_for(runtime, controller.namespace, first)
            message = (
                f"{error}; create it, and the operator continues. Until then the cluster uses its "
                "present key"
            )
            return Condition(keys.TYPE, "False", SlurmKey.REFERENCE_MISSING, message)
        following = (following_ref.name, value)
    secret = runtime.contents.secret(controller.namespace, names.slurm_jwks(first.name))
    present, since = None, 0.0
    if secret is not None:
        with contextlib.suppress(ValueError):
            present = jwks.parse(secret.data.get(SLURM_JWKS, b""))
        since = conditions.seconds(secret.metadata.annotations.get(names.KEYS_SINCE)) or 0.0
    unsettled = ""
    if present is not None and (following is not None or present.others):
        unsettled = await _settle(runtime, distributions, key, controller, present, since)
    decision = keys.plan(present, (first.name, base), following, unsettled)
    if decision.ring != present:
        text = base64.b64encode(jwks.render(decision.ring)).decode()
        since_text = conditions.timestamp(runtime.now())
        await workload.apply_all(
            runtime,
            manifest,
            "Controller",
            lambda: [render.key_secret(controller, text, since_text)],
        )
        if present is not None:
            runtime.events.emit(
                manifest, "Normal", EventReason.SLURM_KEY, "Rotate", decision.condition.message
            )
    if decision.waiting:
        runtime.queues.controllers.add_after(key, AGAIN_SECONDS)
    wait_for(runtime, controller.namespace, first)
    return decision.condition


def wait_for(runtime: Runtime, namespace: str, slurm: KeySelector) -> None:
    """Wait for the keys: a daemon that starts without slurm.jwks never looks for it again, so
    nothing starts before it exists. Raises NotUsableError.
    """
    name = names.slurm_jwks(slurm.name)
    if not runtime.contents.exists(Reference("Secret", namespace, name)):
        raise NotUsableError(
            Ready.WAITING_FOR_KEYS, f"Secret {name!r} with Slurm's keys is being created"
        )


async def forget(distributions: Distributions, key: Key) -> None:
    """Forget a Controller that was deleted, or all when the operator stops."""
    former = distributions.pop(key, None)
    if former is not None and former.request is not None:
        await former.request.close()


async def _settle(
    runtime: Runtime,
    distributions: Distributions,
    key: Key,
    controller: Controller,
    present: jwks.Ring,
    since: float,
) -> str:
    """Have daemons take these keys; why they can't be relied on to have them yet, or empty."""
    former = distributions.get(key)
    settling = keys.settle(
        former.walk if former is not None else None,
        present,
        since,
        _settle_seconds(controller),
        _hindrances(runtime, key, controller),
        runtime.now(),
    )
    if settling is None:
        return ""
    if former is not None and (former.walk.ring != settling.walk.ring or not settling.ask):
        # A request that was sent before the daemons could have these keys proves nothing.
        await forget(distributions, key)
        former = None
    distribution = distributions[key] = former or Distribution(settling.walk)
    distribution.walk = settling.walk
    if settling.nudge:
        await _nudge(runtime, key, f"{conditions.timestamp(since)}.{settling.walk.nudges}")
    return await _ask(runtime, distribution, key, settling) if settling.ask else settling.unsettled


async def _ask(
    runtime: Runtime, distribution: Distribution, key: Key, settling: keys.Settling
) -> str:
    """Have slurmctld have all daemons read their keys, without waiting for the answer; why they
    haven't yet.

    The answer wakes the Controller.
    """
    cluster = runtime.clusters.get(key)
    if cluster is None:
        return (
            "no RestApi serves this Controller, by which slurmctld could have all daemons read them"
        )
    if distribution.request is None:
        request, wake = protocol.reconfigure(), partial(runtime.queues.controllers.add, key)
        send = cluster.client.call(request, timeout=protocol.RECONFIGURE_SECONDS)
        distribution.request = PendingRequest(str(request), send, cluster.poller.now, wake)
    try:
        await distribution.request.outcome(patience=0.0)
    except NotYet:
        return settling.unsettled
    except SlurmError as error:
        distribution.request = None
        distribution.walk = keys.failed(settling.walk, str(error), runtime.now())
        log.warning("Controller %s/%s: %s", *key, keys.unanswered(distribution.walk))
        return keys.unanswered(distribution.walk)
    distribution.request = None
    distribution.walk = keys.asked(settling.walk, runtime.now())
    log.info("Controller %s/%s: all daemons were asked to read their keys", *key)
    return keys.READING


def _hindrances(runtime: Runtime, key: Key, controller: Controller) -> Iterator[str]:
    """Yield the daemons that can't have the keys yet."""
    namespace, name = key
    restapi = runtime.lookup.restapi_of(namespace, name)
    if restapi is not None:
        ready = workload.readiness(runtime, DEPLOYMENTS, namespace, names.restapi(restapi.name))
        if ready.status != "True":
            yield f"RestApi {restapi.name!r} is not ready with them: {ready.message}"
    reference = controller.spec.accounting_ref
    accounting = (
        runtime.caches.accountings.store.get(namespace, reference.name)
        if reference is not None
        else None
    )
    if accounting is not None and not accounting["spec"].get("external"):
        accounting_name = accounting["metadata"]["name"]
        ready = workload.readiness(
            runtime, STATEFUL_SETS, namespace, names.accounting(accounting_name)
        )
        if ready.status != "True":
            yield f"Accounting {accounting_name!r} is not ready with them: {ready.message}"
    for pod in _workers(runtime, key):
        node = (
            runtime.caches.kube_nodes.store.get("", pod.spec.node_name)
            if pod.spec.node_name
            else None
        )
        ready_node = node.status.condition("Ready") if node is not None else None
        if ready_node is not None and ready_node.status != "True":
            yield (
                f"Kubernetes node {pod.spec.node_name!r} is not Ready: pod {pod.metadata.name!r} "
                "can't get them"
            )


async def _nudge(runtime: Runtime, key: Key, mark: str) -> None:
    """Have the kubelets of workers and login nodes refresh the Secret. The gate nudges those of
    slurmctld.
    """
    pods = _workers(runtime, key)
    for logins in runtime.lookup.loginsets_of(*key):
        pods += runtime.caches.login_pods.store.by("loginset", (logins.namespace, logins.name))
    await workload.annotate(runtime, pods, names.KEYS_NUDGE, mark)


def _workers(runtime: Runtime, key: Key) -> list[objects.Pod]:
    return [
        pod
        for pod in runtime.caches.pods.store.values()
        if (pod.metadata.namespace, pod.metadata.labels.get(names.CLUSTER)) == key
    ]


def _settle_seconds(controller: Controller) -> float:
    text = controller.metadata.annotations.get(names.KEYS_SETTLE, "")
    return float(text) if text.isdecimal() else keys.SETTLE_SECONDS
