"""What `register` reads of the host and of its environment."""

import os
from decimal import Decimal
from pathlib import Path

import pytest

from sidecars.register.facts import read_facts, read_host
from sidecars.register.registration import BadFact, Host

HOST = Host(1, 1, 1)


def cpus(folder: Path, online: str, siblings: dict[int, str]) -> Path:
    """A /sys/devices/system/cpu with these CPUs online and these sibling lists."""
    (folder / "online").write_text(f"{online}\n")
    for number, text in siblings.items():
        topology = folder / f"cpu{number}/topology"
        topology.mkdir(parents=True)
        (topology / "thread_siblings_list").write_text(f"{text}\n")
    return folder


def test_threads_of_one_core_count_as_one(tmp_path: Path) -> None:
    folder = cpus(tmp_path, "0-3", {0: "0,2", 1: "1,3", 2: "0,2", 3: "1,3"})
    host = read_host(folder)
    assert (host.cores, host.threads_per_core, host.cpus) == (2, 2, 4)


def test_cores_are_in_the_order_of_their_packages_and_numa_nodes(tmp_path: Path) -> None:
    folder = cpus(
        tmp_path,
        "0-7",
        {0: "0,4", 4: "0,4", 1: "1,5", 5: "1,5", 2: "2,6", 6: "2,6", 3: "3,7", 7: "3,7"},
    )
    for number in range(8):
        package = "0,2,4,6" if number % 2 == 0 else "1,3,5,7"
        (folder / f"cpu{number}/topology/package_cpus_list").write_text(package)
    host = read_host(folder)
    assert host.order == ((0, 4), (2, 6), (1, 5), (3, 7))
    for number in range(8):
        (folder / f"cpu{number}/topology/package_cpus_list").write_text("0-7")
        (folder / f"cpu{number}/node{number % 2}").mkdir()
        (folder / f"cpu{number}/node{number % 2}/cpulist").write_text(
            "0,2,4,6" if number % 2 == 0 else "1,3,5,7"
        )
    assert read_host(folder).order == ((0, 4), (2, 6), (1, 5), (3, 7))


def test_the_container_may_use_what_this_process_may(tmp_path: Path) -> None:
    assert read_host(cpus(tmp_path, "0", {})).allowed == os.sched_getaffinity(0)


def test_cpus_that_are_offline_do_not_count(tmp_path: Path) -> None:
    folder = cpus(tmp_path, "0,2-3", {0: "0", 1: "1", 2: "2", 3: "3"})
    assert read_host(folder).cores == 3


def test_a_host_that_shows_no_topology_has_a_core_for_each_cpu(tmp_path: Path) -> None:
    host = read_host(cpus(tmp_path, "0-7", {}))
    assert (host.cores, host.threads_per_core) == (8, 1)


def test_memory_is_whole_mib_of_this_host(tmp_path: Path) -> None:
    size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert read_host(cpus(tmp_path, "0", {})).real_memory == size // 2**20


def test_this_host_can_be_read() -> None:
    host = read_host()
    assert host.cores * host.threads_per_core <= (os.cpu_count() or 0)
    assert host.cores >= 1


def test_the_environment_becomes_facts() -> None:
    found = read_facts(
        {
            "POD_IP": "10.0.0.9",
            "REGISTER_CPUS": "1.5",
            "REGISTER_MEMORY_MIB": "2048",
            "SLINKY_TOPOLOGY": " ",
        }
        | {"REGISTER_POD_MEMORY_MIB": "4096"},
        HOST,
    )
    assert (found.pod_ip, found.cpus, found.memory, found.topology) == (
        "10.0.0.9",
        Decimal("1.5"),
        2048,
        "",
    )
    assert found.pod_memory == 4096


def test_no_limits_are_zero() -> None:
    found = read_facts({"REGISTER_CPUS": ""}, HOST)
    assert (found.cpus, found.memory) == (Decimal(0), 0)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("REGISTER_CPUS", "two"),
        ("REGISTER_CPUS", "-1"),
        ("REGISTER_CPUS", "NaN"),
        ("REGISTER_CPUS", "500m"),
        ("REGISTER_CPUS", "1e999999"),
        ("REGISTER_CPUS", "1_0"),
        ("REGISTER_CPUS", "\uff11"),
        ("REGISTER_CPUS", " 5"),
        ("REGISTER_MEMORY_MIB", "1e30"),
        ("REGISTER_MEMORY_MIB", "9" * 5000),
        ("REGISTER_MEMORY_MIB", "Infinity"),
        ("REGISTER_NODE_LIMIT_MIB", "-0.1"),
        ("REGISTER_MEMORY_MIB", "4Gi"),
        ("REGISTER_MEMORY_MIB", "0.5"),
        ("REGISTER_POD_MEMORY_MIB", "0.5"),
        ("REGISTER_SLURMD_LIMIT_MILLICPUS", "500m"),
        ("REGISTER_LOGFILE_LIMIT_MIB", "512Mi"),
    ],
)
def test_a_limit_that_is_no_number_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(BadFact, match=name):
        read_facts({name: text}, HOST)


GIVEN = {
    "REGISTER_SLURMD_LIMIT_MILLICPUS": "1500",
    "REGISTER_SLURMD_LIMIT_MIB": "512",
    "REGISTER_NODE_LIMIT_MILLICPUS": "1500",
    "REGISTER_NODE_LIMIT_MIB": "512",
    "REGISTER_LOGFILE_LIMIT_MILLICPUS": "1500",
    "REGISTER_LOGFILE_LIMIT_MIB": "512",
}


def test_limits_that_the_containers_have_been_given_count() -> None:
    found = read_facts(GIVEN, HOST)
    assert (found.cpus, found.memory, found.pod_memory) == (Decimal("1.5"), 512, 1536)
    assert found.default_limits


def test_only_true_makes_slurm_use_the_containers_own_cpus() -> None:
    assert read_facts({"REGISTER_EXCLUSIVE_CPUS": "true"}, HOST).exclusive_cpus
    assert not read_facts({"REGISTER_EXCLUSIVE_CPUS": "false"}, HOST).exclusive_cpus
    assert not read_facts({}, HOST).exclusive_cpus


def test_what_the_kubernetes_node_can_allocate_is_no_limit() -> None:
    found = read_facts(
        GIVEN | {"REGISTER_NODE_LIMIT_MILLICPUS": "0", "REGISTER_NODE_LIMIT_MIB": "0"}, HOST
    )
    assert (found.cpus, found.memory, found.pod_memory) == (Decimal(0), 0, 0)
    assert not found.default_limits
