"""Kubelets for benchmark `bridge`, in a process of their own: bound pods run, and deleted ones end,
at once.
"""

import asyncio
import contextlib
from contextlib import AbstractAsyncContextManager
from multiprocessing.connection import Connection
from pathlib import Path

from sidecars import objects
from sidecars.kube import PODS, Client, Event, NotFound, Reflector, load_credentials
from tests.bench.kubelets import START_SECONDS, WORKERS, process
from tests.support import kubelet

BOUND = "spec.nodeName!="
"""The field selector of the pods that have a node."""


def kubelets(kubeconfig: Path) -> AbstractAsyncContextManager[Connection]:
    """The process, while the block runs."""
    return process(_main, kubeconfig)


def _main(kubeconfig: Path, connection: Connection) -> None:
    async def serving() -> None:
        async with Client.connect(load_credentials(kubeconfig), concurrency=WORKERS) as client:
            # A kubelet sees no pod without a node.
            pods: Reflector[objects.Pod] = Reflector(
                client, PODS, type=objects.Pod, field_selector=BOUND
            )
            work: asyncio.Queue[objects.Pod] = asyncio.Queue()
            started: set[str] = set()

            def changed(event: Event[objects.Pod]) -> None:
                pod = event.object
                uid, terminating = pod.metadata.uid, pod.metadata.deletion_timestamp is not None
                if event.kind == "DELETED":
                    started.discard(uid)
                elif pod.spec.node_name and (terminating or uid not in started):
                    started.add(uid)
                    work.put_nowait(pod)

            async def serve() -> None:
                while True:
                    pod = await work.get()
                    meta = pod.metadata
                    with contextlib.suppress(NotFound):
                        if meta.deletion_timestamp is not None:
                            await kubelet.end(client, meta.namespace, meta.name)
                        else:
                            await kubelet.run(client, meta.namespace, meta.name)

            pods.store.subscribe(changed)
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(pods.run())
                for _ in range(WORKERS):
                    tasks.create_task(serve())
                await pods.wait_synced(START_SECONDS)
                connection.send(True)

    asyncio.run(serving())
