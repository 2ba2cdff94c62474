"""A live installation of SchedMD's operator that this operator takes over, and the way back, on a
real API server.
"""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from sidecars.contract.status import Status, encode
from sidecars.custom_resources import (
    ACCOUNTINGS,
    CONTROLLERS,
    IN_USE,
    LOGINSETS,
    NODESETS,
    RESTAPIS,
    WORKERS_TERMINATE_FIRST,
)
from sidecars.kube import (
    CONFIG_MAPS,
    CONTROLLER_REVISIONS,
    DEPLOYMENTS,
    POD_DISRUPTION_BUDGETS,
    PODS,
    SECRETS,
    SERVICES,
    STATEFUL_SETS,
    ApiError,
    Client,
    Invalid,
    Manifest,
    NotFound,
    Resource,
    load_credentials,
)
from sidecars.operator.runtime.real_world import RealWorld
from sidecars.simulate import SlurmModel, serve
from sidecars.uninstall.main import release
from tests.integration.operator.conftest import NUMBERS
from tests.integration.operator.test_services import update_status
from tests.support import former
from tests.support.apiserver import (
    KEYS,
    RUNNING,
    WatchedNamespace,
    custom,
    namespace,
    secret,
    until,
)

pytestmark = pytest.mark.timeout(90, func_only=True)

PARTITION = {"enabled": True, "config": "State=UP Default=YES MaxTime=UNLIMITED"}
STORAGE = {
    "host": "mariadb",
    "username": "slurm",
    "passwordKeyRef": {"name": "mariadb-password", "key": "password"},
}
SLURMDBD, SLURMCTLD = (STATEFUL_SETS, "slurm-accounting"), (STATEFUL_SETS, "slurm-controller")
CLIENTS = ((DEPLOYMENTS, "slurm-restapi"), (DEPLOYMENTS, "login"))
WORKLOADS = (SLURMDBD, SLURMCTLD, *CLIENTS)
SHARED = ((SERVICES, "slurm-workers-slurm"), (POD_DISRUPTION_BUDGETS, "slurm-workers-pdb-slurm"))
APPLIED = (
    *WORKLOADS,
    *SHARED,
    *(
        (SERVICES, name)
        for name in ("slurm-accounting", "slurm-controller", "slurm-restapi", "login")
    ),
    *((CONFIG_MAPS, name) for name in ("slurm-config", "login-ssh-config")),
)


