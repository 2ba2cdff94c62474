"""The custom resource definitions on a real API server: what it takes, refuses, fills in and
shows.
"""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
import pytest_asyncio
import yaml

from schemas import chart_package, definitions, resource_fields, sources
from sidecars.kube import ApiError, Client, Invalid, Resource, load_credentials
from tests.cluster.commands import run
from tests.cluster.control_plane import ControlPlane
from tests.cluster.tools import tool
from tests.support.custom_resources import (
    CHANGES_REFUSED,
    CHANGES_TAKEN,
    NAMES,
    REFUSED,
    SMALLEST,
    TAKEN,
    Spec,
    resource,
)

CHART = Path(__file__).parents[2] / "charts" / "slurm"
pytestmark = pytest.mark.timeout(30, func_only=True)

RESOURCES = {
    kind: Resource(
        definitions.GROUP, definitions.VERSION, kind, resource_fields.load(kind)["plural"]
    )
    for kind in definitions.KINDS
}


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    plane = ControlPlane.temporary(tmp_path_factory.mktemp("control-plane"))
    kubectl: list[str | Path] = [tool("kubectl"), f"--kubeconfig={plane.kubeconfig}"]
    manifests = definitions.custom_resource_definitions()
    run([*kubectl, "create", "--filename=-"], stdin=yaml.safe_dump_all(manifests), seconds=90)
    names = [f"crd/{manifest['metadata']['name']}" for manifest in manifests]
    run([*kubectl, "wait", "--for=condition=Established", "--timeout=60s", *names], seconds=90)
    yield plane.kubeconfig
    plane.stop()


@pytest_asyncio.fixture
async def client(kubeconfig: Path) -> AsyncIterator[Client]:
    async with Client.connect(load_credentials(kubeconfig)) as client:
        yield client


@pytest.mark.parametrize(("kind", "changes"), TAKEN)
async def test_a_valid_resource_is_accepted(client: Client, kind: str, changes: Spec) -> None:
    wanted = resource(kind, changes)
    stored = await client.create(RESOURCES[kind], wanted)
    assert sources.merged(stored["spec"], wanted["spec"]) == stored["spec"], (
        "fields were changed or lost"
    )


@pytest.mark.parametrize(("kind", "changes", "message"), REFUSED)
async def test_an_invalid_resource_is_refused_with_the_place_and_the_reason(
    client: Client, kind: str, changes: Spec, message: str
) -> None:
    with pytest.raises(Invalid) as refusal:
        await client.create(RESOURCES[kind], resource(kind, changes))
    assert message in str(refusal.value)


async def test_the_examples_that_artifact_hub_shows_are_accepted(client: Client) -> None:
    for example in chart_package.examples():
        metadata = {**example["metadata"], "namespace": "default"}
        await client.create(RESOURCES[example["kind"]], {**example, "metadata": metadata})


@pytest.mark.parametrize(("kind", "good", "bad"), NAMES)
async def test_a_name_that_is_too_long_for_pods_or_services_is_refused(
    client: Client, kind: str, good: str, bad: str
) -> None:
    await client.create(RESOURCES[kind], resource(kind, {}, good))
    with pytest.raises(Invalid, match=r"at most \d+ characters"):
        await client.create(RESOURCES[kind], resource(kind, {}, bad))


@pytest.mark.parametrize(("kind", "before", "after"), CHANGES_TAKEN)
async def test_a_mutable_field_can_be_changed(
    client: Client, kind: str, before: Spec, after: Spec
) -> None:
    stored = await client.create(RESOURCES[kind], resource(kind, before))
    await client.merge_patch(
        RESOURCES[kind], "default", stored["metadata"]["name"], {"spec": after}
    )


@pytest.mark.parametrize(("kind", "before", "after", "message"), CHANGES_REFUSED)
async def test_an_immutable_field_can_not_be_changed(
    client: Client, kind: str, before: Spec, after: Spec, message: str
) -> None:
    stored = await client.create(RESOURCES[kind], resource(kind, before))
    with pytest.raises(ApiError, match=message):
        await client.merge_patch(
            RESOURCES[kind], "default", stored["metadata"]["name"], {"spec": after}
        )


async def test_defaults_are_filled_in(client: Client) -> None:
    changes = {
        "updateStrategy": {"rollingUpdate": {}, "scheduledUpdate": {}},
        "ssh": {"enabled": False},
    }
    stored = await client.create(RESOURCES["NodeSet"], resource("NodeSet", changes))
    assert stored["spec"] == {
        "controllerRef": {"name": "slurm"},
        "replicas": 1,
        "scalingMode": "StatefulSet",
        "ssh": {"enabled": False},
        "updateStrategy": {
            "type": "RollingUpdate",
            "rollingUpdate": {"maxUnavailable": "25%"},
            "scheduledUpdate": {"duration": "30m"},
        },
        "revisionHistoryLimit": 0,
        "ordinalPadding": 0,
        "pinToNode": False,
        "workloadDisruptionProtection": True,
        "nodeRecords": "Delete",
        "pruneSlurmNodeRecords": "Never",
        "oversubscribeNode": False,
        "forceRemoval": False,
    }
    stored = await client.create(RESOURCES["Controller"], resource("Controller", {}))
    want_defaults = {
        "external": False,
        "configUpdate": "Reconfigure",
        "inplaceReconfigure": False,
        "constrainJobs": True,
    }
    assert stored["spec"] == SMALLEST["Controller"] | want_defaults
    stored = await client.create(RESOURCES["Accounting"], resource("Accounting", {}))
    assert (
        stored["spec"]["storageConfig"].items()
        >= {"port": 3306, "database": "slurm_acct_db"}.items()
    )
    stored = await client.create(RESOURCES["Token"], resource("Token", {}))
    assert stored["spec"].items() >= {"lifetime": "15m", "refresh": True}.items()


