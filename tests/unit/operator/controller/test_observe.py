"""What a pass over a Controller looks at: `sidecars.operator.controller.observe`."""

from typing import Any

import msgspec
import pytest

from sidecars.kube import records
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
    faulty = await observe.configuration(parts.runtime, controller(parts, extraConf="ClusterName=other\n"))
    assert any("ClusterName" in fault for fault in faulty.faults)
    good = await observe.configuration(parts.runtime, controller(parts))
    assert good.faults == []


async def test_the_nodesets_of_the_controller_are_part_of_its_configuration_and_others_are_not() -> None:
    parts = Parts()
    parts.keys()
    parts.custom("NodeSet", "slinky", {"controllerRef": {"name": "slurm"}})
    parts.custom("NodeSet", "theirs", {"controllerRef": {"name": "another"}})
    seen = await observe.configuration(parts.runtime, controller(parts))
    assert [nodeset.name for nodeset in seen.nodesets] == ["slinky"]


def claim(parts: Parts, name: str, *modes: str) -> None:
    metadata = {"namespace": NAMESPACE, "name": name, "uid": name, "resourceVersion": "1"}
    found = msgspec.convert({"metadata": metadata, "spec": {"accessModes": modes}}, records.PersistentVolumeClaim)
    parts.runtime.caches.other_claims.store.put(found)


async def test_an_existing_claim_that_is_missing_is_a_condition_and_one_that_exists_is_none() -> None:
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
    several = controller(parts, ha={"enabled": True}, persistence={"enabled": True, "existingClaim": "state"})
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
