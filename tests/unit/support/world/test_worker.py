"""A worker pod of the model runs the shipped `register` and `node` on the environment of its own
template.
"""

import pytest

from sidecars.contract.extra import pod_facts
from tests.support.virtual_time import run
from tests.support.world.scripts import FOREIGN
from tests.support.world.worker import environment
from tests.support.world.world import World, world


async def settled(w: World, replicas: int = 1) -> None:
    w.nodeset(replicas=replicas)
    await w.run(20)


def test_the_environment_is_that_of_the_template_with_the_fields_of_the_pod() -> None:
    async def scenario() -> None:
        async with world(3) as w:
            await settled(w)
            [pod] = w.pods()
            variables = environment(pod, "register", "10.1.2.3")
            assert variables["POD_UID"] == pod["metadata"]["uid"]
            assert variables["POD_IP"] == "10.1.2.3"
            assert variables["KUBE_NODE_NAME"] == pod["spec"]["nodeName"]
            assert environment(pod, "node", "")["SLURM_NODE_NAME"] == pod["spec"]["hostname"]

    run(scenario())


def test_slurmd_registers_what_register_found() -> None:
    async def scenario() -> None:
        async with world(3) as w:
            await settled(w)
            [pod] = w.pods()
            record = w.slurms["slurm", "slurm"].nodes["slinky-0"]
            facts = pod_facts(record.extra)
            assert facts is not None
            assert facts.pod_uid == pod["metadata"]["uid"]
            assert facts.nodeset_uid == pod["metadata"]["ownerReferences"][0]["uid"]
            assert record.instance_id == pod["spec"]["nodeName"]
            assert record.address == pod["status"]["podIP"]

    run(scenario())


@pytest.mark.parametrize("seconds", [5, 40])
def test_a_deleted_pod_ends_when_its_job_has_ended(seconds: int) -> None:
    async def scenario() -> None:
        async with world(3) as w:
            await settled(w)
            w.job(1, seconds)
            await w.run(2)
            [pod] = w.pods()
            w.api.delete("/api/v1/pods", "slurm", pod["metadata"]["name"])
            await w.run(seconds - 3)
            assert pod["metadata"]["uid"] in w.kubelets.running
            await w.until(
                "slurmd has ended", lambda: pod["metadata"]["uid"] not in w.kubelets.running, 20
            )

    run(scenario())


def test_node_leaves_a_record_with_a_foreign_reason() -> None:
    async def scenario() -> None:
        async with world(3) as w:
            await settled(w)
            w.restarts_after = 1000.0
            w.crash()
            w.admin("slinky-0", FOREIGN)
            [pod] = w.pods()
            w.api.delete("/api/v1/pods", "slurm", pod["metadata"]["name"])
            await w.until("the pod has ended", lambda: not w.pods(), 60)
            record = w.slurms["slurm", "slurm"].nodes["slinky-0"]
            assert (record.base, record.reason) == ("DOWN", FOREIGN)

    run(scenario())
