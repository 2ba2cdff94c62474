"""What the post-renderer's `expand` renders is what the operator applies, for the same values."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from postrender.expand import objects
from postrender.expand.cluster import Cluster, clusters, is_custom
from sidecars.custom_resources import ACCOUNTINGS
from sidecars.kube import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    PODS,
    SECRETS,
    STATEFUL_SETS,
    Client,
    Manifest,
    NotFound,
    load_credentials,
)
from sidecars.operator.runtime.apply import APPLIED, APPLIED_HASH, stamped
from sidecars.simulate import SlurmModel, serve
from sidecars.workloads import names, structure
from sidecars.workloads.facts import Site
from tests.cluster.commands import run
from tests.cluster.tools import tool
from tests.integration.operator.conftest import NUMBERS
from tests.integration.operator.test_services import until_reason, update_status
from tests.support.apiserver import KINDS, WatchedNamespace, namespace, until

pytestmark = pytest.mark.timeout(120, func_only=True)

ROOT = Path(__file__).resolve().parents[3]
CHART = ROOT / "charts" / "slurm"
SITE = Site(workloads=structure.load(structure.folder(None)), sidecars_image="sidecars:test")

LOCAL = yaml.safe_load((CHART / "ci" / "local-values.yaml").read_text(encoding="utf-8"))
EVERYTHING: dict[str, Any] = {
    "accounting": {"enabled": True, "mariadb": {"enabled": True}, "extraConf": "DebugLevel=debug"},
    "controller": {
        "extraConfMap": {"SchedulerParameters": ["bf_interval=9"], "GresTypes": "gpu"},
        "service": {"spec": {"type": "NodePort"}},
        "metadata": {"labels": {"team": "hpc"}, "annotations": {"note": "kept"}},
        "podSpec": {"tolerations": [{"key": "hpc", "operator": "Exists"}]},
    },
    "configFiles": {"gres.conf": "AutoDetect=nvidia\n"},
    "prologScripts": {"10-prolog.sh": "#!/bin/sh\nexit 0\n"},
    "epilogSlurmctldScripts": {"90-epilog.sh": "#!/bin/sh\nexit 0\n"},
    "restapi": {"replicas": 2, "slurmrestd": {"resources": {"limits": {"memory": "1Gi"}}}},
    "loginsets": {"slinky": {"replicas": 2, "extraSshdConfig": "LogLevel DEBUG"}},
    "nodesets": {
        "slinky": {"replicas": 1, "extraConfMap": {"Weight": 2}, "podSpec": {"hostname": "cpu-"}},
        "gpu": {
            "replicas": 2,
            "gpu": {"enabled": True, "count": 4, "type": "h100"},
            "slurmd": {"resources": {"limits": {"cpu": 8, "memory": "16Gi"}}},
            "partition": {"enabled": True, "configMap": {"MaxTime": "60"}},
            "volumeClaimTemplates": [
                {
                    "metadata": {"name": "scratch"},
                    "spec": {
                        "accessModes": ["ReadWriteOnce"],
                        "resources": {"requests": {"storage": "1Gi"}},
                    },
                }
            ],
        },
    },
    "partitions": {"all": {"enabled": True}},
}
ALL = yaml.safe_load(
    (ROOT / "tests" / "configurations" / "all-values" / "slurm.yaml").read_text(encoding="utf-8")
)
"""The values file that sets every key of the chart."""

ONE_PORT = {"service": {"nodePort": None}}
APART: dict[str, Any] = {
    # The names that the test looks for, in a namespace of its own.
    "nameOverride": None,
    "fullnameOverride": None,
    "namespaceOverride": None,
    # Only one Service of the Kubernetes cluster can have it.
    # test_monitoring.py has the kind of the Prometheus Operator.
    "controller": ONE_PORT | {"metrics": {"serviceMonitor": {"enabled": False}}},
    "restapi": ONE_PORT,
    "accounting": ONE_PORT,
    "loginsetDefaults": ONE_PORT,
    "loginsets": {"full": ONE_PORT},
    # What the operator does in the course of time: rotating a key, and setting the number of
    # workers.
    "slurmKey": {"nextSecretRef": None},
    "nodesetDefaults": {"autoscaling": None, "powerSaving": {"enabled": False}},
    "nodesets": {"full": {"autoscaling": None, "powerSaving": {"enabled": False}}},
    "exporter": {"enabled": False},
    # What the values refer to.
    "extraObjects": [
        *ALL["extraObjects"],
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "mariadb"},
            "stringData": {"password": "secret"},
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "mariadb-ca"},
            "stringData": {"ca.crt": "a certificate"},
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "slurmdbd-client"},
            "stringData": {"tls.crt": "a certificate", "tls.key": "a key"},
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": "full-jwks"},
            "data": {"jwks.json": "{}"},
        },
        {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"name": "site-users"},
            "stringData": {"users.yaml": "users:\n  alice: {uid: 10001}\n"},
        },
        *(
            {
                "apiVersion": "v1",
                "kind": "ConfigMap",
                "metadata": {"name": name},
                "data": {f"90-{name}.sh": "#!/bin/sh\n"},
            }
            for name in (
                "more-prolog",
                "more-epilog",
                "more-prolog-slurmctld",
                "more-epilog-slurmctld",
            )
        ),
    ],
    # Its Secret has users once a directory has answered.
    "ldap": {"uri": None, "base": None, "bindDn": None, "passwordSecretRef": None},
}
"""What a test of one moment can't have of all values."""


