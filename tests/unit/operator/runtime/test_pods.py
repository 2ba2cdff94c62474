"""What a worker pod belongs to: `sidecars.operator.runtime.pods`."""

import msgspec
import pytest

from sidecars import objects
from sidecars.operator.runtime.pods import cluster_of, nodeset_of, wake_pods
from sidecars.policy.nodeset.observation import slurm_node, waits_for
from tests.support.operator_parts import CONTROLLER, NAMESPACE, Parts, SlurmConnection

pytestmark = pytest.mark.looptime


async def test_a_slurm_node_has_the_hostname_of_its_pod_or_with_host_networking_the_hosts() -> None:
    pod = Parts().pod("slinky-0")
    assert slurm_node(pod) == "slinky-0"
    assert (
        slurm_node(
            msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, hostname="gpu-0"))
        )
        == "gpu-0"
    )
    assert (
        slurm_node(
            msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, hostname=""))
        )
        == "slinky-0"
    )
    on_host = msgspec.structs.replace(pod.spec, host_network=True)
    assert slurm_node(msgspec.structs.replace(pod, spec=on_host)) == "kube-1"


def waiting(reason: str, message: str) -> objects.ContainerStatus:
    return msgspec.convert(
        {
            "name": "slurmd",
            "image": "a/b:1",
            "state": {"waiting": {"reason": reason, "message": message}},
        },
        objects.ContainerStatus,
    )


async def test_while_the_kubelet_alternates_between_two_reasons_the_wording_stays() -> None:
    for one, two in (
        (
            ("ErrImagePull", "rpc error: not found"),
            ("ImagePullBackOff", 'Back-off pulling image "a/b:1"'),
        ),
        (
            ("CrashLoopBackOff", "back-off 10s restarting"),
            ("CrashLoopBackOff", "back-off 20s restarting"),
        ),
    ):
        assert waits_for(waiting(*one)) == waits_for(waiting(*two)) != ""
    assert "a/b:1" in waits_for(waiting("ErrImagePull", "rpc error: not found"))
    assert waits_for(waiting("CreateContainerConfigError", "secret x not found")) == (
        "CreateContainerConfigError: secret x not found"
    )
    assert waits_for(objects.ContainerStatus("slurmd")) == ""


async def test_an_image_of_a_registry_that_cannot_exist_has_its_remedy() -> None:
    status = msgspec.structs.replace(
        waiting("ErrImagePull", "no such host"), image="registry.invalid/a/slurmd:1"
    )
    found = waits_for(status)
    assert found.startswith(
        "the image registry.invalid/a/slurmd:1 can't be pulled: registry.invalid can't exist"
    )
    assert "global.imageRepository" in found


async def test_a_pod_belongs_to_the_nodeset_that_owns_it_and_not_to_a_successor_of_that_name() -> (
    None
):
    parts = Parts()
    pod = parts.pod("slinky-0")
    assert nodeset_of(parts.runtime, pod) is None
    manifest = parts.custom("NodeSet", "slinky", {})
    assert nodeset_of(parts.runtime, pod) is manifest
    parts.custom("NodeSet", "slinky", {}, uid="another")
    assert nodeset_of(parts.runtime, pod) is None


async def test_a_pod_belongs_to_the_cluster_of_its_label() -> None:
    parts = Parts(connect=lambda *_: SlurmConnection())
    pod = parts.pod("slinky-0")
    assert cluster_of(parts.runtime, pod) is None
    cluster = await parts.connect()
    assert cluster_of(parts.runtime, pod) is cluster
    await parts.runtime.clusters.close()


async def test_only_pods_of_the_named_slurm_nodes_of_that_cluster_are_queued() -> None:
    parts = Parts()
    parts.pod("slinky-0")
    parts.pod("slinky-1")
    await parts.woken()
    wake_pods(parts.runtime, CONTROLLER, ["slinky-1", "unknown"])
    wake_pods(parts.runtime, (NAMESPACE, "another"), ["slinky-0"])
    assert (await parts.woken(0.0))["pods"] == {(NAMESPACE, "slinky-1")}
