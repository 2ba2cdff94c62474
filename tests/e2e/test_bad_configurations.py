"""Each bad configuration that only slurmctld can tell is refused by a dry run of it, and its culprit is named."""

from tests.configurations import bad
from tests.e2e.harness import Slurm, until
from tests.e2e.test_configuration import accepted, controller, patch, restarts, until_running

BY_SLURMCTLD = [it for it in bad() if it.found_by != "lint"]


def test_no_bad_configuration_reaches_slurmctld(slurm: Slurm) -> None:
    life = restarts(slurm)
    before = controller(slurm)["spec"].get("extraConf", "")
    missed: list[str] = []
    try:
        for each in BY_SLURMCTLD:
            assert set(each.input) <= {"extraConf"}
            patch(slurm, extraConf=f"{before.rstrip()}\n{each.input['extraConf']}\n")

            def refused(message: str = each.message) -> bool:
                found = accepted(slurm)
                return found.get("status") == "False" and message in found["message"]

            try:
                until(f"{each.name} to be refused", refused, 20)
            except AssertionError:
                missed.append(f"{each.name}: {accepted(slurm)}")
            assert restarts(slurm) == life
            slurm.login("sinfo", "-h")
    finally:
        patch(slurm, extraConf=before)
    assert missed == []
    until_running(slurm)
