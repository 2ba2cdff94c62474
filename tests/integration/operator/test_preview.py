"""What a preview reports of a change is what happens when it is applied: pods, workloads and the
configuration.
"""

import asyncio
import copy
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from postrender.preview import live
from postrender.preview.report import Preview, preview
from sidecars.custom_resources import CONTROLLERS, LOGINSETS, NODESETS, RESTAPIS
from sidecars.kube import CONFIG_MAPS, DEPLOYMENTS, STATEFUL_SETS, Manifest
from sidecars.workloads import structure
from sidecars.workloads.facts import Site
from tests.cluster.commands import run
from tests.cluster.tools import tool
from tests.support.apiserver import KINDS, WatchedNamespace, until

pytestmark = pytest.mark.timeout(240, func_only=True)

SITE = Site(workloads=structure.load(structure.folder(None)), sidecars_image="sidecars:test")
READ = (CONTROLLERS, RESTAPIS, NODESETS, LOGINSETS)

MARK = [{"name": "MARK", "value": "1"}]


@dataclass(frozen=True)
class Change:
    """A change of the spec of one custom resource."""

    sort: str
    """What it is about."""
    what: str
    kind: str
    patch: dict[str, Any]


def of_pods(**spec: Any) -> dict[str, Any]:
    """A change of the pod template."""
    return {"template": {"spec": spec}}


CHANGES: Sequence[Change] = (
    Change("size", "more workers", "NodeSet", {"replicas": 4}),
    Change("size", "fewer workers", "NodeSet", {"replicas": 2}),
    Change("image", "another image of slurmd", "NodeSet", {"slurmd": {"image": "slurmd:next"}}),
    Change("variables", "a variable for slurmd", "NodeSet", {"slurmd": {"env": MARK}}),
    Change(
        "metadata",
        "a label of the pods",
        "NodeSet",
        {"template": {"metadata": {"labels": {"team": "hpc"}}}},
    ),
    Change(
        "scheduling",
        "a toleration",
        "NodeSet",
        of_pods(tolerations=[{"key": "hpc", "operator": "Exists"}]),
    ),
    Change("nodes", "attributes of the Slurm nodes", "NodeSet", {"extraConf": "Weight=2"}),
    Change("partition", "a partition", "NodeSet", {"partition": {"enabled": True}}),
    Change("protection", "no protection", "NodeSet", {"workloadDisruptionProtection": False}),
    Change("defaults", "a default that is written out", "NodeSet", {"minReadySeconds": 0}),
    Change("strategy", "updates by hand", "NodeSet", {"updateStrategy": {"type": "OnDelete"}}),
    Change("strategy", "an update by hand", "NodeSet", {"slurmd": {"image": "slurmd:later"}}),
    Change(
        "strategy",
        "rolling updates again",
        "NodeSet",
        {"updateStrategy": {"type": "RollingUpdate"}},
    ),
    Change(
        "size",
        "fewer and others at once",
        "NodeSet",
        {"replicas": 1, "slurmd": {"image": "slurmd:last"}},
    ),
    Change(
        "slurm.conf",
        "another scheduler",
        "Controller",
        {"extraConf": "SchedulerParameters=bf_interval=9"},
    ),
    Change(
        "image",
        "another image of slurmctld",
        "Controller",
        {"slurmctld": {"image": "slurmctld:next"}},
    ),
    Change(
        "scheduling",
        "a toleration of slurmctld",
        "Controller",
        of_pods(tolerations=[{"operator": "Exists"}]),
    ),
    Change(
        "restarts",
        "pods that restart for the configuration",
        "Controller",
        {"configUpdate": "Recreate"},
    ),
    Change("size", "more of slurmrestd", "RestApi", {"replicas": 3}),
    Change(
        "variables",
        "a variable for slurmrestd",
        "RestApi",
        {"slurmrestd": {"image": "slurmrestd:test", "env": MARK}},
    ),
    Change("size", "no workers", "NodeSet", {"replicas": 0}),
    Change("size", "workers again", "NodeSet", {"replicas": 3}),
    Change(
        "partition",
        "a limit of the partition",
        "NodeSet",
        {"partition": {"config": "MaxTime=60"}},
    ),
    Change("partition", "a closed partition", "NodeSet", {"partition": {"enabled": False}}),
    Change(
        "resources",
        "resources of slurmd",
        "NodeSet",
        {"slurmd": {"resources": {"requests": {"cpu": "100m"}}}},
    ),
    Change(
        "resources",
        "resources of the log's container",
        "NodeSet",
        {"logfile": {"resources": {"requests": {"memory": "8Mi"}}}},
    ),
    Change(
        "volumes",
        "a volume of slurmd",
        "NodeSet",
        {
            "slurmd": {"volumeMounts": [{"name": "scratch", "mountPath": "/scratch"}]},
            **of_pods(volumes=[{"name": "scratch", "emptyDir": {}}]),
        },
    ),
    Change(
        "metadata",
        "an annotation of the pods",
        "NodeSet",
        {"template": {"metadata": {"annotations": {"team": "hpc"}}}},
    ),
    Change(
        "protection",
        "a longer grace period",
        "NodeSet",
        of_pods(terminationGracePeriodSeconds=7200),
    ),
    Change(
        "scheduling", "pods that share Kubernetes nodes", "NodeSet", {"oversubscribeNode": True}
    ),
    Change("scheduling", "pinned ordinals", "NodeSet", {"pinToNode": True}),
    Change(
        "strategy",
        "two at a time",
        "NodeSet",
        {"updateStrategy": {"rollingUpdate": {"maxUnavailable": 2}}},
    ),
    Change("image", "another image, two at a time", "NodeSet", {"slurmd": {"image": "slurmd:two"}}),
    Change("restarts", "pods that stay again", "Controller", {"configUpdate": "Reconfigure"}),
    Change("slurm.conf", "another KillWait", "Controller", {"extraConf": "KillWait=9"}),
    Change(
        "resources",
        "resources of slurmctld",
        "Controller",
        {"slurmctld": {"resources": {"requests": {"cpu": "50m"}}}},
    ),
    Change(
        "metadata",
        "a label of slurmctld's pod",
        "Controller",
        {"template": {"metadata": {"labels": {"team": "hpc"}}}},
    ),
    Change("size", "fewer of slurmrestd", "RestApi", {"replicas": 1}),
    Change(
        "resources",
        "resources of slurmrestd",
        "RestApi",
        {"slurmrestd": {"resources": {"requests": {"cpu": "50m"}}}},
    ),
    Change(
        "service",
        "an annotation of slurmrestd's Service",
        "RestApi",
        {"service": {"metadata": {"annotations": {"team": "hpc"}}}},
    ),
)
NAMES = {"NodeSet": "slinky", "Controller": "slurm", "RestApi": "slurm"}


