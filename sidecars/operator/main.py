"""The role `operator`: assembles the parts and runs them until a signal to stop."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Hashable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from sidecars.kube import (
    Client,
    Election,
    EventRecorder,
    Expectations,
    WorkQueue,
    candidate,
    load_credentials,
    run_workers,
    status_of,
)
from sidecars.operator import metrics
from sidecars.operator.accounting import reconcile as accounting
from sidecars.operator.accounting import wiring as accounting_wiring
from sidecars.operator.accounts import reconcile as accounts
from sidecars.operator.accounts import wiring as accounts_wiring
from sidecars.operator.autoscaling import memory as autoscaling_memory
from sidecars.operator.autoscaling import reconcile as autoscaling
from sidecars.operator.autoscaling import wiring as autoscaling_wiring
from sidecars.operator.controller import memory as controller_memory
from sidecars.operator.controller import reconcile as controller
from sidecars.operator.controller import wiring as controller_wiring
from sidecars.operator.controller.failover import Primaries
from sidecars.operator.controller.statuses import Statuses
from sidecars.operator.kube_node import reconcile as kube_node
from sidecars.operator.kube_node import wiring as kube_node_wiring
from sidecars.operator.loginset import memory as loginset_memory
from sidecars.operator.loginset import reconcile as loginset
from sidecars.operator.loginset import wiring as loginset_wiring
from sidecars.operator.nodeset import reconcile as nodeset
from sidecars.operator.nodeset import wiring as nodeset_wiring
from sidecars.operator.nodeset.memories import Memories as NodeSetMemories
from sidecars.operator.restapi import reconcile as restapi
from sidecars.operator.restapi import wiring as restapi_wiring
from sidecars.operator.runtime import permissions
from sidecars.operator.runtime.apply import Applier
from sidecars.operator.runtime.caches import Caches
from sidecars.operator.runtime.clusters import Clusters, guarded
from sidecars.operator.runtime.contents import Contents
from sidecars.operator.runtime.lookup import Lookup
from sidecars.operator.runtime.own_writes import OwnWrites
from sidecars.operator.runtime.queues import Key, Queues
from sidecars.operator.runtime.real_world import RealWorld
from sidecars.operator.runtime.runtime import Runtime
from sidecars.operator.runtime.status import StatusWriter
from sidecars.operator.serving import serve
from sidecars.operator.settings import Settings, parse
from sidecars.operator.token import reconcile as token
from sidecars.operator.token import wiring as token_wiring
from sidecars.operator.users import reconcile as users
from sidecars.operator.users import wiring as users_wiring
from sidecars.operator.worker_pod import reconcile as worker_pod
from sidecars.operator.worker_pod import wiring as worker_pod_wiring
from sidecars.program import log_to_stderr, stop_signal, until
from sidecars.slurm import protocol
from sidecars.slurm.records import Ping
from sidecars.workloads import structure
from sidecars.workloads.facts import Site
from sidecars.workloads.structure import StructureError

log = logging.getLogger(__name__)

SYNC_SECONDS = 60.0


def main(arguments: Sequence[str]) -> int:
    """Run the operator; 0 after SIGTERM or SIGINT, 1 when it can't run or lost its lease."""
    settings = parse(arguments, os.environ)
    log_to_stderr(settings.log_level)
    return status_of(run(settings), StructureError)


async def run(settings: Settings) -> None:
    """Run until SIGTERM or SIGINT."""
    stop = stop_signal()
    site = Site(
        workloads=structure.load(
            structure.folder(str(settings.workloads) if settings.workloads else None)
        ),
        sidecars_image=settings.sidecars_image,
        cluster_domain=settings.cluster_domain,
        ipv6=settings.ipv6,
    )
    async with Client.connect(load_credentials(settings.kubeconfig)) as client:
        end_serving = await serve(settings, client)
        try:
            await until(stop, _elected(client, settings, site))
        finally:
            await end_serving()


async def _elected(client: Client, settings: Settings, site: Site) -> None:
    if not settings.leader_elect:
        await lead(client, settings, site)
        return
    election = candidate(client, settings.leader_elect_namespace, settings.leader_elect_name)
    await lead_when_elected(client, settings, site, election, RealWorld())


