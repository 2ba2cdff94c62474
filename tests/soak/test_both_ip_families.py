"""Slurm where nodes, pods and Services have IPv4 and IPv6 addresses: it uses the first of each
pod.
"""

from ipaddress import ip_address

import pytest

from tests.cluster.addresses import IPV4, IPV6
from tests.support.real.harness import until
from tests.support.real.installed import cluster, install_operator, install_slurm


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("versions", [(IPV4, IPV6), (IPV6, IPV4)])
def test_slurm_uses_the_ip_family_of_the_first_address_of_its_pods(
    versions: tuple[int, ...], cluster_name: str
) -> None:
    with cluster(f"{cluster_name[:16]}-two", versions) as kubernetes:
        install_operator(kubernetes)
        slurm = install_slurm(kubernetes)
        pods = kubernetes.items("-n", slurm.namespace, "pods")
        for pod in pods:
            of_pod = [ip_address(it["ip"]).version for it in pod["status"]["podIPs"]]
            assert of_pod == [*versions], pod["metadata"]["name"]
        shown = slurm.login("srun", "-N2", "hostname").split()
        assert sorted(shown) == ["slinky-0", "slinky-1"]
        configuration = slurm.login("scontrol", "show", "config").splitlines()
        [parameters] = [it for it in configuration if it.startswith("CommunicationParameters")]
        assert ("EnableIPv6" in parameters) == (versions[0] == IPV6)
        slurm.scale(1)
        until("one node to be left", lambda: set(slurm.nodes()) == {"slinky-0"})