@dataclass
class Installation:
    """A cluster that SchedMD's operator runs, with two workers, of which `slinky-0` has a job."""

    world: WatchedNamespace
    former: Client
    uids: dict[str, str] = field(default_factory=dict)
    collects: asyncio.Event = field(default_factory=asyncio.Event)
    """While it is set, the garbage collector works."""

    async def custom_resources(self) -> None:
        """What a user creates, and the Secrets for it."""
        world = self.world
        await world.create(secret("sssd", "sssd.conf", b"[sssd]"))
        await world.create(secret("login-ssh-host-keys", "ssh_host_rsa_key", b"key"))
        await world.create(secret("mariadb-password", "password", b"password"))
        await world.create(
            custom(
                "Accounting",
                "slurm",
                {**KEYS, "storageConfig": STORAGE, "slurmdbd": {"image": "slurmdbd:test"}},
            )
        )
        accounting = {"spec": {"accountingRef": {"name": "slurm"}}}
        await world.client.merge_patch(CONTROLLERS, world.namespace, "slurm", accounting)
        await world.nodeset(partition=PARTITION)
        login: dict[str, Any] = {
            "controllerRef": {"name": "slurm"},
            "sssdConfRef": {"name": "sssd", "key": "sssd.conf"},
        }
        login |= {"login": {"image": "login:test"}, "service": {"spec": {"type": "LoadBalancer"}}}
        await world.create(custom("LoginSet", "login", login))

    async def install(self, version: str) -> None:
        """Everything as after SchedMD's operator."""
        world = self.world
        await self.custom_resources()
        for key, resource, name in (
            ("controller", CONTROLLERS, "slurm"),
            ("accounting", ACCOUNTINGS, "slurm"),
            ("restapi", RESTAPIS, "slurm"),
            ("loginset", LOGINSETS, "login"),
            ("nodeset", NODESETS, "slinky"),
        ):
            self.uids[key] = ((await world.get(resource, name)) or {})["metadata"]["uid"]
        for item in self.objects(version):
            await former.sync(self.former, item)
        status = {"replicas": 1, "readyReplicas": 1, "updatedReplicas": 1, "observedGeneration": 1}
        for resource, name in WORKLOADS:
            await world.client.merge_patch(
                resource, world.namespace, name, {"status": status}, subresource="status"
            )
        labels = {"app.kubernetes.io/name": "slurmctld", "app.kubernetes.io/instance": "slurm"}
        await self.pod(
            "slurm-controller-0",
            labels,
            {"name": "slurmctld", "image": "slurmctld:test"},
            STATEFUL_SETS,
        )
        for ordinal in range(2):
            found = former.objects("nodeset", version, **self.named, ordinal=str(ordinal))
            [worker] = [item for item in found if item["kind"] == "Pod"]
            await self.former.create(PODS, worker)
            name = worker["metadata"]["name"]
            await world.bind(name, "default-node")
            await self.runs(name, "slurmd")
            # Without what this operator's pods register.
            world.slurm.node_register(name)

    async def runs(self, pod: str, container: str) -> None:
        """What the kubelet would report."""
        status = {
            "phase": "Running",
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
            ],
            "containerStatuses": [{"name": container, "image": "", "imageID": "", **RUNNING}],
        }
        await self.world.client.merge_patch(
            PODS, self.world.namespace, pod, {"status": status}, subresource="status"
        )

    @property
    def named(self) -> dict[str, str]:
        return {"namespace": self.world.namespace, **self.uids}

    def objects(self, version: str) -> list[Manifest]:
        """What it applies again and again."""
        found = [
            it
            for kind in ("accounting", "controller", "restapi", "loginset", "nodeset")
            for it in former.objects(kind, version, **self.named)
        ]
        return [it for it in found if it["kind"] != "Pod"]

    async def pod(
        self, name: str, labels: Mapping[str, str], container: Manifest, owner: Resource
    ) -> None:
        """A running pod of slurmctld's StatefulSet."""
        world = self.world
        stateful_set = (await world.get(owner, "slurm-controller")) or {}
        owners = [
            {
                "apiVersion": owner.api_version,
                "kind": owner.kind,
                "name": "slurm-controller",
                "uid": stateful_set["metadata"]["uid"],
                "controller": True,
            }
        ]
        metadata = {
            "name": name,
            "namespace": world.namespace,
            "labels": labels,
            "ownerReferences": owners,
        }
        spec = {"hostname": name, "containers": [container]}
        await world.client.create(
            PODS, {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        )
        await self.runs(name, container["name"])

    async def garbage_collector(self) -> None:
        """Removes owner references for `--cascade=orphan`, as Kubernetes' does."""
        world = self.world
        while True:
            await self.collects.wait()
            for resource, dependents in (
                (STATEFUL_SETS, (PODS,)),
                (NODESETS, (PODS, CONTROLLER_REVISIONS, CONFIG_MAPS)),
            ):
                items, _ = await world.client.list(resource, world.namespace)
                for item in items:
                    metadata = item["metadata"]
                    finalizers = metadata.get("finalizers") or []
                    if not metadata.get("deletionTimestamp") or "orphan" not in finalizers:
                        continue
                    with contextlib.suppress(ApiError):
                        for kind in dependents:
                            await self._leave(kind, metadata["uid"])
                        # Its finalizer is removed last, and by the version that was seen.
                        rest = [it for it in finalizers if it != "orphan"]
                        patch = {
                            "finalizers": rest or None,
                            "resourceVersion": metadata["resourceVersion"],
                        }
                        await world.client.merge_patch(
                            resource, world.namespace, metadata["name"], {"metadata": patch}
                        )
            await asyncio.sleep(0.05)

    async def _leave(self, kind: Resource, uid: str) -> None:
        world = self.world
        for item in (await world.client.list(kind, world.namespace))[0]:
            owners = item["metadata"].get("ownerReferences") or []
            if any(owner["uid"] == uid for owner in owners):
                rest = [owner for owner in owners if owner["uid"] != uid]
                patch = {
                    "metadata": {"ownerReferences": rest or None, "uid": item["metadata"]["uid"]}
                }
                await world.client.merge_patch(
                    kind, world.namespace, item["metadata"]["name"], patch
                )

    async def live(self, of: Iterable[tuple[Resource, str]] = APPLIED) -> dict[str, Manifest]:
        """The objects by kind and name."""
        found = {
            f"{resource.kind} {name}": await self.world.get(resource, name) for resource, name in of
        }
        return {name: item for name, item in found.items() if item is not None}

    async def until_ours(self, resource: Resource, name: str) -> Manifest:
        """Wait until this operator has applied the object."""

        async def ours() -> Manifest | None:
            found = await self.world.get(resource, name)
            labels = ((found or {}).get("metadata") or {}).get("labels") or {}
            labelled = (
                found is not None and labels.get("app.kubernetes.io/managed-by") == "slurm-operator"
            )
            return found if labelled and found and former.MANAGER not in managers(found) else None

        return await until(f"{resource.kind} {name} to be this operator's", ours)

    @contextlib.asynccontextmanager
    async def operator(self) -> AsyncIterator[None]:
        """This operator, which finds that slurmctld's sidecar accepts what is published."""
        async with self.world.operator(around=RealWorld(fetch_status=self._fetch_status)):
            yield

    async def _fetch_status(self, *_: str) -> Mapping[str, Any]:
        found = (await self.world.get(CONFIG_MAPS, "slurm-config")) or {}
        sha256 = json.loads(found["data"]["manifest.json"])["sha256"]
        return encode(Status(sha256, accepted=sha256, running=sha256))

    async def complete(self) -> None:
        """Wait until everything is this operator's; the controllers of Kubernetes roll out what it
        applies.
        """
        world = self.world
        for resource, name in (SLURMDBD, SLURMCTLD):
            await self.until_ours(resource, name)
            await update_status(world, resource, name)
        with contextlib.suppress(NotFound):
            await world.client.delete(
                PODS, world.namespace, "slurm-controller-0", grace_period_seconds=0
            )
        sidecar = {"name": "reconfigure", "image": "", "imageID": "", **RUNNING}
        await world.slurmctld(
            podIP="10.0.0.1", podIPs=[{"ip": "10.0.0.1"}], initContainerStatuses=[sidecar]
        )
        for resource, name in CLIENTS:
            await self.until_ours(resource, name)
            await update_status(world, resource, name)
        for resource, name in APPLIED:
            await self.until_ours(resource, name)


@pytest_asyncio.fixture
async def installation(kubeconfig: Path) -> AsyncIterator[Installation]:
    """A namespace of SchedMD's operator, empty but for the keys, the Controller and the RestApi."""
    slurm, credentials = SlurmModel(), load_credentials(kubeconfig)
    async with (
        Client.connect(credentials) as client,
        former.connect(credentials) as manager,
        namespace(client, f"former-{next(NUMBERS)}") as name,
        serve(slurm) as url,
    ):
        world = WatchedNamespace(client, name, slurm, url)
        await world.cluster()
        made = Installation(world, manager)
        made.collects.set()
        collector = asyncio.create_task(made.garbage_collector())
        try:
            yield made
        finally:
            collector.cancel()


def shape(item: Manifest, where: str) -> Any:
    """What counts of an object: all that a manager can set, whatever its namespace."""
    metadata = {key: item["metadata"].get(key) for key in ("labels", "annotations")}
    owners = [
        (owner["kind"], owner["name"]) for owner in item["metadata"].get("ownerReferences") or ()
    ]
    spec = {**item.get("spec", {})}
    for assigned in ("clusterIP", "clusterIPs", "healthCheckNodePort"):
        spec.pop(assigned, None)
    for port in spec.get("ports", ()):
        port.pop("nodePort", None)
    text = json.dumps([metadata, owners, spec, sorted(item.get("data", {}))]).replace(
        where, "NAMESPACE"
    )
    # What is hashed has the namespace in it.
    return json.loads(re.sub(r'(-hash": )"[^"]*"', r'\1""', text))


def managers(item: Manifest) -> set[str]:
    return {
        entry["manager"]
        for entry in item["metadata"]["managedFields"]
        if not entry.get("subresource")
    }


@pytest.mark.parametrize("version", ["1.2", "1.3"])
async def test_what_is_taken_over_becomes_what_a_new_installation_has(
    installation: Installation, kubeconfig: Path, version: str
) -> None:
    world = installation.world
    await installation.install(version)
    before = await installation.live()
    async with installation.operator():
        await installation.complete()
        after = await installation.live()
    assert {name for name, item in after.items() if former.MANAGER in managers(item)} == set()
    for name in ("Service slurm-controller", "Service login"):
        assert after[name]["spec"]["clusterIP"] == before[name]["spec"]["clusterIP"]
    assert (
        after["Service login"]["spec"]["ports"][0]["nodePort"]
        == before["Service login"]["spec"]["ports"][0]["nodePort"]
    )
    # The same custom resources where nothing was before.
    async with (
        Client.connect(load_credentials(kubeconfig)) as client,
        namespace(client, f"new-{next(NUMBERS)}") as name,
    ):
        fresh = Installation(WatchedNamespace(client, name, world.slurm, world.url), client)
        await fresh.world.cluster()
        await fresh.custom_resources()
        async with fresh.operator():
            await fresh.complete()
            created = await fresh.live()
    assert set(after) == set(created)
    for it in after:
        assert shape(after[it], world.namespace) == shape(created[it], name), it


async def test_fields_of_kubectl_and_of_an_autoscaler_stay(installation: Installation) -> None:
    world = installation.world
    await installation.install("1.3")
    team = {"metadata": {"annotations": {"team": "physics"}}, "spec": {"revisionHistoryLimit": 3}}
    await world.client.merge_patch(
        DEPLOYMENTS, world.namespace, "login", team, field_manager="kubectl-edit"
    )
    async with installation.operator():
        await installation.complete()
        found = (await world.get(DEPLOYMENTS, "login")) or {}
    assert found["metadata"]["annotations"]["team"] == "physics"
    assert "kubectl-edit" in managers(found)
    mounts = found["spec"]["template"]["spec"]["containers"][0]["volumeMounts"]
    assert "/root/.ssh/authorized_keys" not in {mount["mountPath"] for mount in mounts}


async def test_nothing_changes_before_slurmctld_is_taken_over_whose_pod_and_claim_stay(
    installation: Installation,
) -> None:
    world = installation.world
    await installation.install("1.2")
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "statesave-slurm-controller-0", "namespace": world.namespace},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "4Gi"}}},
    }
    claims = Resource("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims")
    await world.client.create(claims, claim)
    untouched = ((CONFIG_MAPS, "slurm-config"), (CONFIG_MAPS, "login-ssh-config"), *CLIENTS)
    before, pods = (
        await installation.live(untouched),
        {**await world.pods(), **await world.slurmctlds()},
    )
    old = (await world.get(STATEFUL_SETS, "slurm-controller")) or {}
    installation.collects.clear()
    async with installation.operator():

        async def is_waiting(reason: str, words: str) -> bool:
            found = await world.condition(CONTROLLERS, "slurm")
            return found.get("reason") == reason and words in str(found.get("message"))

        await installation.until_ours(*SLURMDBD)
        # After two minutes it would be `TakingOver`.
        await until(
            "slurmctld to wait for slurmdbd",
            lambda: is_waiting("WaitingForAccounting", "isn't ready"),
        )
        assert (await installation.live([SLURMCTLD]))["StatefulSet slurm-controller"] == old
        await update_status(world, *SLURMDBD)

        async def leaves() -> bool:
            found = (await world.get(STATEFUL_SETS, "slurm-controller")) or {}
            return bool(found["metadata"].get("finalizers") == ["orphan"])

        await until("the StatefulSet to be deleted without its pod", leaves)
        for resource, name in ((NODESETS, "slinky"), (LOGINSETS, "login")):

            async def waits(resource: Resource = resource, name: str = name) -> bool:
                return (await world.condition(resource, name)).get("reason") == "TakingOver"

            await until(f"{resource.kind} {name} to wait", waits)

        await until(
            "the Controller to name the field", lambda: is_waiting("TakingOver", "serviceName")
        )
        assert await installation.live(untouched) == before
        installation.collects.set()
        new = await installation.until_ours(STATEFUL_SETS, "slurm-controller")
        assert new["metadata"]["uid"] != old["metadata"]["uid"]
        assert new["spec"]["serviceName"] == "slurm-controller-internal"

        async def published() -> bool:
            found = (await world.get(CONFIG_MAPS, "slurm-config")) or {}
            return "manifest.json" in (found.get("data") or {})

        await until("the configuration of the new slurmctld", published)
        # Its pod has not been replaced yet.
        assert await installation.live(CLIENTS) == {
            it: before[it] for it in before if "ConfigMap" not in it
        }
        assert not [name for name in world.slurm.nodes if "DRAIN" in world.slurm.states(name)]
    left = {**await world.pods(), **await world.slurmctlds()}
    assert {name: pod["metadata"]["uid"] for name, pod in left.items()} == {
        name: pod["metadata"]["uid"] for name, pod in pods.items()
    }
    assert await world.get(claims, "statesave-slurm-controller-0")


