"""Limits of slurmd, as `register` gets them."""

from tests.support.builders import env, nodeset, part, pod_spec
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


def test_without_limits_register_gets_none() -> None:
    found = env(pod(), "register")
    assert (found["REGISTER_CPUS"], found["REGISTER_MEMORY_MIB"]) == ("0", "0")


def test_register_requests_the_cpus_and_devices_of_slurmd_and_nothing_else() -> None:
    resources = {"requests": {"cpu": 16, "memory": "64Gi"}, "limits": {"cpu": 16, "memory": "64Gi"}}
    plain = part(pod(nodeset(slurmd={"resources": resources})), "register")
    assert plain["resources"] == {"requests": {"cpu": 16}, "limits": {"cpu": 16}}
    of = nodeset(slurmd={"resources": resources}, gpu={"enabled": True, "count": 2})
    with_gpus = part(pod(of), "register")
    assert with_gpus["resources"] == {
        "requests": {"cpu": 16},
        "limits": {"nvidia.com/gpu": "2", "cpu": 16},
    }
    assert "resources" not in part(pod(), "register")


def test_records_of_power_saving_do_not_depend_on_the_cpus_of_a_pod() -> None:
    saving = {"enabled": True, "node": "CPUs=4 RealMemory=1000"}
    assert env(pod(nodeset(powerSaving=saving)), "register")["REGISTER_EXCLUSIVE_CPUS"] == "false"
    assert env(pod(), "register")["REGISTER_EXCLUSIVE_CPUS"] == "true"


def test_register_comes_directly_before_slurmd_so_that_the_kubelet_gives_both_the_same_cpus() -> (
    None
):
    """The static CPU manager allocates in this order, from free CPUs and those of init containers
    that end. A container between the two that runs on, with CPUs of its own, would take some of
    register's.
    """
    spec = pod_spec(pod())
    assert spec["initContainers"][-1]["name"] == "register"
    assert "restartPolicy" not in spec["initContainers"][-1]
    assert spec["containers"][0]["name"] == "slurmd"
