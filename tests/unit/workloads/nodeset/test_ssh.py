"""sshd and sssd of worker pods."""

import pytest

from sidecars.workloads import nodeset as render
from sidecars.workloads.facts import NOTHING, digest
from sidecars.workloads.resources import ResourceError
from tests.support import builders
from tests.support.builders import controller, mounts, nodeset, part
from tests.unit.workloads.nodeset.making import SSH, pod


def test_with_ssh_a_worker_has_sshd_and_sssd_configuration() -> None:
    workload = pod(nodeset(**SSH))
    found = mounts(workload, "slurmd")
    assert (found["/etc/ssh/sshd_config"], found["/etc/sssd/sssd.conf"]) == (
        "ssh-config",
        "sssd-conf",
    )
    assert found["/run/slurm-node"] == "slurm-node"
    assert {port["name"]: port["containerPort"] for port in part(workload, "slurmd")["ports"]} == {
        "slurmd": 6818,
        "ssh": 22,
    }
    annotations = workload["metadata"]["annotations"]
    assert annotations["slinky.slurm.net/sssd-conf-hash"] == digest("sssd")
    assert annotations["slinky.slurm.net/sshd-conf-hash"] != NOTHING


def test_with_ssh_a_nodeset_owns_a_config_map() -> None:
    [health] = render.objects(nodeset(), controller(), builders.facts())
    assert health["metadata"]["name"] == "slurm-worker-slinky-health"
    [_, config_map] = render.objects(nodeset(**SSH), controller(), builders.facts())
    lines = config_map["data"]["sshd_config"].splitlines()
    assert config_map["metadata"]["name"] == "slurm-worker-slinky-ssh-config"
    assert config_map["metadata"]["ownerReferences"][0]["name"] == "slurm-worker-slinky"
    assert "AuthenticationMethods publickey password" in lines
    assert lines[-1] == "MaxAuthTries 2"


def test_ssh_without_an_sssd_conf_is_refused() -> None:
    with pytest.raises(ResourceError, match=r"^spec\.ssh\.sssdConfRef: "):
        pod(nodeset(ssh={"enabled": True}))
