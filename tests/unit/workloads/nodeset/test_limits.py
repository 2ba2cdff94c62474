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


def test_without_limits_register_is_told_none() -> None:
    found = env(pod(), "register")
    assert (found["REGISTER_CPUS"], found["REGISTER_MEMORY_MIB"]) == ("0", "0")