@dataclass(frozen=True)
class Snapshot:
    """What a change could do something to."""

    pods: dict[str, str]
    templates: dict[str, Any]
    replicas: dict[str, int]
    files: dict[str, str]


async def snapshot(world: WatchedNamespace) -> Snapshot:
    """As it is now."""
    templates, replicas = {}, {}
    for resource in (STATEFUL_SETS, DEPLOYMENTS):
        items, _ = await world.client.list(resource, world.namespace)
        for it in items:
            templates[it["metadata"]["name"]] = it["spec"]["template"]
            replicas[it["metadata"]["name"]] = it["spec"]["replicas"]
    config_map = await world.get(CONFIG_MAPS, "slurm-config")
    pods = {name: pod["metadata"]["uid"] for name, pod in (await world.pods()).items()}
    return Snapshot(pods, templates, replicas, (config_map or {})["data"])


def merged(value: Any, patch: Any) -> Any:
    """A JSON merge patch."""
    if not isinstance(value, dict) or not isinstance(patch, dict):
        return patch
    return value | {key: merged(value.get(key), it) for key, it in patch.items()}


async def stream(world: WatchedNamespace) -> list[Manifest]:
    """The custom resources as a chart would render them."""
    found = []
    for resource in READ:
        items, _ = await world.client.list(resource, world.namespace)
        for it in items:
            metadata = {"name": it["metadata"]["name"], "namespace": world.namespace}
            head = {
                "apiVersion": "slinky.slurm.net/v1beta1",
                "kind": resource.kind,
                "metadata": metadata,
            }
            found.append(head | {"spec": copy.deepcopy(it["spec"])})
    return found


def previewed(world: WatchedNamespace, kubeconfig: Path, after: Sequence[Manifest]) -> Preview:
    """The preview, with kubectl for what Kubernetes has and the simulator for what slurmctld
    has.
    """

    def kubectl(words: Sequence[str], stdin: str) -> str:
        if words[0] == "exec":
            what = "nodes" if "scontrol" in words else "jobs"
            return world.slurm.handle("GET", f"/slurm/v0.0.45/{what}/", b"").body.decode()
        shown = run(
            [tool("kubectl"), f"--kubeconfig={kubeconfig}", *words], stdin=stdin, seconds=60
        )
        # The client of this test sets what Helm would set.
        return re.sub(r'"manager": "[^"]+"', '"manager": "helm"', shown)

    before, state = live.read(after, world.namespace, "", kubectl)
    return preview(before, after, SITE, state, world.namespace)


def observed(resource: Manifest) -> int | None:
    """The generation that the condition Ready is about."""
    conditions = (resource.get("status") or {}).get("conditions") or ()
    return next((it.get("observedGeneration") for it in conditions if it["type"] == "Ready"), None)


