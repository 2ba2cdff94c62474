"""The chart `slurm` in another version that changes nothing else: no pod of any kind is
replaced.
"""

import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from sidecars.custom_resources import ACCOUNTINGS, LOGINSETS, NODESETS, TOKENS
from sidecars.kube import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    EVENTS,
    PERSISTENT_VOLUME_CLAIMS,
    SECRETS,
    SERVICES,
    STATEFUL_SETS,
    Client,
    Manifest,
    Resource,
    load_credentials,
)
from sidecars.simulate import SlurmModel, serve
from tests.cluster.commands import run
from tests.cluster.tools import tool
from tests.integration.operator.test_services import until_reason, update_status
from tests.support.apiserver import KINDS, WatchedNamespace, namespace, until

pytestmark = pytest.mark.timeout(90, func_only=True)

CHART = Path(__file__).resolve().parents[3] / "charts" / "slurm"
VALUES = {
    # The default tag is appVersion, which is Slurm's version: another one is another Slurm.
    "images": {"tag": "26.05"},
    "accounting": {"enabled": True, "mariadb": {"enabled": True}},
    "tokens": {"api": {"username": "root"}},
}
WORKLOADS = {
    "StatefulSet/slurm-accounting",
    "StatefulSet/slurm-controller",
    "StatefulSet/slurm-mariadb",
    "Deployment/slurm-login-slinky",
    "Deployment/slurm-restapi",
}
NETWORK_POLICIES = Resource("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies")
RESOURCES = {
    **KINDS,
    **{
        resource.kind: resource
        for resource in (
            CONFIG_MAPS,
            PERSISTENT_VOLUME_CLAIMS,
            SECRETS,
            SERVICES,
            STATEFUL_SETS,
            NETWORK_POLICIES,
        )
    },
}


def rendered(folder: Path, version: str, where: str) -> list[Manifest]:
    """The chart's objects, as a release of this version has them."""
    chart = folder / version
    shutil.copytree(CHART, chart)
    about = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
    about |= {"version": version, "appVersion": version}
    (chart / "Chart.yaml").write_text(yaml.safe_dump(about), encoding="utf-8")
    values = [f"--values={CHART / 'ci' / 'local-values.yaml'}", "--values=-"]
    command: list[str | Path] = [
        tool("helm"),
        "template",
        "slurm",
        chart,
        f"--namespace={where}",
        "--skip-tests",
        *values,
    ]
    output = run(command, stdin=yaml.safe_dump(VALUES), seconds=60)
    return [item for item in yaml.safe_load_all(output) if item]


async def install(world: WatchedNamespace, manifests: list[Manifest], without: str = "") -> None:
    """As Helm does."""
    for manifest in manifests:
        if manifest["kind"] != without:
            metadata = {**manifest["metadata"], "namespace": world.namespace}
            await world.client.apply(
                RESOURCES[manifest["kind"]],
                {**manifest, "metadata": metadata},
                field_manager="helm",
            )


async def pods_are_made_of(world: WatchedNamespace) -> dict[str, Any]:
    """Templates and their generations by workload, revisions of the workers, and pods."""
    found: dict[str, Any] = {}
    for resource in (STATEFUL_SETS, DEPLOYMENTS):
        items, _ = await world.client.list(resource, world.namespace)
        for it in items:
            found[f"{resource.kind}/{it['metadata']['name']}"] = (
                it["metadata"]["generation"],
                it["spec"]["template"],
            )
    items, _ = await world.client.list(CONTROLLER_REVISIONS, world.namespace)
    found |= {f"ControllerRevision/{it['metadata']['name']}": it["data"] for it in items}
    return found | {
        f"Pod/{name}": pod["metadata"]["uid"] for name, pod in (await world.pods()).items()
    }


async def until_logins_are_scaled(world: WatchedNamespace, replicas: int) -> None:
    """Wait until the Deployment of the login nodes reports it."""

    async def scaled() -> bool:
        found = await world.get(DEPLOYMENTS, "slurm-login-slinky")
        return found is not None and found["spec"]["replicas"] == replicas

    await until(f"the login nodes to be scaled to {replicas}", scaled)


async def test_another_version_of_the_chart_alone_replaces_no_pod_of_any_kind(
    kubeconfig: Path, tmp_path: Path
) -> None:
    slurm, where = SlurmModel(), "chart-versions"
    async with (
        Client.connect(load_credentials(kubeconfig)) as client,
        namespace(client, where) as name,
        serve(slurm) as url,
    ):
        world = WatchedNamespace(client, name, slurm, url)
        first, second = rendered(tmp_path, "1.0.0", where), rendered(tmp_path, "1.0.1", where)
        await install(world, first)
        async with world.operator():
            await until("slurmdbd", lambda: world.get(STATEFUL_SETS, "slurm-accounting"))
            await update_status(world, STATEFUL_SETS, "slurm-accounting")
            await until_reason(world, ACCOUNTINGS, "slurm", "Ready")
            await until_reason(world, TOKENS, "slurm-token-api", "Issued")
            await world.until_ready(2, "slurm-worker-slinky")

            # Host keys take their time.
            for workload in sorted(WORKLOADS):

                async def made(workload: str = workload) -> bool:
                    return workload in await pods_are_made_of(world)

                await until(f"{workload} to be created", made, 30)
            before = await pods_are_made_of(world)

            # Helm keeps the generated Secrets, which it looks up.
            await install(world, second, without="Secret")
            # What is done after it shows that the labels have been seen.
            for resource, kind in (
                (NODESETS, "slurm-worker-slinky"),
                (LOGINSETS, "slurm-login-slinky"),
            ):
                labels = ((await world.get(resource, kind)) or {})["metadata"]["labels"]
                assert labels["helm.sh/chart"] == "slurm-1.0.1"
                await client.merge_patch(resource, name, kind, {"spec": {"replicas": 3}})
            await world.until_ready(3, "slurm-worker-slinky")
            await until_logins_are_scaled(world, 3)
            after = await pods_are_made_of(world)
            login = "Deployment/slurm-login-slinky"
            assert after[login][1] == before[login][1]
            assert {it: after[it] for it in before if it != login} == {
                it: before[it] for it in before if it != login
            }
            items, _ = await client.list(EVENTS, name)
            assert not [it for it in items if it["reason"] == "Restarting"]
        # Nor does another version of the operator's chart, whose image the sidecars have.
        async with world.operator(image="sidecars:next"):
            await client.merge_patch(
                NODESETS, name, "slurm-worker-slinky", {"spec": {"replicas": 2}}
            )
            await client.merge_patch(
                LOGINSETS, name, "slurm-login-slinky", {"spec": {"replicas": 1}}
            )
            await world.until_ready(2, "slurm-worker-slinky")
            await until_logins_are_scaled(world, 1)
            last = await pods_are_made_of(world)
            assert last[login][1] == before[login][1]
            assert {it: last[it] for it in before if it != login} == {
                it: before[it] for it in before if it != login
            }
