"""The configuration gate as an administrator sees it: conditions, events, nudges, and the label of
the primary.
"""

import base64
import contextlib
import json
import ssl
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from sidecars.contract.signature import Verifier
from sidecars.contract.status import StartGate, StartGatePhase, Status, encode
from sidecars.custom_resources import CONTROLLERS, NODESETS
from sidecars.kube import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    NODES,
    SECRETS,
    STATEFUL_SETS,
    Client,
    Invalid,
    NotFound,
    load_credentials,
)
from sidecars.operator.controller.pods import NUDGE
from sidecars.operator.runtime.real_world import RealWorld
from sidecars.policy.failover import ACTIVE
from sidecars.simulate import SlurmModel, serve
from tests.cluster.control_plane import ControlPlane
from tests.integration.operator.test_control_plane import create_claim
from tests.support.apiserver import KEYS, RUNNING, WatchedNamespace, custom, namespace, until
from tests.support.configurations import BadConfiguration, bad

pytestmark = pytest.mark.timeout(120, func_only=True)


class Sidecar:
    """Stands in for `reconfigure`: takes what is published, or refuses it for `culprit`."""

    def __init__(self) -> None:
        self.world: GatedNamespace
        self.culprit = ""
        self.running = ""
        self.asked = 0
        self.away = False
        self.primary = "10.0.0.1"
        self.pods = {
            f"10.0.0.{ordinal + 1}": Verifier(f"slurm-controller-{ordinal}") for ordinal in range(3)
        }
        self.start_gate: StartGate | None = None
        self.ended: dict[str, Any] = {}
        """More of the refusal, for daemons that ended."""
        self.watching = False

    async def fetch(self, address: str, signed: str) -> Mapping[str, Any]:
        """GET /status."""
        self.asked += 1
        if self.away:
            raise OSError(f"{address}: connection refused")
        secret = await self.world.client.get(SECRETS, self.world.namespace, "slurm-auth-jwt")
        assert secret is not None
        assert self.pods[address].accepts("GET", "/status", signed, b"j" * 1024, self.now())
        sha256 = await self.world.published()
        if not self.culprit:
            self.running = sha256
        refused = {
            "sha256": sha256,
            "stage": "DryRun",
            "file": "slurm.conf",
            "line": 4,
            "reason": self.culprit,
            "final": True,
            "since": self.now(),
            **self.ended,
        }
        return {
            "candidate": sha256,
            "accepted": self.running or None,
            "running": self.running or None,
            "rejected": refused if self.culprit else None,
            "restart": None,
            "problem": None,
            "watching": self.watching,
            "startGate": encode(Status(start_gate=self.start_gate))["startGate"],
        }

    async def ready(self, address: str) -> bool | None:
        """GET /readyz."""
        return address == self.primary

    @staticmethod
    def now() -> float:
        """The time."""
        return RealWorld().wall_clock()


class GatedNamespace(WatchedNamespace):
    """A world with a pod of slurmctld."""

    async def published(self) -> str:
        """The digest in the manifest."""
        found = await until("the ConfigMap", lambda: self.get(CONFIG_MAPS, "slurm-config"))
        return str(json.loads(found["data"]["manifest.json"])["sha256"])

    async def slurmctld(self, ordinal: int = 0, **status: Any) -> None:
        """A pod whose `reconfigure` runs."""
        address = f"10.0.0.{ordinal + 1}"
        sidecar = {"name": "reconfigure", "image": "", "imageID": "", **RUNNING}
        status |= {
            "podIP": address,
            "podIPs": [{"ip": address}],
            "initContainerStatuses": [sidecar],
        }
        await super().slurmctld(ordinal, **status)

    async def backups(self) -> None:
        """The Controller with a standby, and its two pods."""
        await self.client.delete(CONTROLLERS, self.namespace, "slurm")

        async def gone() -> bool:
            return await self.get(CONTROLLERS, "slurm") is None

        await until("the Controller without backups to be gone", gone)
        await create_claim(self, "shared", "ReadWriteMany")
        persistence = {"enabled": True, "existingClaim": "shared"}
        spec = {
            **KEYS,
            "slurmctld": {"image": "x"},
            "ha": {"enabled": True, "backups": 1},
            "persistence": persistence,
        }
        await self.create(
            {
                "apiVersion": "slinky.slurm.net/v1beta1",
                "kind": "Controller",
                "metadata": {"name": "slurm"},
                "spec": spec,
            }
        )
        await self.slurmctld(0)
        await self.slurmctld(1)

    async def until_condition(self, kind: str, status: str, reason: str) -> str:
        """Wait for a condition of the Controller; its message."""

        async def look() -> str | None:
            found = await self.condition(CONTROLLERS, "slurm", kind)
            return (
                str(found["message"])
                if (found.get("status"), found.get("reason")) == (status, reason)
                else None
            )

        return await until(f"{kind}={status} {reason}", look)

    async def change(self, **spec: Any) -> None:
        """Change the Controller."""
        await self.client.merge_patch(CONTROLLERS, self.namespace, "slurm", {"spec": spec})


