"""The role `operator`: puts the parts together and runs them until told to stop."""

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import uuid
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime

from sidecars.kube import (
    Client,
    CredentialsError,
    Election,
    EventRecorder,
    Expectations,
    LeadershipLost,
    WorkQueue,
    load_credentials,
    run_until_lost,
    run_workers,
)
from sidecars.operator import metrics, wiring
from sidecars.operator.accounting import effects as accounting
from sidecars.operator.apply import Applier
from sidecars.operator.caches import Caches
from sidecars.operator.clusters import Clusters, guarded
from sidecars.operator.context import LEASE, Context, Key, Queues, Surroundings
from sidecars.operator.controller import effects as controller
from sidecars.operator.controller.failover import Primaries
from sidecars.operator.controller.statuses import Statuses
from sidecars.operator.loginset import effects as loginset
from sidecars.operator.nodeset import effects as nodeset
from sidecars.operator.nodeset import machines, podstate
from sidecars.operator.restapi import effects as restapi
from sidecars.operator.serving import serve
from sidecars.operator.settings import Settings, parse
from sidecars.operator.token import effects as token
from sidecars.slurm import protocol
from sidecars.slurm.client import Client as SlurmClient
from sidecars.slurm.records import Ping
from sidecars.workloads import structure
from sidecars.workloads.facts import Site
from sidecars.workloads.structure import StructureError

log = logging.getLogger(__name__)

SYNC_SECONDS = 60.0


def main(arguments: Sequence[str]) -> int:
    """Run the operator; 0 after SIGTERM or SIGINT, 1 when it can't run or lost its lease."""
    settings = parse(arguments, os.environ)
    logging.basicConfig(
        level=settings.log_level.upper(),
        stream=sys.stderr,
        format="%(asctime)s %(levelname)-7s %(message)s",
    )
    expected = (CredentialsError, LeadershipLost, OSError, StructureError, TimeoutError)
    try:
        run_until_lost(run(settings))
    except expected as error:
        log.error("%s", error)
        return 1
    except ExceptionGroup as group:
        if group.split(expected)[1] is not None:
            raise
        for failure in group.exceptions:
            log.error("%s", failure)
        return 1
    return 0


async def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    site = Site(
        workloads=structure.load(structure.folder(str(settings.workloads) if settings.workloads else None)),
        sidecars_image=settings.sidecars_image,
        cluster_domain=settings.cluster_domain,
    )
    async with Client.connect(load_credentials(settings.kubeconfig)) as client:
        end_serving = await serve(settings, client)
        try:
            work = asyncio.create_task(_elected(client, settings, site))
            stopping = asyncio.create_task(stop.wait())
            await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if stop.is_set():
                log.info("stopping")
                work.cancel()
            try:
                await work
            except asyncio.CancelledError:
                if not stop.is_set():
                    raise
        finally:
            await end_serving()


async def _elected(client: Client, settings: Settings, site: Site) -> None:
    if not settings.leader_elect:
        await lead(client, settings, site)
        return
    identity = f"{socket.gethostname()}_{uuid.uuid4()}"
    election = Election(client.apart(), settings.leader_elect_namespace, LEASE, identity)
    log.info("waiting for lease %s/%s", settings.leader_elect_namespace, LEASE)
    around = Surroundings(connect=guarded(SlurmClient, election.left))
    await election.run(lambda: lead(client.guarded(election.left), settings, site, around))


async def lead(client: Client, settings: Settings, site: Site, around: Surroundings | None = None) -> None:
    """Reconcile until cancelled. `around` None: in the real world."""
    around = around or Surroundings()
    queues = Queues.of(around.rng)

    def monitored() -> None:
        wiring.monitored(context)

    caches = Caches.of(client, settings.namespaces, around.rng, monitored)

    def jwt_key(key: Key) -> bytes | None:
        return context.jwt_key(key)

    def slurm_changed(key: Key, changed: frozenset[str], removed: frozenset[str]) -> None:
        wiring.slurm_changed(context, key, changed, removed)

    clusters = Clusters(
        key_of=jwt_key,
        changed=slurm_changed,
        clock=around.clock,
        wall_clock=around.wall_clock,
        connect=around.connect,
        rng=around.rng,
    )

    async def ping(key: Key) -> tuple[Ping, ...]:
        cluster = clusters.get(key)
        return await cluster.client.call(protocol.ping()) if cluster is not None else ()

    statuses = Statuses(jwt_key, queues.controllers.add, around.clock, around.wall_clock, around.fetch_status)
    primaries = Primaries(queues.controllers.add, ping, around.ask_ready)
    context = Context(
        client=client,
        caches=caches,
        clusters=clusters,
        queues=queues,
        applier=Applier(client, caches.live),
        statuses=statuses,
        primaries=primaries,
        events=EventRecorder(client, "slurm-operator", lambda: datetime.fromtimestamp(around.wall_clock(), UTC)),
        site=site,
        expectations=Expectations(clock=around.clock),
        now=around.wall_clock,
        slurmrestd_url=settings.slurmrestd_url,
        propagated_node_conditions=settings.propagated_node_conditions,
        cordon_drained_nodes=settings.cordon_drained_nodes,
        namespaces=settings.namespaces,
    )
    wiring.wire(context)
    async with clusters, contextlib.aclosing(statuses), contextlib.aclosing(primaries), asyncio.TaskGroup() as tasks:
        for reflector in caches:
            tasks.create_task(reflector.run())
        await asyncio.gather(*(reflector.wait_synced(SYNC_SECONDS) for reflector in caches))
        log.info("caches are filled; reconciling")

        def work(
            kind: str,
            queue: WorkQueue[Key],
            reconcile: Callable[[Context, Key], Awaitable[float | None]],
            concurrency: int,
        ) -> None:
            metrics.QUEUED.labels(kind).set_function(lambda: len(queue))

            def failed(key: Key, error: Exception, delay: float) -> None:
                metrics.FAILED.labels(kind).inc()
                log.warning("%s %s/%s: next try in %.1f s: %s", kind, *key, delay, error, exc_info=log.isEnabledFor(10))

            async def one_pass(key: Key) -> float | None:
                with metrics.SECONDS.labels(kind).time():
                    return await reconcile(context, key)

            tasks.create_task(run_workers(queue, one_pass, concurrency, failed=failed))

        work("Controller", queues.controllers, controller.reconcile, settings.controller_workers)
        work("RestApi", queues.restapis, restapi.reconcile, settings.restapi_workers)
        work("LoginSet", queues.loginsets, loginset.reconcile, settings.loginset_workers)
        work("Accounting", queues.accountings, accounting.reconcile, settings.accounting_workers)
        work("Token", queues.tokens, token.reconcile, settings.token_workers)
        work("NodeSet", queues.nodesets, nodeset.reconcile, settings.nodeset_workers)
        work("Node", queues.machines, machines.reconcile, 1)
        work("Pod", queues.pods, podstate.reconcile, podstate.WORKERS)