@dataclass(frozen=True, slots=True)
class Operator:
    """What one leading operator works with: the parts that all kinds share, and each kind's
    memory.
    """

    runtime: Runtime
    controllers: controller_memory.Memory
    loginsets: loginset_memory.Memory
    nodesets: NodeSetMemories
    autoscaling: autoscaling_memory.Memories
    accounts: accounts.Memories
    users: users.Memories


async def lead_when_elected(
    client: Client,
    settings: Settings,
    site: Site,
    election: Election,
    world: RealWorld,
    started: Callable[[Operator], None] = lambda _: None,
) -> None:
    """Wait until the election is won, then `lead`; writes are sent only while it leads. Raises as
    `Election.run`.
    """
    guarded_world = replace(world, connect=guarded(world.connect, election.left))
    await election.run(
        lambda: lead(client.guarded(election.left), settings, site, guarded_world, started)
    )


async def lead(
    client: Client,
    settings: Settings,
    site: Site,
    world: RealWorld | None = None,
    started: Callable[[Operator], None] = lambda _: None,
) -> None:
    """Reconcile until cancelled. `world` None: the real one. `started` is called before anything
    runs.
    """
    operator = assemble(client, settings, site, world or RealWorld())
    runtime = operator.runtime
    wire(operator)
    started(operator)
    async with (
        runtime.clusters,
        contextlib.aclosing(operator.controllers),
        asyncio.TaskGroup() as tasks,
    ):
        for reflector in runtime.caches:
            tasks.create_task(reflector.run())
        await asyncio.gather(*(reflector.wait_synced(SYNC_SECONDS) for reflector in runtime.caches))
        log.info("caches are filled; reconciling")
        metrics.UNREADABLE.set_function(lambda: len(permissions.unreadable(runtime.caches)))
        metrics.REPORTED.stores = [
            reflector.store for reflector in runtime.caches.custom_resources()
        ]
        metrics.REPORTED.poll_ages = runtime.clusters.poll_ages
        for problem in permissions.unreadable(runtime.caches).values():
            log.error("%s", problem)
        for kind in kinds(operator):
            tasks.create_task(work(kind))


def assemble(client: Client, settings: Settings, site: Site, world: RealWorld) -> Operator:
    """Return the parts, none of which runs yet."""

    async def ping(key: Key) -> tuple[Ping, ...]:
        cluster = clusters.get(key)
        return await cluster.client.call(protocol.ping()) if cluster is not None else ()

    queues = Queues.of(world.rng)
    caches = Caches.of(client, settings.namespaces, world.rng)
    contents = Contents(client, caches)
    lookup = Lookup(caches, contents, site, settings.slurmrestd_url)
    clusters = Clusters(lookup.jwt_key, world.clock, world.wall_clock, world.connect, world.rng)
    own_writes = OwnWrites()
    runtime = Runtime(
        client=client,
        settings=settings,
        site=site,
        caches=caches,
        contents=contents,
        lookup=lookup,
        clusters=clusters,
        queues=queues,
        applier=Applier(client, caches.live, world.wall_clock),
        own_writes=own_writes,
        status=StatusWriter(client, own_writes, world.wall_clock),
        events=EventRecorder(
            client, "slurm-operator", lambda: datetime.fromtimestamp(world.wall_clock(), UTC)
        ),
        expectations=Expectations(clock=world.clock),
        now=world.wall_clock,
    )
    wake = queues.controllers.add
    controllers = controller_memory.Memory(
        Statuses(lookup.jwt_key, wake, world.clock, world.wall_clock, world.fetch_status),
        Primaries(wake, ping, world.ask_ready),
    )
    return Operator(
        runtime,
        controllers,
        loginsets={},
        nodesets=NodeSetMemories(),
        autoscaling={},
        accounts={},
        users={},
    )