@contextlib.asynccontextmanager
async def gate(kubeconfig: Path, name: str) -> AsyncIterator[tuple[GatedNamespace, Sidecar]]:
    """A world whose operator asks the stand-in."""
    slurm, sidecar = SlurmModel(), Sidecar()
    async with (
        Client.connect(load_credentials(kubeconfig)) as client,
        namespace(client, name) as where,
        serve(slurm) as url,
    ):
        world = GatedNamespace(client, where, slurm, url, kubelet_works=False)
        sidecar.world = world
        await world.cluster()
        async with world.operator(RealWorld(fetch_status=sidecar.fetch, ask_ready=sidecar.ready)):
            yield world, sidecar


async def test_an_accepted_and_running_configuration_is_reported_and_then_no_pod_is_asked(
    kubeconfig: Path,
) -> None:
    async with gate(kubeconfig, "gate-good") as (world, _):
        await world.until_condition("ConfigurationRunning", "Unknown", "NoPod")
        await world.slurmctld()
        await world.until_condition("ConfigurationRunning", "True", "Running")
        await world.until_condition("ConfigurationAccepted", "True", "DryRunPassed")
        before = await world.get(STATEFUL_SETS, "slurm-controller")
        old = (await world.slurmctlds())["slurm-controller-0"]["metadata"]["annotations"][NUDGE]
        await world.change(extraConf="SlurmctldTimeout=60")

        async def nudged() -> bool:
            pod = (await world.slurmctlds())["slurm-controller-0"]
            return bool(pod["metadata"]["annotations"][NUDGE] != old)

        await until("the pod to be nudged", nudged)
        sha256 = await world.published()

        async def runs() -> bool:
            reported = await world.condition(CONTROLLERS, "slurm", "ConfigurationRunning")
            return reported["status"] == "True" and sha256[:12] in reported["message"]

        await until("the change to run", runs)
        after = await world.get(STATEFUL_SETS, "slurm-controller")
        assert before is not None
        assert after is not None
        assert before["metadata"]["generation"] == after["metadata"]["generation"]

        async def received() -> bool:
            events, _ = await world.client.list(EVENTS, world.namespace)
            return {"ConfigurationAccepted", "ConfigurationRunning"} <= {
                event["reason"] for event in events
            }

        await until("events", received)


async def test_a_refused_configuration_is_reported_with_its_line_and_origin(
    kubeconfig: Path,
) -> None:
    async with gate(kubeconfig, "gate-bad") as (world, sidecar):
        await world.slurmctld()
        await world.until_condition("ConfigurationRunning", "True", "Running")
        sidecar.culprit = "no such key Foo"
        await world.change(extraConf="KillWait=1")
        message = await world.until_condition("ConfigurationAccepted", "False", "DryRunFailed")
        assert message.startswith("slurm.conf line 4 (")
        assert "no such key Foo" in message
        await world.until_condition("ConfigurationRunning", "False", "DifferentConfiguration")


@contextlib.asynccontextmanager
async def kubelet(
    plane: ControlPlane, world: WatchedNamespace, logs: Mapping[str, str]
) -> AsyncIterator[str]:
    """A Kubernetes node whose kubelet serves these logs, by container; its name."""

    async def answer(request: web.BaseRequest) -> web.Response:
        container = request.path.rpartition("/")[2]
        return web.Response(text=logs[container]) if container in logs else web.Response(status=404)

    certificate, key = plane.authority.issue("kubelet", "system:node:kubelet", hosts=[ADDRESS])
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificate, key)
    runner = web.ServerRunner(web.Server(answer))
    await runner.setup()
    await web.TCPSite(runner, ADDRESS, 0, ssl_context=context).start()
    name = f"{world.namespace}-node"
    status = {
        "addresses": [{"type": "InternalIP", "address": ADDRESS}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": runner.addresses[0][1]}},
    }
    await world.client.create(
        NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}}
    )
    await world.client.merge_patch(NODES, None, name, {"status": status}, subresource="status")
    try:
        yield name
    finally:
        await world.client.delete(NODES, None, name)
        await runner.cleanup()