async def test_a_configuration_that_would_be_refused_leaves_slurmctld_as_it_is_until_it_is_valid(
    installation: Installation,
) -> None:
    world = installation.world
    await installation.install("1.3")
    wrong: dict[str, Any] = {"spec": {"extraConf": "ClusterName=other\n"}}
    await world.client.merge_patch(CONTROLLERS, world.namespace, "slurm", wrong)
    untouched = (SLURMCTLD, *CLIENTS, (CONFIG_MAPS, "slurm-config"))
    before = await installation.live(untouched)
    async with installation.operator():
        await installation.until_ours(*SLURMDBD)
        await update_status(world, *SLURMDBD)

        async def refused() -> bool:
            found = await world.condition(CONTROLLERS, "slurm")
            return found.get("reason") == "Invalid" and "ClusterName" in str(found["message"])

        await until("the fault", refused)
        assert await installation.live(untouched) == before
        await world.client.merge_patch(
            CONTROLLERS, world.namespace, "slurm", {"spec": {"extraConf": None}}
        )
        await installation.complete()


@pytest.mark.parametrize("lost", ["slurm", "jwt"])
async def test_a_key_that_was_lost_before_the_take_over_is_reported_and_never_generated_again(
    installation: Installation, lost: str
) -> None:
    world = installation.world
    await installation.install("1.2")
    name, key = f"slurm-auth-{lost}", f"{lost}.key"
    await world.client.delete(SECRETS, world.namespace, name)
    # As the chart creates it.
    metadata = {
        "name": name,
        "namespace": world.namespace,
        "annotations": {"slinky.slurm.net/generate": key},
    }
    empty: Manifest = {"apiVersion": "v1", "kind": "Secret", "metadata": metadata}
    await world.client.create(SECRETS, empty)
    untouched = (SLURMCTLD, *CLIENTS, (CONFIG_MAPS, "slurm-config"))
    before = await installation.live(untouched)
    async with installation.operator():

        async def reported() -> bool:
            found = await world.condition(CONTROLLERS, "slurm")
            return found.get("reason") == "KeyLost" and f"'{name}' has lost '{key}'" in str(
                found["message"]
            )

        await until("the lost key", reported)
        assert await installation.live(untouched) == before
        assert "data" not in await world.client.get(SECRETS, world.namespace, name)
        # The backup.
        await world.client.merge_patch(
            SECRETS, world.namespace, name, secret(name, key, lost[:1].encode() * 1024)
        )
        await installation.complete()


