"""The chart's NetworkPolicies, enforced: another tenant's pod reaches none of Slurm's daemons, and
Slurm works.

The local cluster's enforcer drops the packets (tests/cluster/network_policies.py), in this and in
all end-to-end tests.
"""

import json
from collections.abc import Iterator

import pytest

from tests.support.real.foreign import Foreign, address, foreign_pod
from tests.support.real.harness import Slurm, until, until_equal

ADMITTING = {
    "apiVersion": "networking.k8s.io/v1",
    "kind": "NetworkPolicy",
    "metadata": {"name": "tenant"},
    "spec": {
        "podSelector": {"matchLabels": {"app.kubernetes.io/name": "slurmrestd"}},
        "ingress": [
            {
                "from": [
                    {
                        "namespaceSelector": {
                            "matchLabels": {"kubernetes.io/metadata.name": "tenant"}
                        }
                    }
                ]
            }
        ],
    },
}


@pytest.fixture(scope="module")
def foreign(slurm: Slurm) -> Iterator[Foreign]:
    """Another tenant's pod."""
    with foreign_pod(slurm.kubernetes) as found:
        yield found


@pytest.mark.parametrize(
    ("daemon", "port"),
    [("slurmctld", 6817), ("slurmctld", 6816), ("slurmrestd", 6820), ("slurmd", 6818)],
)
def test_a_pod_of_another_tenant_reaches_no_daemon(
    slurm: Slurm, foreign: Foreign, daemon: str, port: int
) -> None:
    assert not foreign.connects(address(slurm.kubernetes, slurm.namespace, daemon), port)


def test_a_service_is_no_way_around_the_policies(slurm: Slurm, foreign: Foreign) -> None:
    assert not foreign.connects("slurm-controller.slurm", 6817)
    assert not foreign.connects("slurm-restapi.slurm", 6820)


def test_of_a_login_pod_another_tenant_reaches_ssh_alone(slurm: Slurm, foreign: Foreign) -> None:
    login = address(slurm.kubernetes, slurm.namespace, "login")
    assert foreign.connects(login, 22)
    assert not foreign.connects(login, 6818)


def test_a_policy_of_the_user_admits_what_the_chart_does_not(
    slurm: Slurm, foreign: Foreign
) -> None:
    slurmrestd = address(slurm.kubernetes, slurm.namespace, "slurmrestd")
    slurm.kubernetes.kubectl("-n", slurm.namespace, "apply", "-f", "-", stdin=json.dumps(ADMITTING))
    try:
        until("the tenant to be admitted", lambda: foreign.connects(slurmrestd, 6820))
    finally:
        slurm.kubernetes.kubectl("-n", slurm.namespace, "delete", "networkpolicy", "tenant")
    until("the tenant to be shut out again", lambda: not foreign.connects(slurmrestd, 6820))


def test_jobs_run_across_nodes_from_login_pods_and_within_jobs(slurm: Slurm) -> None:
    slurm.until_idle(2)
    assert sorted(slurm.login("srun", "-N2", "hostname").split()) == ["slinky-0", "slinky-1"]
    number = slurm.submit(
        "#!/bin/sh\nsrun --overlap hostname | sort\n", "-N2", "-w", "slinky-[0-1]"
    )
    until_equal("the batch job to complete", lambda: slurm.job(number)["JobState"], "COMPLETED")
    host = slurm.job(number)["BatchHost"]
    out = slurm.worker(f"slurm-worker-{host}", "cat", f"/tmp/job-{number}.out")  # noqa: S108
    assert out.split() == ["slinky-0", "slinky-1"]
    login = address(slurm.kubernetes, slurm.namespace, "login")
    banner = (
        "srun",
        "-N1",
        "timeout",
        "5",
        "bash",
        "-c",
        f"read -r line < /dev/tcp/{login}/22 && echo $line",
    )
    assert slurm.login(*banner).startswith("SSH-")
