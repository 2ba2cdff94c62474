"""The role `doctor`: examines a cluster once, reports faults and their remedies, and changes
nothing.

`doctor gres` compares what the NodeSets ask for with what Kubernetes' nodes offer, what the pods
got, gres.conf, slurm.conf, and what slurmd reported to slurmctld. It runs with the caller's
kubeconfig, or in the operator's pod.
"""

import asyncio
import base64
import sys
import time
from collections.abc import Iterable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from sidecars import objects
from sidecars.commandline import Parser
from sidecars.contract.text import LONGEST_LINE, printable
from sidecars.custom_resources import CONTROLLERS, NODESETS, RESTAPIS
from sidecars.explain import text
from sidecars.explain.core.records import Finding
from sidecars.explain.gres.core import Observed, Worker, examine, pod_limits, pod_trouble, summary
from sidecars.kube import (
    CONFIG_MAPS,
    NODES,
    PODS,
    SECRETS,
    Client,
    Forbidden,
    KubeError,
    Manifest,
    NotFound,
    Resource,
    load_credentials,
)
from sidecars.policy.conditions import find
from sidecars.policy.reasons import Ready
from sidecars.slurm import client as slurm_client
from sidecars.slurm import protocol
from sidecars.slurm.errors import SlurmError
from sidecars.slurm.tokens import TokenSource
from sidecars.workloads import config_maps, restapi
from sidecars.workloads.controller import jwt_key
from sidecars.workloads.resources import Controller, NodeSet, ResourceError, RestApi, read

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from sidecars.slurm.records import Node

_SLURM_SECONDS = 12.0
_REFUSALS = frozenset(
    {
        Ready.FEWER_GPUS_THAN_NODE,
        Ready.INVALID,
        Ready.REFUSED,
        Ready.NAME_CONFLICT,
        Ready.REFERENCE_MISSING,
    }
)
"""Reasons of the condition Ready for which a NodeSet gets no pods."""
_SLURMD = "app.kubernetes.io/name=slurmd"


def main(arguments: Sequence[str]) -> int:
    """Run the role. Return 0 when all is well, 1 when something is wrong, 2 when that couldn't be
    looked at or for a wrong argument.
    """
    parser = Parser(prog="slurm-sidecars doctor", description="Say what is wrong, and what to do.")
    parser.add_argument("what", choices=["gres"], help="gres: GPUs, from Kubernetes to Slurm")
    parser.add_argument("-n", "--namespace", help="of the Slurm clusters to look at; default: all")
    parser.add_argument(
        "--kubeconfig", type=Path, help="default: $KUBECONFIG, else the pod's own account"
    )
    parser.add_argument(
        "--slurmrestd-url", metavar="URL", help="where slurmrestd answers; default: its Service"
    )
    given = parser.parse_args(arguments)

    async def run() -> int:
        async with Client.connect(load_credentials(given.kubeconfig)) as client:
            return await gres(client, given.namespace, given.slurmrestd_url)

    try:
        return asyncio.run(run())
    except (KubeError, OSError) as error:
        remedy = (
            "; name a namespace with --namespace"
            if isinstance(error, Forbidden) and not given.namespace
            else ""
        )
        print(f"doctor: {error}{remedy}", file=sys.stderr)
        return 2


async def gres(client: Client, namespace: str | None, slurmrestd_url: str | None = None) -> int:
    """Print what is found for each Controller; 0 when all is well, 1 when not. Raises KubeError."""
    controllers, _ = await client.list(CONTROLLERS, namespace)
    if not controllers:
        print(f"no Controller in {'namespace ' + namespace if namespace else 'any namespace'}")
        return 1
    wrong = 0
    for manifest in controllers:
        title = f"{manifest['metadata']['namespace']}/{manifest['metadata']['name']}"
        try:
            seen = await _look(client, read(Controller, manifest), slurmrestd_url)
        except ResourceError as error:
            print(f"Slurm cluster {title}\n! Controller: {error}")
            wrong += 1
            continue
        findings = examine(seen)
        print("\n".join(report(title, summary(seen), findings)))
        wrong += len(findings)
    return 1 if wrong else 0


def report(title: str, compared: Iterable[str], findings: Sequence[Finding]) -> list[str]:
    """Return the lines to print of one Slurm cluster, whatever they quote of Slurm."""
    lines = [f"Slurm cluster {title}", *compared]
    lines += [line for it in findings for line in text.finding(it)] or ["all is well"]
    return [printable(line, LONGEST_LINE) for line in lines]