async def test_a_statefulset_that_a_policy_would_refuse_replaces_the_present_one_when_it_is_allowed(
    installation: Installation,
) -> None:
    world = installation.world
    await installation.install("1.2")
    old = (await world.get(STATEFUL_SETS, "slurm-controller")) or {}
    async with policy(
        world, "object.spec.serviceName != 'slurm-controller-internal'", "not this StatefulSet"
    ):
        async with installation.operator():
            await installation.until_ours(*SLURMDBD)
            await update_status(world, *SLURMDBD)

            async def refused() -> bool:
                found = await world.condition(CONTROLLERS, "slurm")
                return found.get("reason") == "Refused" and "not this StatefulSet" in str(
                    found["message"]
                )

            await until("the policy's words", refused)
        left = (await world.get(STATEFUL_SETS, "slurm-controller")) or {}
        assert left == old
        assert await world.get(STATEFUL_SETS, "slurm-controller-trial") is None
    async with installation.operator():
        await installation.until_ours(*SLURMCTLD)


@contextlib.asynccontextmanager
async def policy(world: WatchedNamespace, expression: str, message: str) -> AsyncIterator[None]:
    """A ValidatingAdmissionPolicy for StatefulSets of the namespace while the block runs."""
    name = world.namespace
    group = "admissionregistration.k8s.io"
    policies = Resource(
        group, "v1", "ValidatingAdmissionPolicy", "validatingadmissionpolicies", namespaced=False
    )
    bindings = Resource(
        group,
        "v1",
        "ValidatingAdmissionPolicyBinding",
        "validatingadmissionpolicybindings",
        namespaced=False,
    )
    rule = {
        "apiGroups": ["apps"],
        "apiVersions": ["v1"],
        "operations": ["CREATE"],
        "resources": ["statefulsets"],
    }
    where = {"resourceRules": [rule]}
    for resource, spec in (
        (
            policies,
            {
                "matchConstraints": where,
                "validations": [{"expression": expression, "message": message}],
            },
        ),
        (
            bindings,
            {
                "policyName": name,
                "validationActions": ["Deny"],
                "matchResources": {
                    "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": name}}
                },
            },
        ),
    ):
        body = {
            "apiVersion": f"{group}/v1",
            "kind": resource.kind,
            "metadata": {"name": name},
            "spec": spec,
        }
        await world.client.create(resource, body)
    [probe] = [
        it
        for it in former.objects("controller", namespace=name, controller="x")
        if it["kind"] == "StatefulSet"
    ]
    probe["metadata"] = {"namespace": name, "name": "probe"}
    probe["spec"]["serviceName"] = "slurm-controller-internal"

    async def is_active() -> bool:
        try:
            await world.client.apply(STATEFUL_SETS, probe, field_manager="probe", dry_run=True)
        except Invalid as error:
            return message in str(error)
        return False

    try:
        await until("the policy to be active", is_active)
        yield
    finally:
        await world.client.delete(bindings, None, name)
        await world.client.delete(policies, None, name)