ADDRESS = "127.0.0.1"
SPOOL = "/etc/hostname/spool"
"""No folder can be created there, and no rule of the operator knows it."""


async def test_slurmds_that_ended_on_a_configuration_are_quoted_and_no_other_reader_gets_it(
    kubeconfig: Path, plane: ControlPlane
) -> None:
    logs = {
        "slurmd": f"slurmd: fatal: mkdir({SPOOL}): Not a directory\nslurmd ended with status 1\n"
    }
    async with (
        gate(kubeconfig, "gate-slurmd") as (world, sidecar),
        kubelet(plane, world, logs) as kube_node,
    ):
        await world.slurmctld()
        await world.until_condition("ConfigurationRunning", "True", "Running")
        await world.nodeset(replicas=1)

        async def worker() -> str | None:
            return next(iter(await world.pods()), None)

        pod = await until("a worker", worker)
        await world.bind(pod, kube_node)
        node = (await world.pods())[pod]["spec"]["hostname"]

        async def accepted() -> str:
            found = await world.get(CONFIG_MAPS, "slurm-config-accepted")
            return str(found["data"]["slurm.conf"]) if found is not None else ""

        async def has_worker() -> bool:
            return "NodeSet=slinky" in await accepted()

        await until("the configuration with the NodeSet", has_worker)
        sidecar.watching = True
        await world.change(extraConf=f"KillWait=33\nSlurmdSpoolDir={SPOOL}")

        async def runs() -> bool:
            found = await world.get(CONFIG_MAPS, "slurm-config")
            if found is None or SPOOL not in found["data"]["slurm.conf"]:
                return False
            running = await world.condition(CONTROLLERS, "slurm", "ConfigurationRunning")
            return (
                running["status"] == "True" and (await world.published())[:12] in running["message"]
            )

        await until("the change to run", runs)
        assert SPOOL not in await accepted()
        sidecar.watching, sidecar.culprit = False, "slurmd ended on 1 worker of 1"
        sidecar.ended = {
            "stage": "Slurmd",
            "file": "",
            "line": None,
            "daemon": "slurmd",
            "nodes": [node],
        }

        async def quoted() -> str | None:
            found = await world.condition(CONTROLLERS, "slurm", "ConfigurationAccepted")
            message = str(found["message"])
            return message if found["reason"] == "SlurmdEnded" and "logged" in message else None

        message = await until("slurmd to be quoted", quoted)
        assert message.startswith("slurm.conf line ")
        assert message.endswith(
            " (spec.extraConf line 2): slurmd ended on 1 worker of 1; "
            f'slurmd logged "fatal: mkdir({SPOOL}): Not a directory"; '
            "slurmctld continues with the former configuration"
        )
        assert SPOOL not in await accepted()
        assert "slurmd logged" in await world.until_condition(
            "Ready", "False", "ConfigurationRefused"
        )


async def test_slurmrestd_gets_a_configuration_when_slurmctld_runs_with_it_and_never_a_refused_one(
    kubeconfig: Path,
) -> None:
    async with gate(kubeconfig, "gate-slurmrestd") as (world, sidecar):

        async def slurmrestd() -> int:
            found = await until("slurmrestd", lambda: world.get(DEPLOYMENTS, "slurm-restapi"))
            return int(found["metadata"]["generation"])

        async def reads(line: str) -> bool:
            found = await world.get(CONFIG_MAPS, "slurm-config-accepted")
            return found is not None and line in found["data"]["slurm.conf"].splitlines()

        await world.slurmctld()
        await world.until_condition("ConfigurationRunning", "True", "Running")
        assert await slurmrestd() == 1
        sidecar.culprit = "cannot find topology plugin"
        await world.change(extraConf="TopologyPlugin=topology/nope")
        message = await world.until_condition("Ready", "False", "ConfigurationRefused")
        assert "cannot find topology plugin" in message
        assert not await reads("TopologyPlugin=topology/nope")
        assert await slurmrestd() == 1
        sidecar.culprit = ""
        await world.change(extraConf="TopologyPlugin=topology/flat")
        await until("the accepted configuration", lambda: reads("TopologyPlugin=topology/flat"))

        async def restarted() -> bool:
            return await slurmrestd() == 2

        await until("slurmrestd to be restarted", restarted)


