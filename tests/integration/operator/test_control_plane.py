"""What a Controller creates, as users of Slinky's operator know it, on a real API server."""

from decimal import Decimal
from typing import Any

import pytest

from sidecars.custom_resources import CONTROLLERS, RESTAPIS
from sidecars.kube import (
    CONFIG_MAPS,
    DEPLOYMENTS,
    EVENTS,
    PERSISTENT_VOLUME_CLAIMS,
    PODS,
    SERVICES,
    STATEFUL_SETS,
    Manifest,
)
from sidecars.kube.resources import Resource
from sidecars.register.facts import read_facts
from tests.integration.operator.test_services import put, until_reason
from tests.support.apiserver import KEYS, WatchedNamespace, custom, until
from tests.support.world import worker

LIMIT_RANGES = Resource("", "v1", "LimitRange", "limitranges")

pytestmark = pytest.mark.timeout(120, func_only=True)


async def config_map(world: WatchedNamespace, name: str, **data: str) -> None:
    """A ConfigMap of the user's."""
    metadata = {"name": name, "namespace": world.namespace}
    await world.client.create(
        CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}
    )


async def create_claim(world: WatchedNamespace, name: str, mode: str) -> None:
    """A claim of the user's."""
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": world.namespace},
        "spec": {"accessModes": [mode], "resources": {"requests": {"storage": "1Gi"}}},
    }
    await world.client.create(PERSISTENT_VOLUME_CLAIMS, claim)


async def change(world: WatchedNamespace, **spec: Any) -> None:
    """Change the Controller."""
    await world.client.merge_patch(CONTROLLERS, world.namespace, "slurm", {"spec": spec})


async def until_lines(world: WatchedNamespace, *lines: str, controller: str = "slurm") -> list[str]:
    """Wait until slurm.conf, as it is published, has these lines; all of it."""

    async def look() -> list[str] | None:
        found = await world.get(CONFIG_MAPS, f"{controller}-config")
        present = ((found or {}).get("data") or {}).get("slurm.conf", "").splitlines()
        bare = [line.partition("  #")[0].rstrip() for line in present]
        return bare if set(lines) <= set(bare) else None

    return await until(f"slurm.conf to have {lines}", look)


async def template(world: WatchedNamespace, name: str = "slurm-controller") -> Manifest:
    """slurmctld's pod template."""
    found = await until("slurmctld", lambda: world.get(STATEFUL_SETS, name))
    return dict(found["spec"]["template"])


async def test_slurm_conf_has_the_defaults_of_a_new_cluster(world: WatchedNamespace) -> None:
    space = world.namespace
    await until_lines(
        world,
        f"ClusterName={space}_slurm",
        f"SlurmctldHost=slurm-controller-0(slurm-controller-0.slurm-controller-internal.{space})",
        f"SlurmctldAddr=slurm-controller.{space}",
        f"StateSaveLocation=/var/spool/slurmctld/{space}_slurm",
        "SlurmctldParameters=enable_configless,reconfig_on_restart",
        "AccountingStorageType=accounting_storage/none",
    )
    config = await until("the files", lambda: world.get(CONFIG_MAPS, "slurm-config"))
    assert {"CgroupPlugin=cgroup/v2", "IgnoreSystemd=yes"} <= set(
        config["data"]["cgroup.conf"].splitlines()
    )
    client = await until("the Service", lambda: world.get(SERVICES, "slurm-controller"))
    assert client["spec"]["selector"] == {
        "app.kubernetes.io/name": "slurmctld",
        "app.kubernetes.io/instance": "slurm",
    }


async def test_backups_need_a_claim_with_access_mode_read_write_many(
    world: WatchedNamespace,
) -> None:
    spec = {
        **KEYS,
        "slurmctld": {"image": "slurmctld:test"},
        "ha": {"enabled": True, "backups": 1},
        "persistence": {"enabled": True, "existingClaim": "state"},
    }
    await world.create(custom("Controller", "ha", spec))
    message = await until_reason(world, CONTROLLERS, "ha", "ReferenceMissing")
    assert "PersistentVolumeClaim 'state' doesn't exist" in message
    await create_claim(world, "state", "ReadWriteOnce")
    message = await until_reason(world, CONTROLLERS, "ha", "Invalid")
    assert "ReadWriteMany" in message
    assert await world.get(STATEFUL_SETS, "ha-controller") is None
    await world.client.delete(PERSISTENT_VOLUME_CLAIMS, world.namespace, "state")
    await world.client.merge_patch(
        PERSISTENT_VOLUME_CLAIMS, world.namespace, "state", {"metadata": {"finalizers": None}}
    )

    async def gone() -> bool:
        return await world.get(PERSISTENT_VOLUME_CLAIMS, "state") is None

    await until("the claim to be gone", gone)
    await create_claim(world, "state", "ReadWriteMany")
    lines = await until_lines(world, controller="ha")
    assert sum(line.startswith("SlurmctldHost=ha-controller-") for line in lines) == 2
    found = await until("slurmctld", lambda: world.get(STATEFUL_SETS, "ha-controller"))
    assert found["spec"]["replicas"] == 2
    assert not found["spec"].get("volumeClaimTemplates")
    pod = found["spec"]["template"]["spec"]
    [state] = [it for it in pod["volumes"] if it["name"] == "statesave"]
    assert state["persistentVolumeClaim"]["claimName"] == "state"
    [slurmctld] = pod["containers"]
    assert slurmctld["readinessProbe"]["httpGet"]["path"] == "/livez"