async def test_an_operator_of_schedmd_that_still_runs_is_named_and_no_pods_are_replaced_in_turn(
    installation: Installation,
) -> None:
    world = installation.world
    await installation.install("1.3")
    [theirs] = [
        it
        for it in installation.objects("1.3")
        if (it["kind"], it["metadata"]["name"]) == ("StatefulSet", "slurm-controller")
    ]
    async with installation.operator():
        await installation.complete()
        await former.sync(installation.former, theirs)

        async def named() -> bool:
            found = await world.condition(CONTROLLERS, "slurm")
            return found.get("reason") == "TwoOperators" and "StatefulSet" in str(found["message"])

        await until("the other operator to be named", named)
        contested = (await world.get(STATEFUL_SETS, "slurm-controller")) or {}
        # Another change of the Controller doesn't make this operator take its turn.
        change = {"spec": {"extraConf": "SchedulerParameters=defer\n"}}
        await world.client.merge_patch(CONTROLLERS, world.namespace, "slurm", change)

        async def observed() -> bool:
            live = (await world.get(CONTROLLERS, "slurm")) or {}
            [ready] = [it for it in live["status"]["conditions"] if it["type"] == "Ready"]
            return bool(ready["observedGeneration"] == live["metadata"]["generation"])

        await until("a pass after the change", observed)
        left = (await world.get(STATEFUL_SETS, "slurm-controller")) or {}
        assert left["metadata"]["generation"] == contested["metadata"]["generation"]
        assert former.MANAGER in managers(left)


