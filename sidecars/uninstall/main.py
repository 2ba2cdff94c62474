"""The role `release`: run once before the operator's chart is uninstalled, so that nothing waits
for an operator.

Stops the operator, then removes its finalizers from every custom resource. Pods keep running. A
resource that is deleted afterwards is removed at once with the objects that it owns, and its
workers protect their own jobs.
"""

import asyncio
import contextlib
import logging
import os
import time
from collections.abc import Awaitable, Callable, Sequence

from sidecars.commandline import Parser
from sidecars.custom_resources import (
    CONTROLLERS,
    IN_USE,
    NODESETS,
    RESTAPIS,
    WORKERS_TERMINATE_FIRST,
)
from sidecars.kube import (
    DEPLOYMENTS,
    LEASES,
    ApiError,
    Client,
    CredentialsError,
    Forbidden,
    Manifest,
    NotFound,
    Resource,
    load_credentials,
)
from sidecars.kube.namespaces import is_leaving
from sidecars.program import log_to_stderr

log = logging.getLogger(__name__)

STOP_SECONDS = 60.0


def main(arguments: Sequence[str]) -> int:
    """Stop the operator's Deployment and remove all of its finalizers; 0 if done, 1 if not."""
    parser = Parser(prog="slurm-sidecars release", description="Remove the operator's finalizers.")
    parser.add_argument("--deployment", required=True, help="the operator's Deployment")
    parser.add_argument(
        "--namespace", default=os.environ.get("POD_NAMESPACE", "default"), help="where it is"
    )
    parser.add_argument(
        "--namespaces", default="", metavar="A,B", help="namespaces that it watches; default: all"
    )
    given = parser.parse_args(arguments)
    log_to_stderr()
    watched = tuple(name for name in given.namespaces.split(",") if name)

    async def run() -> None:
        async with Client.connect(load_credentials()) as client:
            await release(client, given.namespace, given.deployment, watched)

    try:
        asyncio.run(run())
    except (ApiError, CredentialsError, OSError, TimeoutError) as error:
        log.error("%s", error)
        return 1
    return 0


async def release(
    client: Client,
    namespace: str,
    deployment: str,
    watched: Sequence[str] = (),
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
) -> None:
    """Scale the Deployment to zero, wait until its pods are gone, delete its lease, then take our
    finalizers off.

    The chart gives the lease the name of the Deployment. A running operator would add the
    finalizers again. Raises TimeoutError if it does not stop, ApiError for a refused request.
    """
    try:
        await client.merge_patch(DEPLOYMENTS, namespace, deployment, {"spec": {"replicas": 0}})
    except NotFound:
        log.info("no Deployment %s/%s to stop", namespace, deployment)
    else:
        deadline = clock() + STOP_SECONDS
        while not await _stopped(client, namespace, deployment):
            if clock() >= deadline:
                raise TimeoutError(
                    f"Deployment {namespace}/{deployment} still has pods after {STOP_SECONDS:.0f} s"
                )
            await sleep(0.5)
    with contextlib.suppress(NotFound):
        await client.delete(LEASES, namespace, deployment)
    for resource, finalizer in (
        (CONTROLLERS, IN_USE),
        (RESTAPIS, IN_USE),
        (NODESETS, WORKERS_TERMINATE_FIRST),
    ):
        for place in watched or (None,):
            try:
                items, _ = await client.list(resource, place)
            except NotFound:
                continue  # its CRD is gone already
            except Forbidden:
                if place is not None and await is_leaving(client, place):
                    continue  # the Role is deleted with its namespace
                raise
            for item in items:
                present = item["metadata"].get("finalizers") or []
                if finalizer in present:
                    await _remove_finalizer(client, item, resource, finalizer)


async def _stopped(client: Client, namespace: str, deployment: str) -> bool:
    try:
        live = await client.get(DEPLOYMENTS, namespace, deployment)
    except NotFound:
        return True
    status = live.get("status") or {}
    current = status.get("observedGeneration", 0) >= live["metadata"].get("generation", 0)
    return current and not status.get("replicas") and not status.get("terminatingReplicas")


async def _remove_finalizer(
    client: Client, item: Manifest, resource: Resource, finalizer: str
) -> None:
    metadata = item["metadata"]
    kept = [other for other in metadata["finalizers"] if other != finalizer]
    try:
        await client.merge_patch(
            resource,
            metadata["namespace"],
            metadata["name"],
            {"metadata": {"finalizers": kept or None}},
        )
    except NotFound:
        return
    log.info("%s %s/%s: released", resource.kind, metadata["namespace"], metadata["name"])
