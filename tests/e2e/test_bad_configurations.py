"""Each bad configuration that only slurmctld can tell is refused by a dry run of it, and its culprit is named."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.configurations import BadConfiguration, bad
from tests.support.real.configuration import accepted, controller, patch, restarts, until_running
from tests.support.real.harness import Slurm, until

BY_SLURMCTLD = [it for it in bad() if it.found_by != "lint"]


@contextmanager
def asked_for(slurm: Slurm, each: BadConfiguration) -> Iterator[None]:
    """The lines and NodeSets of a bad configuration, while the block runs."""
    assert set(each.input) <= {"extraConf", "nodesets"}
    before = controller(slurm)["spec"].get("extraConf", "")
    nodesets = [
        {
            "apiVersion": "slinky.slurm.net/v1beta1",
            "kind": "NodeSet",
            "metadata": {"name": name, "namespace": "slurm"},
            "spec": {"controllerRef": {"name": "slurm"}, "slurmd": {"image": "none"}} | spec | {"replicas": 0},
        }
        for name, spec in each.input.get("nodesets", {}).items()
    ]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": nodesets})
    if nodesets:
        slurm.kubernetes.kubectl("apply", "-f", "-", stdin=text)
    if "extraConf" in each.input:
        # In place of the cluster's own: lint says of one key with two values.
        lines = each.input["extraConf"].splitlines()
        keys = {line.partition("=")[0].lower() for line in lines}
        kept = [line for line in before.splitlines() if line.partition("=")[0].lower() not in keys]
        patch(slurm, extraConf="".join(f"{line}\n" for line in (*kept, *lines)))
    try:
        yield
    finally:
        patch(slurm, extraConf=before)
        if nodesets:
            slurm.kubernetes.kubectl("delete", "--wait=false", "-f", "-", stdin=text)


def test_no_bad_configuration_reaches_slurmctld(slurm: Slurm) -> None:
    life, missed = restarts(slurm), []
    for each in BY_SLURMCTLD:

        def refused(message: str = each.message) -> bool:
            found = accepted(slurm)
            return found.get("status") == "False" and message in found["message"]

        with asked_for(slurm, each):
            try:
                until(f"{each.name} to be refused", refused, 60)
            except AssertionError:
                missed.append(f"{each.name}: {accepted(slurm)}")
            assert restarts(slurm) == life
            slurm.login("sinfo", "-h")
    assert missed == []
    until_running(slurm)