async def test_workers_are_replaced_after_slurmctld_and_never_while_they_have_a_job(
    installation: Installation,
) -> None:
    world = installation.world
    await installation.install("1.3")
    job = world.slurm.job_start("slinky-0")
    busy = (await world.pods())["slinky-0"]["metadata"]["uid"]
    async with installation.operator():
        await installation.complete()

        async def replaced() -> bool:
            pods = await world.pods()
            return "slinky.slurm.net/slurm-key-hash" in (pods.get("slinky-1") or {}).get(
                "metadata", {}
            ).get("annotations", {})

        await until("the idle worker to be replaced", replaced)
        assert (await world.pods())["slinky-0"]["metadata"]["uid"] == busy
        world.slurm.job_end(job)

        async def both() -> bool:
            pods = await world.pods()
            return busy not in {pod["metadata"]["uid"] for pod in pods.values()} and len(pods) == 2

        await until("the other worker to be replaced after its job", both)
        await world.until_ready(2)


async def test_the_record_of_a_worker_that_ends_during_the_take_over_is_deleted(
    installation: Installation,
) -> None:
    world = installation.world
    await installation.install("1.2")
    nodeset = {"nodeSetName": "slinky", "nodeSetUID": installation.uids["nodeset"]}
    for name in ("slinky-0", "slinky-1"):
        pod = {"namespace": world.namespace, "podName": name, "node": "default-node", **nodeset}
        world.slurm.nodes[name].comment = json.dumps(pod)
    await world.client.merge_patch(NODESETS, world.namespace, "slinky", {"spec": {"replicas": 1}})
    # Its preStop hook sets the node DOWN.
    await world.client.delete(PODS, world.namespace, "slinky-1", grace_period_seconds=0)
    await world.post("slinky-1", state=["DOWN"], reason="slurm-operator: Pod is terminating")
    async with installation.operator():
        await installation.complete()

        async def deleted() -> bool:
            return "slinky-1" not in world.slurm.nodes

        await until("the record to be deleted", deleted)
        assert "slinky-0" in world.slurm.nodes