REFUSED_BY_THE_API_SERVER = {
    "cluster-name-that-injects": "spec.clusterName",
    "cluster-name-too-long": "the name of a Controller must have at most",
    "file-out-of-the-folder": "a valid config key",
    "hostname-that-injects": "spec.template.spec.hostname",
    "partition-with-a-line-break": "spec.partition.config",
}
"""Before the operator sees them; and words of the refusal."""


def named(each: BadConfiguration) -> bool:
    """Whether the names of a Controller are what is bad, so that it needs one of its own."""
    return "name" in each.input or "clusterName" in each.input


def controller_of(each: BadConfiguration) -> str:
    """The Controller that gets a bad configuration."""
    return str(each.input.get("name", "another" if named(each) else "slurm"))


async def published(world: WatchedNamespace, controller: str) -> str:
    """All files that were published for a Controller."""
    items, _ = await world.client.list(CONFIG_MAPS, world.namespace)
    ours = [it for it in items if it["metadata"]["name"].startswith(f"{controller}-config")]
    return "".join(text for it in ours for text in (it.get("data") or {}).values())


async def refused(world: WatchedNamespace, each: BadConfiguration) -> str:
    """Ask for a bad configuration, and for a good one again; what was reported against the bad
    one.
    """
    spec: dict[str, Any] = {
        "extraConf": f"# {each.name}\n{each.input.get('extraConf', '')}",
        "configFileRefs": [],
    }
    for index, files in enumerate(each.config_maps.values()):
        name = list(each.config_maps)[index]
        contents: dict[str, dict[str, str]] = {"data": {}, "binaryData": {}}
        for file, content in files.items():
            if isinstance(content, str):
                contents["data"][file] = content
            else:
                contents["binaryData"][file] = base64.b64encode(content).decode()
        metadata = {"name": name, "namespace": world.namespace}
        await world.client.create(
            CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, **contents}
        )
        spec["configFileRefs"].append({"name": name})
    for name, nodeset in each.input.get("nodesets", {}).items():
        await world.nodeset(name, **{"replicas": 0, **nodeset})
    controller = controller_of(each)
    if named(each):
        names = {
            "slurmctld": {"image": "slurmctld:26.05"},
            "clusterName": each.input.get("clusterName", ""),
        }
        await world.create(custom("Controller", controller, {**KEYS, **names}))
    else:
        image = {"image": f"slurmctld:{each.input.get('version', '26.05')}"}
        patch = {"spec": {**spec, "slurmctld": image}}
        await world.client.merge_patch(CONTROLLERS, world.namespace, controller, patch)

    message = each.message.replace(" slurm/", f" {world.namespace}/")

    async def received() -> str | None:
        for kind in ("ConfigurationAccepted", "Ready"):
            found = await world.condition(CONTROLLERS, controller, kind)
            if (found.get("status"), found.get("reason")) == (
                "False",
                "Invalid",
            ) and message in found["message"]:
                return str(found["message"])
        return None

    return await until(f"{each.name} to be refused with {message!r}", received)


async def as_before(world: WatchedNamespace, each: BadConfiguration) -> None:
    """Take a bad configuration back."""
    patch = {"spec": {"extraConf": "", "configFileRefs": []}}
    await world.client.merge_patch(CONTROLLERS, world.namespace, "slurm", patch)
    for name in each.config_maps:
        with contextlib.suppress(NotFound):
            await world.client.delete(CONFIG_MAPS, world.namespace, name)
    for name in each.input.get("nodesets", {}):
        with contextlib.suppress(NotFound):
            await world.client.delete(NODESETS, world.namespace, name)

    async def gone() -> bool:
        items, _ = await world.client.list(NODESETS, world.namespace)
        return not items

    await until(f"the NodeSets of {each.name} to be gone", gone)


@pytest.mark.timeout(150, func_only=True)
async def test_no_bad_configuration_is_published_and_each_is_reported_with_its_origin(
    world: WatchedNamespace,
) -> None:
    """Those that need no slurmctld to be found: tests/slurm/test_bad_configurations.py has the
    others.
    """
    world.slurm.node_register("first")
    lint = [it for it in bad() if it.found_by == "lint"]
    assert {it.name for it in lint} > set(REFUSED_BY_THE_API_SERVER)
    for each in lint:
        if (field := REFUSED_BY_THE_API_SERVER.get(each.name)) is not None:
            with pytest.raises(Invalid, match=field):
                await refused(world, each)
        else:
            await refused(world, each)
        if named(each):
            # Nothing at all is published for a Controller of its own.
            assert await published(world, controller_of(each)) == "", each.name
        assert f"# {each.name}" not in await published(world, "slurm")
        await as_before(world, each)
    # The same look finds what is good.
    await world.client.merge_patch(
        CONTROLLERS, world.namespace, "slurm", {"spec": {"extraConf": "# sound"}}
    )

    async def sound() -> bool:
        return "# sound" in await published(world, "slurm")

    await until("a good configuration to be published", sound)