def over(values: Any, more: Any) -> Any:
    """Values over values, as Helm lays them; null unsets."""
    if not isinstance(values, dict) or not isinstance(more, dict):
        return more
    return values | {key: over(values.get(key), it) for key, it in more.items()}


CASES = {"defaults": {}, "local": LOCAL, "everything": EVERYTHING, "all values": over(ALL, APART)}


def rendered(values: dict[str, Any], where: str) -> list[Manifest]:
    """The custom resources of the chart and what they refer to, which never passed an API
    server.
    """
    command: list[str | Path] = [
        tool("helm"),
        "template",
        "slurm",
        CHART,
        f"--namespace={where}",
        "--skip-tests",
    ]
    output = run([*command, "--values=-"], stdin=yaml.safe_dump(values), seconds=60)
    items = [item for item in yaml.safe_load_all(output) if item]
    return [item for item in items if is_custom(item) or item["kind"] in {"Secret", "ConfigMap"}]


async def as_expanded(world: WatchedNamespace, documents: Sequence[Manifest]) -> Cluster:
    """The stream with what the cluster alone knows: contents of Secrets, and uids, which owner
    references contain.
    """
    found = []
    for document in documents:
        if is_custom(document):
            live = await world.get(KINDS[document["kind"]], document["metadata"]["name"])
            assert live is not None
            found.append(
                document | {"metadata": document["metadata"] | {"uid": live["metadata"]["uid"]}}
            )
        elif document["kind"] != "Secret":
            found.append(document)
    secrets, _ = await world.client.list(SECRETS, world.namespace)
    return clusters([*found, *secrets], world.namespace)[world.namespace]


async def differences(world: WatchedNamespace, wanted: Sequence[Manifest]) -> list[str]:
    """The expanded objects that the operator has not applied exactly so."""
    found = []
    for rendered_one in wanted:
        manifest = rendered_one
        kind, name = manifest["kind"], manifest["metadata"]["name"]
        resource = APPLIED.get(kind)
        if resource is None:
            continue
        try:
            live = await world.client.get(resource, world.namespace, name)
        except NotFound:
            found.append(f"{kind} {name} doesn't exist")
            continue
        annotations = live["metadata"].get("annotations", {})
        if ran := annotations.get(names.RAN_VERSION):
            # The operator notes on the object itself which version of Slurm has run there.
            metadata = manifest["metadata"]
            noted = {**metadata.get("annotations", {}), names.RAN_VERSION: ran}
            manifest = {**manifest, "metadata": {**metadata, "annotations": noted}}
        digest = stamped(manifest)["metadata"]["annotations"][APPLIED_HASH]
        if annotations.get(APPLIED_HASH) != digest:
            found.append(f"{kind} {name}: the operator has applied another one")
    return found


def everything(cluster: Cluster) -> list[Manifest]:
    """What the operator applies for the custom resources, except for pods."""
    controller = cluster.controllers["slurm"]
    configured = objects.configuration(cluster, controller, SITE, frozenset())
    return [
        *objects.of_controller(cluster, controller, configured),
        *(
            it
            for accounting in cluster.accountings.values()
            for it in objects.of_accounting(cluster, accounting, SITE)
        ),
        *(
            it
            for restapi in cluster.restapis.values()
            for it in objects.of_restapi(cluster, restapi, configured)
        ),
        *(
            it
            for loginset in cluster.loginsets.values()
            for it in objects.of_loginset(cluster, loginset, configured)
        ),
        *(
            it
            for nodeset in cluster.nodesets.values()
            for it in objects.of_nodeset(cluster, nodeset, configured)
        ),
    ]