async def test_a_cordon_of_schedmds_operator_ends_with_its_cause_and_that_of_a_user_stays(
    installation: Installation,
) -> None:
    world = installation.world
    await installation.install("1.3")
    keeps = {"spec": {"updateStrategy": {"type": "OnDelete"}}}
    await world.client.merge_patch(NODESETS, world.namespace, "slinky", keeps)
    cordon = "nodeset.slinky.slurm.net/pod-cordon"
    mark = {"metadata": {"annotations": {cordon: "true"}}}
    await installation.former.merge_patch(PODS, world.namespace, "slinky-0", mark)
    await world.client.merge_patch(
        PODS, world.namespace, "slinky-1", mark, field_manager="kubectl-annotate"
    )
    for name in ("slinky-0", "slinky-1"):
        reason = f"slurm-operator: Pod ({world.namespace}/{name}) was cordoned"
        world.slurm.update_node(name, "DRAIN", reason)
    async with installation.operator():
        await installation.complete()

        async def returned() -> bool:
            # Two writes, in no order.
            marked = cordon in (await world.pods())["slinky-0"]["metadata"]["annotations"]
            return not marked and "DRAIN" not in world.slurm.states("slinky-0")

        await until("the first worker to return to service", returned)
        pods = await world.pods()
    assert pods["slinky-1"]["metadata"]["annotations"][cordon] == "true"
    assert "DRAIN" in world.slurm.states("slinky-1")


