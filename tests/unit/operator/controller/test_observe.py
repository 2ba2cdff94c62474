"""What a pass over a Controller looks at: `sidecars.operator.controller.observe`."""

from typing import Any

import msgspec
import pytest

from sidecars import objects
from sidecars.operator.controller import observe
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.simulate import Fault
from sidecars.workloads.resources import Controller, read
from tests.support.operator_parts import CONTROLLER, NAMESPACE, Parts, SlurmConnection

pytestmark = pytest.mark.looptime


def controller(parts: Parts, **spec: Any) -> Controller:
    return read(Controller, parts.controller(**spec))


async def test_a_fault_of_the_configuration_names_its_place_and_a_good_one_has_none() -> None:
    parts = Parts()
    parts.keys()
    faulty = await observe.configuration(
        parts.runtime, controller(parts, extraConf="ClusterName=other\n")
    )
    assert any("ClusterName" in fault for fault in faulty.faults)
    good = await observe.configuration(parts.runtime, controller(parts))
    assert good.faults == []


async def test_the_nodesets_of_the_controller_alone_are_part_of_its_configuration() -> None:
    parts = Parts()
    parts.keys()
    parts.custom("NodeSet", "slinky", {"controllerRef": {"name": "slurm"}})
    parts.custom("NodeSet", "theirs", {"controllerRef": {"name": "another"}})
    seen = await observe.configuration(parts.runtime, controller(parts))
    assert [nodeset.name for nodeset in seen.nodesets] == ["slinky"]


def claim(parts: Parts, name: str, *modes: str) -> None:
    metadata = {"namespace": NAMESPACE, "name": name, "uid": name, "resourceVersion": "1"}
    found = msgspec.convert(
        {"metadata": metadata, "spec": {"accessModes": modes}}, objects.PersistentVolumeClaim
    )
    parts.runtime.caches.other_claims.store.put(found)


async def test_an_existing_claim_that_is_missing_is_a_condition_and_one_that_exists_is_none() -> (
    None
):
    parts = Parts()
    mine = controller(parts, persistence={"enabled": True, "existingClaim": "state"})
    missing = observe.claim_condition(parts.runtime, mine)
    assert missing is not None
    assert "'state'" in missing.message
    claim(parts, "state", "ReadWriteOnce")
    assert observe.claim_condition(parts.runtime, mine) is None


async def test_several_slurmctld_on_a_claim_of_one_node_are_not_applied() -> None:
    parts = Parts()
    claim(parts, "state", "ReadWriteOnce")
    several = controller(
        parts, ha={"enabled": True}, persistence={"enabled": True, "existingClaim": "state"}
    )
    with pytest.raises(NotUsableError, match="ReadWriteMany"):
        observe.claim_condition(parts.runtime, several)


async def test_slurm_is_reachable_only_with_an_answer_and_the_condition_names_the_address() -> None:
    slurm = SlurmConnection()
    parts = Parts(connect=lambda *_: slurm)
    assert observe.slurm_reachable(parts.runtime, CONTROLLER).status == "Unknown"
    slurm.model.node_register("slinky-0")
    cluster = await parts.connect()
    reachable = observe.slurm_reachable(parts.runtime, CONTROLLER)
    assert (reachable.status, cluster.url in reachable.message) == ("True", True)
    slurm.model.fail(Fault.RESET)
    for _ in range(5):
        await cluster.poller.poll()
    gone = observe.slurm_reachable(parts.runtime, CONTROLLER)
    assert (gone.status, gone.reason) == ("False", "NoAnswer")
    assert cluster.url in gone.message
    await parts.runtime.clusters.close()


NVLINK = {"name": "nvlink", "block": {"label": "domain", "sizes": [1]}}


def file(seen: observe.Observed) -> str:
    return seen.config_set.files["topology.yaml"]


async def test_topology_yaml_has_the_blocks_of_labels_and_keeps_those_that_it_has() -> None:
    parts = Parts()
    parts.keys()
    parts.kube_node("kube-1", labels={"domain": "d2"})
    mine = controller(parts, topologies=[NVLINK])
    assert "nvlink-none" not in file(await observe.configuration(parts.runtime, mine))
    published = (
        "[{topology: nvlink, block: {block_sizes: [1], blocks: [{block: nvlink-none}, {block: "
        "d1}]}}]"
    )
    parts.config_map("slurm-config", {"topology.yaml": published}, own=True)
    found = file(await observe.configuration(parts.runtime, mine))
    assert [name for name in ("d1", "d2", "nvlink-none") if f"block: {name}" in found] == [
        "d1",
        "d2",
    ]


async def test_a_configuration_that_would_end_slurmctld_is_a_fault_while_the_node_exists() -> None:
    slurm = SlurmConnection()
    parts = Parts(connect=lambda *_: slurm)
    parts.keys()
    slurm.model.node_register("slinky-0", topology="fabric:leaf1")
    await parts.connect()
    [fault] = (await observe.configuration(parts.runtime, controller(parts))).faults
    assert "Slurm node slinky-0" in fault
    await parts.runtime.clusters.close()


async def test_a_topology_yaml_of_the_site_beside_topologies_is_a_fault_that_names_it() -> None:
    parts = Parts()
    parts.keys()
    parts.config_map("site", {"topology.yaml": "[{topology: mine, flat: true}]"})
    both = controller(parts, topologies=[NVLINK], configFileRefs=[{"name": "site"}])
    [fault] = (await observe.configuration(parts.runtime, both)).faults
    assert "ConfigMap site key topology.yaml" in fault


async def test_a_nodeset_that_cannot_be_read_keeps_what_is_published_so_that_no_job_ends() -> None:
    parts = Parts()
    parts.keys()
    parts.custom("NodeSet", "slinky", {"controllerRef": {"name": "slurm"}})
    parts.custom(
        "NodeSet", "newer", {"controllerRef": {"name": "slurm"}, "scalingMode": "SomethingNew"}
    )
    [fault] = (await observe.configuration(parts.runtime, controller(parts))).faults
    assert fault.startswith("NodeSet newer can't be read")
