"""Limits of slurmd, as `register` gets them."""

from tests.support.builders import env, nodeset
from tests.unit.workloads.nodeset.making import pod


def test_limits_of_the_container_count_before_those_of_the_pod() -> None:
    of = nodeset(
        slurmd={"resources": {"limits": {"cpu": "1500m"}}},
        template={"spec": {"resources": {"limits": {"cpu": "8", "memory": "4Gi"}}}},
    )
    found = env(pod(of), "register")
    assert (found["REGISTER_CPUS"], found["REGISTER_MEMORY_MIB"]) == ("2", "4096")


def test_register_knows_the_memory_limit_that_jobs_share_with_the_pods_containers() -> None:
    of = nodeset(
        slurmd={"resources": {"limits": {"memory": "2Gi"}}},
        template={"spec": {"resources": {"limits": {"memory": "3Gi"}}}},
    )
    found = env(pod(of), "register")
    assert (found["REGISTER_MEMORY_MIB"], found["REGISTER_POD_MEMORY_MIB"]) == ("2048", "3072")
    only_slurmd = env(pod(nodeset(slurmd={"resources": {"limits": {"memory": "2Gi"}}})), "register")
    assert only_slurmd["REGISTER_POD_MEMORY_MIB"] == "0"


def test_without_limits_register_is_told_none() -> None:
    found = env(pod(), "register")
    assert (found["REGISTER_CPUS"], found["REGISTER_MEMORY_MIB"]) == ("0", "0")
