"""The clients that benchmark `kube` compares: `python -m tests.bench.watchers CLIENT URL PODS`
prints a Spent as JSON.

Each lists all pods and watches until every one has changed. What it costs to import the client
doesn't count.
"""

import asyncio
import contextlib
import importlib
import json
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec

from sidecars.kube import PODS, Client, Credentials, Event, Reflector
from sidecars.kube.client import PAGE
from sidecars.objects import Pod

PODS_PATH = PODS.path()
SECONDS = 240.0


class Spent(NamedTuple):
    """What a client used: seconds of CPU for the list and for the watch, MiB that its RSS and peak
    RSS grew by.
    """

    list_cpu: float
    watch_cpu: float
    rss: float
    peak_rss: float


class Meter:
    """Measures this process from its making on."""

    def __init__(self) -> None:
        self._before = memory()
        self._start = time.process_time()
        self._listed = self._start

    def listed(self) -> None:
        """The list has been read."""
        self._listed = time.process_time()

    def ended(self) -> Spent:
        """Every pod has changed."""
        end = time.process_time()
        (rss, peak), (rss_before, peak_before) = memory(), self._before
        return Spent(
            self._listed - self._start, end - self._listed, rss - rss_before, peak - peak_before
        )


async def reflector(url: str, pods: int) -> Spent:
    """This product's."""
    meter = Meter()
    async with Client.connect(Credentials(server=url, source="benchmark")) as client:
        watched: Reflector[Pod] = Reflector(client, PODS, type=Pod)
        watched.store.add_index("node", lambda pod: [pod.spec.node_name])
        changed: set[str] = set()
        everything = asyncio.Event()

        def handle(event: Event[Pod]) -> None:
            if event.kind == "MODIFIED":
                changed.add(event.object.metadata.name)
                if len(changed) == pods:
                    everything.set()

        watched.store.subscribe(handle)
        task = asyncio.create_task(watched.run())
        await watched.wait_synced(SECONDS)
        meter.listed()
        async with asyncio.timeout(SECONDS):
            await everything.wait()
        spent = meter.ended()
        _check(len(watched.store), pods)
        task.cancel()
        await asyncio.wait([task])
        return spent


class _Meta(msgspec.Struct, rename="camel"):
    resource_version: str
    continue_: str = msgspec.field(default="", name="continue")


class _List(msgspec.Struct):
    metadata: _Meta
    items: list[Pod]


class _Line(msgspec.Struct):
    type: str
    object: Pod


async def bare(url: str, pods: int) -> Spent:
    """The least that can be done with aiohttp and the same records: a dictionary, no recovery from
    anything.
    """
    decode_list, decode_line = (
        msgspec.json.Decoder(_List).decode,
        msgspec.json.Decoder(_Line).decode,
    )
    store: dict[tuple[str, str], Pod] = {}
    meter = Meter()
    async with aiohttp.ClientSession(
        headers={"Accept-Encoding": "identity"}, read_bufsize=2**18
    ) as session:
        token = "0"
        while token:
            async with session.get(f"{url}{PODS_PATH}?limit={PAGE}&continue={token}") as response:
                page = decode_list(await response.read())
            for pod in page.items:
                store[pod.metadata.namespace, pod.metadata.name] = pod
            token = page.metadata.continue_
        meter.listed()
        changed, rest = 0, b""
        async with session.get(
            f"{url}{PODS_PATH}?watch=1&resourceVersion={page.metadata.resource_version}"
        ) as stream:
            async for chunk in stream.content.iter_any():
                *lines, rest = (rest + chunk).split(b"\n")
                for line in lines:
                    pod = decode_line(line).object
                    store[pod.metadata.namespace, pod.metadata.name] = pod
                changed += len(lines)
                if changed == pods:
                    break
            spent = meter.ended()
            stream.close()
    _check(len(store), pods)
    return spent


def official(url: str, pods: int) -> Spent:
    """The `kubernetes` package's informer."""
    # By name, because type checkers would read its thousand generated modules.
    api: Any = importlib.import_module("kubernetes.client")
    informers: Any = importlib.import_module("kubernetes.informer")
    list_pods = api.CoreV1Api(
        api.ApiClient(api.Configuration(host=url))
    ).list_pod_for_all_namespaces
    informer = informers.SharedInformer(list_pods)
    listed, everything = threading.Event(), threading.Event()
    counts = {"ADDED": 0, "MODIFIED": 0}

    def count(kind: str, reached: threading.Event) -> Callable[[object], None]:
        def handle(_: object) -> None:
            counts[kind] += 1
            if counts[kind] == pods:
                meter.listed() if kind == "ADDED" else None
                reached.set()

        return handle

    informer.add_event_handler("ADDED", count("ADDED", listed))
    informer.add_event_handler("MODIFIED", count("MODIFIED", everything))
    meter = Meter()
    informer.start()
    if not (listed.wait(SECONDS) and everything.wait(SECONDS)):
        raise TimeoutError(f"the informer has seen only {counts} within {SECONDS:g} s")
    spent = meter.ended()
    _check(len(informer.cache.list_keys()), pods)
    return spent


def _check(found: int, pods: int) -> None:
    if found != pods:
        raise RuntimeError(f"{found} pods in the cache instead of {pods}")


def memory() -> tuple[float, float]:
    """MiB of RSS and of its peak."""
    status = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return int(status["VmRSS"].split()[0]) / 1024, int(status["VmHWM"].split()[0]) / 1024


def main(client: str, url: str, pods: int) -> None:
    """Run one client and print what it spent."""
    with contextlib.redirect_stdout(sys.stderr):
        if client == "official":
            spent = official(url, pods)
        else:
            spent = asyncio.run({"reflector": reflector, "bare": bare}[client](url, pods))
    print(json.dumps(spent._asdict()))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