async def until_applied(world: WatchedNamespace, documents: Sequence[Manifest]) -> list[Manifest]:
    """Wait until the operator has applied all of what expand renders; this."""
    wanted: list[Manifest] = []
    problems: list[str] = []

    async def applied() -> bool:
        nonlocal wanted, problems
        cluster = await as_expanded(world, documents)
        wanted = everything(cluster)
        problems = await differences(world, wanted)
        return not problems

    try:
        await until("the operator to have applied all of it", applied, 60)
    except AssertionError as error:
        custom = [
            await world.get(KINDS[it["kind"]], it["metadata"]["name"])
            for it in documents
            if is_custom(it)
        ]
        reasons = [
            f"{it['kind']} {it['metadata']['name']}: {condition['message']}"
            for it in custom
            if it is not None
            for condition in (it.get("status") or {}).get("conditions", ())
            if condition["type"] == "Ready" and condition["status"] != "True"
        ]
        raise AssertionError((problems, reasons)) from error
    return wanted


def create_beside(kubeconfig: Path, where: str) -> None:
    """What all values refer to and the chart doesn't create: priority classes, the RuntimeClass of
    pods with GPUs, and the claim of slurmctld's state.
    """
    names_of = (ALL["priorityClass"]["name"], ALL["controller"]["podSpec"]["priorityClassName"])
    head = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "value": 1}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": ALL["controller"]["persistence"]["existingClaim"]},
        "spec": {"accessModes": ["ReadWriteMany"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    runtime_class = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": ALL["nodesets"]["full"]["gpu"]["runtimeClassName"]},
        "handler": "runc",
    }
    classes = (head | {"metadata": {"name": it}} for it in names_of)
    text = yaml.safe_dump_all([*classes, runtime_class, claim])
    run(
        [tool("kubectl"), f"--kubeconfig={kubeconfig}", f"--namespace={where}", "apply", "-f", "-"],
        stdin=text,
    )


@pytest.mark.parametrize("case", sorted(CASES))
async def test_the_operator_applies_exactly_what_expand_renders(
    kubeconfig: Path, case: str
) -> None:
    slurm, where = SlurmModel(), f"expanded-{next(NUMBERS)}"
    documents = rendered(CASES[case], where)
    async with (
        Client.connect(load_credentials(kubeconfig)) as client,
        namespace(client, where) as name,
        serve(slurm) as url,
    ):
        world = WatchedNamespace(client, name, slurm, url)
        create_beside(kubeconfig, name)
        of_kind = {**KINDS, "Secret": SECRETS, "ConfigMap": CONFIG_MAPS}
        for document in documents:
            metadata = {**document["metadata"], "namespace": name}
            await client.apply(
                of_kind[document["kind"]], {**document, "metadata": metadata}, field_manager="helm"
            )
        async with world.operator():
            if "accounting" in CASES[case]:
                await until("slurmdbd", lambda: world.get(STATEFUL_SETS, "slurm-accounting"), 30)
                await update_status(world, STATEFUL_SETS, "slurm-accounting")
                await until_reason(world, ACCOUNTINGS, "slurm", "Ready")
            for name_of in (it["metadata"]["name"] for it in documents if it["kind"] == "LoginSet"):
                await until("login nodes", partial(world.get, DEPLOYMENTS, name_of), 60)

            wanted = await until_applied(world, documents)
            revisions, _ = await client.list(CONTROLLER_REVISIONS, name)
            by_name = {it["metadata"]["name"]: it["data"] for it in revisions}
            asked = {
                it["metadata"]["name"]: it["data"]
                for it in wanted
                if it["kind"] == "ControllerRevision"
            }
            assert by_name == asked
            pods = [it for it in wanted if it["kind"] == "Pod"]
            nodesets = [it["spec"] for it in documents if it["kind"] == "NodeSet"]
            assert len(pods) == sum(
                it.get("replicas", 1)
                for it in nodesets
                if it.get("scalingMode", "StatefulSet") == "StatefulSet"
            )
            for pod in pods:
                live = await until("the pod", partial(find_pod, world, pod["metadata"]["name"]), 30)
                # With the API server's own words and defaults. The scheduler has added the node.
                metadata = pod["metadata"] | {"name": f"dry-{pod['metadata']['name']}"}
                dry = await client.apply(
                    PODS, pod | {"metadata": metadata}, field_manager="test", dry_run=True
                )
                scheduled = {key: it for key, it in live["spec"].items() if key != "nodeName"}
                assert dry["spec"] == scheduled
                assert pod["metadata"]["labels"] == live["metadata"]["labels"]
                assert (
                    pod["metadata"]["annotations"].items()
                    <= live["metadata"]["annotations"].items()
                )


async def find_pod(world: WatchedNamespace, name: str) -> Manifest | None:
    return (await world.pods()).get(name)
