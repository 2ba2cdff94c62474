"""A configuration that only a daemon can tell is bad, from the custom resource to the condition of
its Controller.

tests/slurm/test_bad_configurations.py has the others.
"""

import json

from tests.support.configurations import bad
from tests.support.real.configuration import accepted, controller, patch, restarts, until_running
from tests.support.real.harness import Slurm, until


def test_a_bad_configuration_of_a_nodeset_is_refused_with_its_culprit_and_slurmctld_lives_on(
    slurm: Slurm,
) -> None:
    [each] = [it for it in bad() if it.name == "partition-time"]
    life = restarts(slurm)
    [(name, spec)] = each.input["nodesets"].items()
    nodeset = {
        "apiVersion": "slinky.slurm.net/v1beta1",
        "kind": "NodeSet",
        "metadata": {"name": name, "namespace": "slurm"},
        "spec": {"controllerRef": {"name": "slurm"}, "slurmd": {"image": "none"}}
        | spec
        | {"replicas": 0},
    }

    def refused() -> bool:
        found = accepted(slurm)
        return found.get("status") == "False" and each.message in found["message"]

    slurm.kubernetes.kubectl("apply", "-f", "-", stdin=json.dumps(nodeset))
    try:
        until(f"{each.name} to be refused", refused)
        assert f"NodeSet slurm/{name} spec.partition.config" in accepted(slurm)["message"]
        slurm.login("sinfo", "-h")
    finally:
        slurm.kubernetes.kubectl("delete", "--wait=false", "-f", "-", stdin=json.dumps(nodeset))
    until_running(slurm)
    assert restarts(slurm) == life


def test_a_line_that_ends_every_slurmd_is_taken_back_and_quoted_while_a_job_continues(
    slurm: Slurm,
) -> None:
    life, workers = restarts(slurm), len(slurm.nodes())
    before = controller(slurm)["spec"].get("extraConf", "")
    lines = f"{before.rstrip()}\nSlurmdSpoolDir=/etc/hostname/spool\n".lstrip()
    job = slurm.submit_until_ended()
    slurm.until_running(job)
    try:
        patch(slurm, extraConf=lines)

        def quoted() -> bool:
            found = accepted(slurm)
            return (
                found.get("reason") == "SlurmdEnded"
                and "fatal: mkdir(/etc/hostname/spool)" in found["message"]
            )

        until("slurmd to be quoted", quoted)
        assert f"(spec.extraConf line {len(lines.splitlines())})" in accepted(slurm)["message"]
        # slurmd runs again, although nobody has changed the values.
        slurm.end(job)
        slurm.until_idle(workers)
        assert accepted(slurm)["reason"] == "SlurmdEnded"
    finally:
        patch(slurm, extraConf=before)
    until_running(slurm)
    assert restarts(slurm) == life