def wire(operator: Operator) -> None:
    """Subscribe every kind to the changes that wake it."""
    runtime = operator.runtime
    runtime.forget_deleted()
    controller_wiring.wire(runtime)
    restapi_wiring.wire(runtime)
    loginset_wiring.wire(runtime)
    accounting_wiring.wire(runtime)
    accounts_wiring.wire(runtime)
    users_wiring.wire(runtime)
    token_wiring.wire(runtime)
    nodeset_wiring.wire(runtime, operator.nodesets)
    worker_pod_wiring.wire(runtime)
    kube_node_wiring.wire(runtime)
    autoscaling_wiring.wire(runtime, operator.autoscaling)


@dataclass(frozen=True, slots=True)
class Kind:
    """What is reconciled from one queue."""

    name: str
    queue: WorkQueue[Key]
    reconcile: Callable[[Key], Awaitable[float | None]]
    concurrency: int
    """How many keys of one group are reconciled at once, at least 1."""
    group: Callable[[Key], Hashable] | None = None
    """The Slurm cluster that reconciling a key may wait for: other clusters' keys do not wait with
    it. None: none.
    """


def kinds(operator: Operator) -> Sequence[Kind]:
    """Return all kinds, with their reconcilers."""
    runtime, queues, settings = operator.runtime, operator.runtime.queues, operator.runtime.settings
    caches, lookup = runtime.caches, runtime.lookup
    readable = partial(permissions.when_readable, runtime)
    controllers = readable(
        caches.controllers, partial(controller.reconcile, runtime, operator.controllers)
    )
    restapis = readable(caches.restapis, partial(restapi.reconcile, runtime))
    loginsets = readable(caches.loginsets, partial(loginset.reconcile, runtime, operator.loginsets))
    accountings = readable(caches.accountings, partial(accounting.reconcile, runtime))
    tokens = readable(caches.tokens, partial(token.reconcile, runtime))
    nodesets = readable(caches.nodesets, partial(nodeset.reconcile, runtime, operator.nodesets))
    pods = readable(caches.pods, partial(worker_pod.reconcile, runtime, operator.nodesets.defer))
    scaled = readable(
        caches.controllers, partial(autoscaling.reconcile, runtime, operator.autoscaling)
    )
    declared = readable(caches.controllers, partial(accounts.reconcile, runtime, operator.accounts))
    declared_users = readable(caches.controllers, partial(users.reconcile, runtime, operator.users))
    return (
        Kind("Controller", queues.controllers, controllers, settings.controller_workers),
        Kind("RestApi", queues.restapis, restapis, settings.restapi_workers),
        Kind("LoginSet", queues.loginsets, loginsets, settings.loginset_workers),
        Kind("Accounting", queues.accountings, accountings, settings.accounting_workers),
        Kind("Token", queues.tokens, tokens, settings.token_workers),
        Kind(
            "NodeSet",
            queues.nodesets,
            nodesets,
            settings.nodeset_workers,
            lookup.controller_of_nodeset,
        ),
        Kind("Node", queues.kube_nodes, partial(kube_node.reconcile, runtime), 1),
        Kind("Autoscaling", queues.autoscaling, scaled, 1, lambda controller: controller),
        Kind("Accounts", queues.declared_accounts, declared, 1, lambda controller: controller),
        Kind("Users", queues.declared_users, declared_users, 1, lambda controller: controller),
        Kind("Pod", queues.pods, pods, worker_pod.WORKERS, lookup.controller_of_pod),
    )


async def work(kind: Kind) -> None:
    """Reconcile one kind until cancelled."""
    metrics.QUEUED.labels(kind.name).set_function(lambda: len(kind.queue))

    def failed(key: Key, error: Exception, delay: float) -> None:
        metrics.FAILED.labels(kind.name).inc()
        detailed = log.isEnabledFor(logging.DEBUG)
        log.warning(
            "%s %s/%s: next try in %.1f s: %s", kind.name, *key, delay, error, exc_info=detailed
        )

    async def one_pass(key: Key) -> float | None:
        with metrics.SECONDS.labels(kind.name).time():
            return await kind.reconcile(key)

    await run_workers(kind.queue, one_pass, kind.concurrency, group=kind.group, failed=failed)