@pytest.mark.parametrize(
    ("kind", "changes"), [("NodeSet", {"replicas": 1}), ("LoginSet", {"replicas": 1})]
)
async def test_workers_and_login_nodes_scale_through_the_scale_subresource(
    client: Client, kind: str, changes: Spec
) -> None:
    stored = await client.create(RESOURCES[kind], resource(kind, changes))
    name = stored["metadata"]["name"]
    await client.merge_patch(
        RESOURCES[kind], "default", name, {"spec": {"replicas": 4}}, subresource="scale"
    )
    status = {"replicas": 2, "selector": "app.kubernetes.io/instance=x"}
    await client.merge_patch(
        RESOURCES[kind], "default", name, {"status": status}, subresource="status"
    )
    scale = await client.merge_patch(RESOURCES[kind], "default", name, {}, subresource="scale")
    assert scale["spec"] == {"replicas": 4}
    assert scale["status"] == status


@pytest.mark.parametrize("kind", definitions.KINDS)
async def test_a_status_keeps_conditions_by_type(client: Client, kind: str) -> None:
    stored = await client.create(RESOURCES[kind], resource(kind, {}))
    name = stored["metadata"]["name"]
    ready = {
        "type": "Ready",
        "status": "False",
        "observedGeneration": 1,
        "lastTransitionTime": "2030-01-01T00:00:00Z",
        "reason": "ControllerMissing",
        "message": "no Controller slurm exists in namespace default: create it, or change "
        "controllerRef",
    }
    status = {"observedGeneration": 1, "conditions": [ready]}
    patched = await client.merge_patch(
        RESOURCES[kind], "default", name, {"status": status}, subresource="status"
    )
    assert patched["status"] == status
    twice = {"status": {"conditions": [ready, ready]}}
    with pytest.raises(Invalid, match="Duplicate value"):
        await client.merge_patch(RESOURCES[kind], "default", name, twice, subresource="status")


@pytest.mark.parametrize(
    ("kind", "want_columns", "want_wide"),
    [
        ("Controller", "NAME AGE STATUS", "NAME AGE STATUS MESSAGE"),
        ("Accounting", "NAME AGE STATUS", "NAME AGE STATUS MESSAGE"),
        ("RestApi", "NAME REPLICAS READY AGE STATUS", "NAME REPLICAS READY AGE STATUS MESSAGE"),
        ("LoginSet", "NAME REPLICAS READY AGE STATUS", "NAME REPLICAS READY AGE STATUS MESSAGE"),
        (
            "NodeSet",
            "NAME DESIRED READY IDLE ALLOCATED DOWN DRAIN AGE STATUS",
            "NAME DESIRED REPLICAS UPDATED READY IDLE ALLOCATED DOWN DRAIN AGE STATUS MESSAGE",
        ),
        ("Token", "NAME USER IAT EXPIRES AGE STATUS", "NAME USER IAT EXPIRES AGE STATUS MESSAGE"),
    ],
)
def test_kubectl_shows_the_columns(
    kubeconfig: Path, kind: str, want_columns: str, want_wide: str
) -> None:
    kubectl: list[str | Path] = [tool("kubectl"), f"--kubeconfig={kubeconfig}"]
    run([*kubectl, "create", "--filename=-"], stdin=yaml.safe_dump(resource(kind, {})), seconds=60)
    assert run([*kubectl, "get", kind], seconds=60).splitlines()[0].split() == want_columns.split()
    assert (
        run([*kubectl, "get", kind, "--output=wide"], seconds=60).splitlines()[0].split()
        == want_wide.split()
    )


def test_kubectl_finds_the_kinds_by_their_short_names_and_category(kubeconfig: Path) -> None:
    kubectl: list[str | Path] = [tool("kubectl"), f"--kubeconfig={kubeconfig}"]
    # For a kind that is new to it kubectl asks again what is served; for a short name it doesn't.
    run(
        [*kubectl, "create", "--filename=-"],
        stdin=yaml.safe_dump(resource("Token", {}, "mine")),
        seconds=60,
    )
    for kind in definitions.KINDS:
        for name in resource_fields.load(kind)["shortNames"]:
            run([*kubectl, "get", name], seconds=60)
    assert "token.slinky.slurm.net/mine" in run(
        [*kubectl, "get", "slurm", "--output=name"], seconds=60
    )


EXAMPLES = sorted((CHART / "examples").glob("*.yaml"))


@pytest.mark.parametrize("values", EXAMPLES, ids=lambda path: path.stem)
def test_an_api_server_accepts_each_example(kubeconfig: Path, values: Path) -> None:
    namespace = values.stem
    helm: list[str | Path] = [
        tool("helm"),
        "template",
        "slurm",
        CHART,
        f"--values={values}",
        f"--namespace={namespace}",
        "--no-hooks",
    ]
    kubectl: list[str | Path] = [tool("kubectl"), f"--kubeconfig={kubeconfig}", "create"]
    run([*kubectl, "namespace", namespace], seconds=30)
    words = [
        f"--namespace={namespace}",
        "--dry-run=server",
        "--validate=strict",
        "--output=name",
        "--filename=-",
    ]
    created = run([*kubectl, *words], stdin=run(helm, seconds=30), seconds=30)
    assert "controller.slinky.slurm.net/slurm" in created.split()