async def test_a_nodeset_that_is_deleted_without_its_pods_leaves_them_and_the_next_one_adopts_them(
    world: WatchedNamespace,
) -> None:
    await world.nodeset()
    await world.until_ready(2)
    before = await world.pods()
    spec = ((await world.get(NODESETS, "slinky")) or {})["spec"]
    deletes = Installation(world, world.client)
    deletes.collects.set()
    collector = asyncio.create_task(deletes.garbage_collector())
    try:
        await world.client.delete(NODESETS, world.namespace, "slinky", propagation_policy="Orphan")

        async def gone() -> bool:
            return await world.get(NODESETS, "slinky") is None

        await until("the NodeSet to be deleted", gone)
    finally:
        collector.cancel()
    left = await world.pods()
    assert {name: pod["metadata"]["uid"] for name, pod in left.items()} == {
        name: pod["metadata"]["uid"] for name, pod in before.items()
    }
    assert not any("ownerReferences" in pod["metadata"] for pod in left.values())
    created = await world.create(custom("NodeSet", "slinky", spec))

    async def adopted() -> bool:
        owners = [
            pod["metadata"].get("ownerReferences") or [{}] for pod in (await world.pods()).values()
        ]
        return [it[0].get("uid") for it in owners] == [created["metadata"]["uid"]] * 2

    await until("the pods to be adopted", adopted)
    await world.until_ready(2)
    assert {name: pod["metadata"]["uid"] for name, pod in (await world.pods()).items()} == {
        name: pod["metadata"]["uid"] for name, pod in before.items()
    }
    assert not [name for name in world.slurm.nodes if "DRAIN" in world.slurm.states(name)]


@pytest.mark.parametrize("version", ["1.2", "1.3"])
async def test_schedmds_operator_finds_its_objects_usable_and_can_be_replaced_again(
    installation: Installation, version: str
) -> None:
    world = installation.world
    await installation.install(version)
    async with installation.operator():
        await installation.complete()
        await until("the workers to be replaced", lambda: _all_workers_are_ours(world))
    # Uninstalling this operator's chart.
    await release(world.client, world.namespace, "slurm-operator", [world.namespace])
    for resource, name, finalizer in (
        (CONTROLLERS, "slurm", IN_USE),
        (NODESETS, "slinky", WORKERS_TERMINATE_FIRST),
    ):
        assert finalizer not in (
            ((await world.get(resource, name)) or {})["metadata"].get("finalizers") or []
        )
    for item in installation.objects(version):
        stored = await former.sync(installation.former, item)
        if item["kind"] in {"StatefulSet", "Deployment"}:
            assert (
                _mentions(stored["spec"]["template"]["spec"], item["spec"]["template"]["spec"])
                == []
            )
            assert stored["spec"]["selector"] == item["spec"]["selector"]
        elif "data" in item:
            assert stored["data"] == item["data"]
    for pod in (await world.pods()).values():
        labels = pod["metadata"]["labels"]
        assert (labels["app.kubernetes.io/name"], labels["app.kubernetes.io/instance"]) == (
            "slurmd",
            "slinky",
        )
        [owner] = pod["metadata"]["ownerReferences"]
        assert (owner["uid"], owner["controller"]) == (installation.uids["nodeset"], True)
    # And back.
    async with installation.operator():
        await installation.complete()
        after = await installation.live()
        assert {name for name, item in after.items() if former.MANAGER in managers(item)} == set()
        volumes = after["StatefulSet slurm-controller"]["spec"]["template"]["spec"]["volumes"]
        assert [set(volume) for volume in volumes if volume["name"] == "slurm-etc"] == [
            {"name", "emptyDir"}
        ]


async def _all_workers_are_ours(world: WatchedNamespace) -> bool:
    pods = (await world.pods()).values()
    return len(pods) == 2 and all(
        "slinky.slurm.net/slurm-key-hash" in pod["metadata"]["annotations"] for pod in pods
    )


def _mentions(found: Manifest, wanted: Manifest) -> list[str]:
    """Containers and volumes that only one of two pod specs has."""
    names = [
        {
            f"{kind}/{item['name']}"
            for kind in ("initContainers", "containers", "volumes")
            for item in spec.get(kind, ())
        }
        for spec in (found, wanted)
    ]
    return sorted(names[0] ^ names[1])