async def until_settled(world: WatchedNamespace, kind: str, what: str = "") -> None:
    """Wait until the operator has seen the changed resource, and the workers are what their NodeSet
    asks for.
    """

    async def settled() -> bool:
        changed = await world.get(KINDS[kind], NAMES[kind])
        nodeset = await world.get(NODESETS, "slinky")
        assert changed is not None
        assert nodeset is not None
        status, pods = nodeset.get("status") or {}, await world.pods()
        wanted, hash_now = nodeset["spec"]["replicas"], status.get("nodeSetHash")
        seen = all(observed(it) == it["metadata"]["generation"] for it in (changed, nodeset))
        updated = nodeset["spec"].get("updateStrategy", {}).get("type") == "OnDelete" or all(
            pod["metadata"]["labels"]["controller-revision-hash"] == hash_now
            for pod in pods.values()
        )
        ready = bool(status.get("readyReplicas") == wanted == len(pods))
        return (
            seen
            and updated
            and ready
            and not any(it["metadata"].get("deletionTimestamp") for it in pods.values())
        )

    await until(f"the workers to be what is asked for {what}", settled, 60)


def happened(before: Snapshot, after: Snapshot) -> tuple[dict[str, str], set[str], bool]:
    """What became of the workers, which workloads got another template, and whether slurm.conf
    changed.
    """
    workers = {name: "create" for name in after.pods if name not in before.pods}
    workers |= {name: "delete" for name in before.pods if name not in after.pods}
    workers |= {
        name: "replace" for name, uid in before.pods.items() if after.pods.get(name, uid) != uid
    }
    restarted = {name for name, it in after.templates.items() if before.templates[name] != it}
    return workers, restarted, before.files != after.files


def message(of: Preview) -> tuple[dict[str, str], set[str], bool]:
    """The same from the preview. Workers that keep their pods until they are deleted by hand don't
    count.
    """
    by_hand = [it for it in of.workers if any("OnDelete" in note for note in it.notes)]
    workers = {
        it.pod: it.action for found in of.workers if found not in by_hand for it in found.workers
    }
    return workers, {it.name for it in of.pods if it.action == "restart"}, bool(of.configured)


async def test_what_a_preview_shows_happens_for_forty_changes_of_twelve_kinds(
    world: WatchedNamespace, kubeconfig: Path
) -> None:
    await world.nodeset(replicas=2)
    await until_settled(world, "NodeSet")
    await until("slurmrestd", lambda: world.get(DEPLOYMENTS, "slurm-restapi"))
    assert len(CHANGES) == 40
    assert len({it.sort for it in CHANGES}) >= 12
    for change in CHANGES:
        what, kind, patch = change.what, change.kind, change.patch
        after = await stream(world)
        changed = next(it for it in after if it["kind"] == kind)
        changed["spec"] = merged(changed["spec"], patch)
        found = await asyncio.to_thread(previewed, world, kubeconfig, after)
        before = await snapshot(world)
        await world.client.merge_patch(KINDS[kind], world.namespace, NAMES[kind], {"spec": patch})
        await until_settled(world, kind, f"after {what}")
        expected = message(found)

        async def as_reported(before: Snapshot = before, expected: Any = expected) -> bool:
            return bool(happened(before, await snapshot(world)) == expected)

        try:
            await until(f"what the preview reports of {what}", as_reported)
        except AssertionError as error:
            raise AssertionError(
                (what, expected, happened(before, await snapshot(world)))
            ) from error


async def test_the_nodes_that_drain_first_and_the_jobs_that_end_are_those_of_the_preview(
    world: WatchedNamespace, kubeconfig: Path
) -> None:
    await world.nodeset(
        replicas=3, updateStrategy={"type": "RollingUpdate", "rollingUpdate": {"maxUnavailable": 1}}
    )
    await until_settled(world, "NodeSet")
    job = world.slurm.job_start("slinky-2")
    after = await stream(world)
    changed = next(it for it in after if it["kind"] == "NodeSet")
    changed["spec"] = merged(changed["spec"], {"slurmd": {"image": "slurmd:next"}})
    [workers] = (await asyncio.to_thread(previewed, world, kubeconfig, after)).workers
    first = [it.slurm_node for it in workers.workers if it.first]
    assert [it.slurm_node for it in workers.workers if job in {one.job_id for one in it.jobs}] == [
        "slinky-2"
    ]
    patch = {"spec": {"slurmd": {"image": "slurmd:next"}}}
    await world.client.merge_patch(NODESETS, world.namespace, "slinky", patch)

    async def drained() -> bool:
        reply = json.loads(world.slurm.handle("GET", "/slurm/v0.0.45/nodes/", b"").body)
        return [it["name"] for it in reply["nodes"] if "DRAIN" in it["state"]] == first

    await until("the node to be drained that the preview names", drained, 30)
    world.slurm.job_end(job)
    await until_settled(world, "NodeSet")