async def test_a_warning_about_the_configuration_is_reported_and_delays_nothing(
    kubeconfig: Path,
) -> None:
    async with gate(kubeconfig, "gate-warning") as (world, _):
        await world.slurmctld()
        await world.change(extraConf="SlurmdTimeout=60\nSlurmdTimeout=60")
        message = await world.until_condition("ConfigurationRunning", "True", "Running")

        async def received() -> bool:
            found = await world.condition(CONTROLLERS, "slurm", "ConfigurationAccepted")
            return (
                found.get("status") == "True" and "SlurmdTimeout is set already" in found["message"]
            )

        await until(f"the warning, beside {message!r}", received)


async def test_a_partition_of_an_unknown_node_is_published_when_the_node_registers(
    world: WatchedNamespace,
) -> None:
    world.slurm.node_register("first")

    async def reachable() -> bool:
        return (await world.condition(CONTROLLERS, "slurm", "SlurmReachable")).get(
            "status"
        ) == "True"

    await until("Slurm to answer", reachable)
    patch = {"spec": {"extraConf": "PartitionName=far Nodes=outside"}}
    await world.client.merge_patch(CONTROLLERS, world.namespace, "slurm", patch)

    async def received() -> bool:
        found = await world.condition(CONTROLLERS, "slurm", "ConfigurationAccepted")
        return found.get("reason") == "Invalid" and "names outside" in found["message"]

    await until("the absent node to be named", received)
    world.slurm.node_register("outside")

    async def published() -> bool:
        found = await world.get(CONFIG_MAPS, "slurm-config")
        return found is not None and "Nodes=outside" in found["data"]["slurm.conf"]

    await until("the partition to be published", published)


async def test_a_sidecar_that_does_not_answer_leaves_the_conditions_unknown_and_delays_nothing(
    kubeconfig: Path,
) -> None:
    async with gate(kubeconfig, "gate-away") as (world, sidecar):
        sidecar.away = True
        await world.slurmctld()

        async def explained() -> bool:
            # Until the first request has failed, another cause is named.
            return "connection refused" in await world.until_condition(
                "ConfigurationRunning", "Unknown", "NoAnswer"
            )

        await until("the condition to name the cause", explained)
        await world.change(extraConf="KillWait=9")

        async def written() -> bool:
            found = await world.get(CONFIG_MAPS, "slurm-config")
            return found is not None and "KillWait=9" in found["data"]["slurm.conf"]

        await until("the change to be published", written)
        sidecar.away = False
        await world.until_condition("ConfigurationRunning", "True", "Running")


async def test_with_backups_the_label_follows_the_primary(kubeconfig: Path) -> None:
    async with gate(kubeconfig, "gate-ha") as (world, sidecar):
        await world.backups()

        async def labelled() -> list[str]:
            pods = await world.slurmctlds()
            return sorted(
                name
                for name, pod in pods.items()
                if pod["metadata"]["labels"].get(ACTIVE) == "true"
            )

        async def first() -> bool:
            return await labelled() == ["slurm-controller-0"]

        async def second() -> bool:
            return await labelled() == ["slurm-controller-1"]

        await until("the label on the first", first)
        sidecar.primary = "10.0.0.2"
        await until("the label on the second", second)


async def test_with_backups_a_slurmctld_that_bypassed_its_start_gate_is_in_a_condition_and_an_event(
    kubeconfig: Path,
) -> None:
    async with gate(kubeconfig, "gate-start") as (world, sidecar):
        sidecar.start_gate = StartGate(StartGatePhase.PASSED)
        await world.backups()
        await world.until_condition("StartGated", "True", "Passed")
        sidecar.start_gate = StartGate(StartGatePhase.NOT_ASKED)
        # The stand-in reports it for both pods, and either may be asked first.
        assert "slurmctld in slurm-controller-" in await world.until_condition(
            "StartGated", "False", "NotAsked"
        )

        async def received() -> bool:
            events, _ = await world.client.list(EVENTS, world.namespace)
            return "StartNotGated" in {event["reason"] for event in events}

        await until("the event", received)