async def _look(client: Client, controller: Controller, slurmrestd_url: str | None) -> Observed:
    namespace = controller.namespace
    manifests, _ = await client.list(NODESETS, namespace)
    nodesets = [
        nodeset
        for nodeset in (read(NodeSet, manifest) for manifest in manifests)
        if nodeset.spec.controller_ref.name == controller.name
    ]
    pods, _ = await client.list(PODS, namespace, label_selector=_SLURMD)
    kube_nodes, _ = await client.list(NODES, type=objects.Node)
    files = await _files(client, controller)
    nodes, silence = await _slurm(client, controller, slurmrestd_url)
    return Observed(
        nodesets=nodesets,
        kube_nodes=kube_nodes,
        workers={
            nodeset.name: [_worker(pod) for pod in pods if _is_of(pod, nodeset)]
            for nodeset in nodesets
        },
        slurm_conf=files.get("slurm.conf"),
        gres_conf=files.get("gres.conf"),
        nodes=nodes,
        silence=silence,
        refusals={
            manifest["metadata"]["name"]: refusal
            for manifest in manifests
            if (refusal := _refusal(manifest)) is not None
        },
        own_gres_conf=await _brings_gres_conf(client, controller),
    )


async def _files(client: Client, controller: Controller) -> dict[str, str]:
    """Return the files with which slurmctld runs, by name."""
    found: dict[str, str] = {}
    for index in range(config_maps.CONFIG_MAPS):
        manifest = await _get(
            client, CONFIG_MAPS, controller.namespace, restapi.config_map(controller, index)
        )
        found |= (manifest or {}).get("data") or {}
    return found


async def _brings_gres_conf(client: Client, controller: Controller) -> bool:
    for reference in controller.spec.config_file_refs or ():
        manifest = await _get(client, CONFIG_MAPS, controller.namespace, reference.name)
        if "gres.conf" in ((manifest or {}).get("data") or {}):
            return True
    return False


async def _slurm(
    client: Client, controller: Controller, slurmrestd_url: str | None
) -> "tuple[tuple[Node, ...] | None, str]":
    """Read Slurm's nodes. Return None, and why, where it can't be asked."""
    try:
        selector = jwt_key(controller)
        secret = await client.get(SECRETS, controller.namespace, selector.name)
        key = base64.b64decode((secret.get("data") or {})[selector.key])
        url = slurmrestd_url or await _url(client, controller)
        async with _connected(url, key) as slurm:
            answer = await slurm.call(protocol.get_nodes(), timeout=_SLURM_SECONDS)
            return (answer.nodes if answer is not None else ()), ""
    except (KubeError, SlurmError, ResourceError, ValueError) as error:
        return None, str(error)
    except KeyError as error:
        return None, f"the Secret of jwtKeyRef has no key {error}"


@asynccontextmanager
async def _connected(url: str, key: bytes) -> "AsyncIterator[slurm_client.Client]":
    slurm = slurm_client.Client(url, TokenSource(lambda: key, clock=time.time))
    try:
        yield slurm
    finally:
        await slurm.close()


async def _url(client: Client, controller: Controller) -> str:
    served_by = [
        found
        for manifest in (await client.list(RESTAPIS, controller.namespace))[0]
        if (found := read(RestApi, manifest)).spec.controller_ref.name == controller.name
    ]
    return restapi.url_for(controller, served_by[0] if served_by else None)


async def _get(client: Client, resource: Resource, namespace: str, name: str) -> Manifest | None:
    try:
        return await client.get(resource, namespace, name)
    except NotFound:
        return None


def _is_of(pod: Manifest, nodeset: NodeSet) -> bool:
    owners = pod["metadata"].get("ownerReferences") or ()
    return any(owner.get("uid") == nodeset.metadata.uid for owner in owners)


def _worker(pod: Manifest) -> Worker:
    spec = pod["spec"]
    kube_node = spec.get("nodeName", "")
    return Worker(
        pod=pod["metadata"]["name"],
        slurm_node=kube_node
        if spec.get("hostNetwork")
        else spec.get("hostname") or pod["metadata"]["name"],
        kube_node=kube_node,
        limits=pod_limits(pod),
        trouble=pod_trouble(pod),
    )


def _refusal(manifest: Manifest) -> str | None:
    """Return why the operator creates no pods for a NodeSet, None if it does."""
    ready = find(manifest, "Ready")
    refused = ready.get("status") == "False" and ready.get("reason") in _REFUSALS
    return str(ready.get("message", "")) if refused else None
