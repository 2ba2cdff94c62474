"""Slurm where nodes, pods and Services have IPv6 addresses alone."""

import re
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

import pytest

from tests.cluster.addresses import IPV6, in_url
from tests.run.usage import METER
from tests.support.real.foreign import NAMESPACE, address, foreign_pod
from tests.support.real.harness import CHARTS, Slurm, condition, until, until_equal
from tests.support.real.installed import cluster, install_operator, install_slurm

NAMESPACES = ("slinky", "slurm")
DAEMONS = {"slurmctld": 6817, "slurmdbd": 6819, "slurmrestd": 6820, "slurmd": 6818, "login": 22}
_READ = (
    "import sys, urllib.request as it; print(it.urlopen(sys.argv[1], timeout=5).read().decode())"
)
WITH_DATABASE = ("accounting.enabled=true", "accounting.mariadb.enabled=true")


@pytest.fixture(scope="module")
def six(cluster_name: str) -> Iterator[Slurm]:
    """A cluster of its own with the charts slurm, slurm-operator and slurm-exporter."""
    name = f"{cluster_name[:17]}-v6"
    METER.follow(name)
    with cluster(name, (IPV6,)) as kubernetes:
        install_operator(kubernetes)
        words = ("slurm-exporter", str(CHARTS / "slurm-exporter"), "-n", "slurm")
        slurm = install_slurm(kubernetes, "--set", ",".join(WITH_DATABASE))
        kubernetes.helm("install", *words, "--wait", "--timeout=2m")
        yield slurm


def test_each_pod_and_service_has_ipv6_addresses_alone_and_each_probe_reaches_its_container(
    six: Slurm,
) -> None:
    def pods_of_all() -> list[dict[str, Any]]:
        return [pod for it in NAMESPACES for pod in six.kubernetes.items("-n", it, "pods")]

    def ready() -> set[str | None]:
        return {condition(pod, "Ready").get("status") for pod in pods_of_all()}

    until_equal("all pods to be ready", ready, {"True"})
    pods = pods_of_all()
    restarts = {
        f"{pod['metadata']['name']}/{it['name']}": it["restartCount"]
        for pod in pods
        for it in pod["status"]["containerStatuses"]
    }
    assert not any(restarts.values()), restarts
    of_pods = [it["ip"] for pod in pods for it in pod["status"]["podIPs"]]
    services = [it for name in NAMESPACES for it in six.kubernetes.items("-n", name, "services")]
    of_services = [ip for it in services for ip in it["spec"]["clusterIPs"] if ip != "None"]
    assert {ip_address(it).version for it in (*of_pods, *of_services)} == {6}


def test_a_job_runs_on_two_nodes_and_the_database_has_it(six: Slurm) -> None:
    shown = six.login("srun", "--job-name=pair", "-N2", "hostname")
    assert sorted(shown.split()) == ["slinky-0", "slinky-1"]
    words = ("sacct", "-n", "-X", "-P", "--name=pair", "-o", "State,NNodes")
    until_equal("slurmdbd to have the job", lambda: six.login(*words).strip(), "COMPLETED|2")


def test_the_operator_drains_and_deletes_a_worker(six: Slurm) -> None:
    six.scale(1)
    until("one node to be left", lambda: set(six.nodes()) == {"slinky-0"})
    six.scale(2)
    six.until_idle(2)


def test_the_network_policies_admit_to_each_daemon_whom_they_name(six: Slurm) -> None:
    with foreign_pod(six.kubernetes) as foreign:
        addresses = {daemon: address(six.kubernetes, "slurm", daemon) for daemon in DAEMONS}
        reached = {it: foreign.connects(addresses[it], port) for it, port in DAEMONS.items()}
        assert reached == dict.fromkeys(DAEMONS, False) | {"login": True}
        label = ("label", "pod", "tenant", "app.kubernetes.io/name=prometheus", "--overwrite")
        six.kubernetes.kubectl("-n", NAMESPACE, *label)
        exporter = in_url(address(six.kubernetes, "slurm", "slurm-exporter"))
        read = ("tenant", "", "python3", "-c", _READ, f"http://{exporter}:8080/metrics")

        def idle() -> list[str]:
            text = six.kubernetes.execute(NAMESPACE, *read, repeatable=True)
            return re.findall(r'^slurm_nodes{state="idle"} (\S+)$', text, re.MULTILINE)

        until_equal("the exporter to count the nodes", idle, ["2"])