async def test_a_missing_claim_is_reported_until_the_watch_shows_it(
    world: WatchedNamespace,
) -> None:
    persistence = {"enabled": True, "existingClaim": "late"}
    await world.create(
        custom(
            "Controller",
            "alone",
            {**KEYS, "slurmctld": {"image": "slurmctld:test"}, "persistence": persistence},
        )
    )
    message = await until_reason(world, CONTROLLERS, "alone", "ReferenceMissing")
    assert "PersistentVolumeClaim 'late' doesn't exist" in message
    await create_claim(world, "other", "ReadWriteOnce")
    await create_claim(world, "late", "ReadWriteOnce")
    # Nothing else wakes the Controller, and it looks at nothing by the clock.
    await until_reason(world, CONTROLLERS, "alone", "Updating")


async def test_scripts_are_published_with_the_files_and_named_in_order(
    world: WatchedNamespace,
) -> None:
    await config_map(world, "p2", **{"90-b.sh": "#!/bin/sh\n"})
    await config_map(world, "p1", **{"00-a.sh": "#!/bin/sh\n"})
    await config_map(world, "ctl", **{"x.sh": "#!/bin/sh\n"})
    await change(
        world,
        prologScriptRefs=[{"name": "p2"}, {"name": "p1"}],
        prologSlurmctldScriptRefs=[{"name": "ctl"}],
    )
    lines = await until_lines(
        world, "Prolog=00-a.sh", "Prolog=90-b.sh", "PrologSlurmctld=/etc/slurm/x.sh"
    )
    assert lines.index("Prolog=00-a.sh") < lines.index("Prolog=90-b.sh")
    found = await until("the files", lambda: world.get(CONFIG_MAPS, "slurm-config"))
    names = set(found["data"])
    for index in range(1, 8):
        names |= set(
            ((await world.get(CONFIG_MAPS, f"slurm-config-{index}")) or {}).get("data") or {}
        )
    assert {"00-a.sh", "90-b.sh", "x.sh"} <= names


async def test_a_missing_config_map_is_reported_and_used_once_it_exists(
    world: WatchedNamespace,
) -> None:
    await change(world, configFileRefs=[{"name": "late"}])
    message = await until_reason(world, CONTROLLERS, "slurm", "ReferenceMissing")
    assert "ConfigMap 'late' doesn't exist" in message

    async def received() -> bool:
        items, _ = await world.client.list(EVENTS, world.namespace)
        return any(it["reason"] == "SyncFailed" and "'late'" in it.get("note", "") for it in items)

    await until("the Event", received)
    await config_map(world, "late", **{"late.conf": "# here\n"})

    async def there() -> bool:
        found = (await world.get(CONFIG_MAPS, "slurm-config") or {}).get("data") or {}
        more = (await world.get(CONFIG_MAPS, "slurm-config-1") or {}).get("data") or {}
        return "late.conf" in found or "late.conf" in more

    await until("the file", there)


async def test_lists_that_both_set_are_merged_at_the_end(world: WatchedNamespace) -> None:
    await change(world, extraConf="SlurmctldParameters=idle_on_node_suspend\n")
    merged = "SlurmctldParameters=enable_configless,idle_on_node_suspend,reconfig_on_restart"
    lines = await until_lines(world, merged, "SlurmctldParameters=idle_on_node_suspend")
    assert lines.index(merged) > lines.index("SlurmctldParameters=idle_on_node_suspend")


async def test_a_changed_configuration_changes_the_pod_template_only_with_config_update_recreate(
    world: WatchedNamespace,
) -> None:
    before = await template(world)
    assert "slinky.slurm.net/slurm-config-hash" not in before["metadata"]["annotations"]
    sidecars = {it["name"]: it.get("restartPolicy") for it in before["spec"]["initContainers"]}
    assert (sidecars["reconfigure"], sidecars["logfile"]) == ("Always", "Always")
    await change(world, extraConf="SlurmctldTimeout=61\n")
    await until_lines(world, "SlurmctldTimeout=61")
    assert await template(world) == before
    restapi = await until("slurmrestd", lambda: world.get(DEPLOYMENTS, "slurm-restapi"))
    assert restapi["metadata"]["generation"] == 1, "slurmrestd has been rolled"

    async def digest() -> str:
        found = (await template(world))["metadata"]["annotations"]
        return str(found.get("slinky.slurm.net/slurm-config-hash", ""))

    await change(world, configUpdate="Recreate")
    first = await until("a hash of the configuration", digest)
    await change(world, extraConf="SlurmctldTimeout=62\n")

    async def another() -> bool:
        return await digest() not in {"", first}

    await until("another hash", another)


async def test_another_jwt_key_is_used_by_the_operator_and_restarts_nothing(
    world: WatchedNamespace,
) -> None:
    world.slurm.key = b"j" * 1024
    await world.nodeset(replicas=1)
    await world.until_ready(1)
    before = await template(world)
    await put(world, "slurm-auth-jwt", "jwt.key", b"k" * 1024)
    world.slurm.key = b"k" * 1024
    await world.scale(2)
    await world.until_ready(2)

    async def reachable() -> bool:
        return (await world.condition(CONTROLLERS, "slurm", "SlurmReachable")).get(
            "status"
        ) == "True"

    # Between the two changes of the key, Slurm refused the operator's tokens.
    await until("the operator to reach Slurm with the other key", reachable)
    assert await template(world) == before


async def test_a_nodeset_adds_its_partition_and_its_features_to_slurm(
    world: WatchedNamespace,
) -> None:
    await world.nodeset(
        replicas=1,
        partition={"enabled": True, "config": "MaxTime=UNLIMITED"},
        template={"spec": {"hostname": "foo-"}},
        extraConf="features=bar",
        slurmd={"image": "slurmd:test", "resources": {"limits": {"cpu": "1500m", "memory": "2Gi"}}},
    )
    await until_lines(
        world, "NodeSet=foo Feature=foo", "PartitionName=foo Nodes=foo MaxTime=UNLIMITED"
    )
    await world.until_ready(1)
    [pod] = (await world.pods()).values()
    register = next(it for it in pod["spec"]["initContainers"] if it["name"] == "register")
    given = {it["name"]: it.get("value") for it in register["env"]}
    assert given["NODESET_CONF"] == "Features=bar,foo"
    assert (given["REGISTER_CPUS"], given["REGISTER_MEMORY_MIB"]) == ("2", "2048")


async def test_a_worker_registers_with_the_default_limits_of_its_namespace(
    world: WatchedNamespace,
) -> None:
    default = {"type": "Container", "default": {"cpu": "500m", "memory": "512Mi"}}
    await world.client.create(
        LIMIT_RANGES,
        {
            "apiVersion": "v1",
            "kind": "LimitRange",
            "metadata": {"name": "defaults", "namespace": world.namespace},
            "spec": {"limits": [default]},
        },
    )
    await world.nodeset(replicas=1)
    await world.until_ready(1)
    [pod] = (await world.pods()).values()
    found = read_facts(worker.environment(pod, "register", "10.0.0.9"), worker.HOST)
    assert (found.cpus, found.memory, found.pod_memory) == (Decimal("0.5"), 512, 3 * 512)


async def test_an_external_controller_only_gets_the_configuration_that_names_it(
    world: WatchedNamespace,
) -> None:
    spec = {
        **KEYS,
        "external": True,
        "externalConfig": {"host": "my-controller", "port": 6817},
        "extraConf": "SlurmctldTimeout=77\n",
    }
    await world.create(custom("Controller", "far", spec))
    lines = await until_lines(
        world, "SlurmctldHost=my-controller", "SlurmctldPort=6817", controller="far"
    )
    assert "SlurmctldTimeout=77" not in lines
    await world.nodeset("away", replicas=1, controllerRef={"name": "far"})

    async def made() -> Manifest | None:
        items, _ = await world.client.list(PODS, world.namespace)
        return next((pod for pod in items if pod["metadata"]["name"] == "away-0"), None)

    pod = await until("the worker", made)
    slurmd = next(it for it in pod["spec"]["containers"] if it["name"] == "slurmd")
    assert slurmd["args"][slurmd["args"].index("--conf-server") + 1] == "my-controller:6817"
    assert await world.get(STATEFUL_SETS, "far-controller") is None
    assert await world.get(SERVICES, "far-controller") is None


async def test_external_addresses_of_a_service_are_left_out(world: WatchedNamespace) -> None:
    service = {"spec": {"externalIPs": ["192.0.2.1"], "type": "ClusterIP"}, "port": 7777}
    await world.client.merge_patch(
        RESTAPIS, world.namespace, "slurm", {"spec": {"service": service}}
    )

    async def changed() -> Manifest | None:
        found = await world.get(SERVICES, "slurm-restapi")
        return found if found is not None and found["spec"]["ports"][0]["port"] == 7777 else None

    assert "externalIPs" not in (await until("the Service", changed))["spec"]
