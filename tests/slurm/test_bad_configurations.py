"""Each bad configuration that only slurmctld can tell is refused by a dry run of it, and its
culprit is named.
"""

from collections.abc import Iterator
from typing import Any

import pytest

from sidecars.policy.conditions import Condition
from sidecars.policy.reasons import ConfigurationAccepted
from sidecars.reconfigure import slurmds
from sidecars.slurm import diagnosis
from tests.support.configurations import BadConfiguration, bad
from tests.support.real import as_processes, ports, rendered
from tests.support.real.as_processes import SLURMCTLD, Daemons
from tests.support.real.gate import Gate
from tests.support.real.harness import VALUES, until
from tests.support.real.rendered import Release

pytestmark = pytest.mark.timeout(400)

BY_SLURMCTLD = [it for it in bad() if it.found_by != "lint"]
NAMESPACE = "slurm"
WITHOUT_PLACE = {"topology-without-file"}
"""It lacks a file, which no line names."""
UNRELATED = ("pam_slurm_adopt", "(null)", "MailProg")
"""What slurmctld logs as well."""


class Gated:
    """slurmctld with the sidecars of its pod."""

    def __init__(self, daemons: Daemons, gate: Gate) -> None:
        self.daemons, self.gate, self.release = daemons, gate, daemons.release

    def life(self) -> str:
        """Changes when slurmctld is restarted."""
        found = self.daemons.output(SLURMCTLD, "sh", "-c", "cat /proc/[0-9]*/stat").splitlines()
        [oldest, *_] = sorted(
            (it.rpartition(")")[2].split()[19] for it in found if "(slurmctld)" in it), key=int
        )
        return oldest

    def until_judged(self, release: Release, status: str) -> Condition:
        """Publish a configuration and wait until the condition ConfigurationAccepted has this
        status.
        """
        self.gate.publish(release)
        return until(
            f"{status}", lambda: self.gate.accepted(release), is_it=lambda it: it.status == status
        )


@pytest.fixture(scope="module")
def gated(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Gated]:
    """slurmctld with two workers, whose records the dry runs know."""
    release = rendered.release(NAMESPACE, ports.BAD_CONFIGURATIONS, [VALUES], {})
    gate = Gate(tmp_path_factory.mktemp("volumes"), release)
    with as_processes.running(
        tmp_path_factory.mktemp("gated"), release, gate=gate, again=True
    ) as daemons:
        sha256 = release.config_set.sha256
        until("`reconfigure` to know what slurmctld runs", lambda: gate.status().running == sha256)
        yield Gated(daemons, gate)


def asked_for(release: Release, each: BadConfiguration) -> Release:
    """The release with the lines and NodeSets of a bad configuration. The operator would publish
    it.
    """
    assert set(each.input) <= {"extraConf", "nodesets"}
    documents = [
        with_lines(it, each.input.get("extraConf", "")) if it["kind"] == "Controller" else it
        for it in release.documents
    ]
    documents += [
        {
            "apiVersion": "slinky.slurm.net/v1beta1",
            "kind": "NodeSet",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"controllerRef": {"name": "slurm"}, "slurmd": {"image": "none"}}
            | spec
            | {"replicas": 0},
        }
        for name, spec in each.input.get("nodesets", {}).items()
    ]
    return rendered.composed(documents, NAMESPACE, release.ports, release.keys)


def with_lines(controller: dict[str, Any], text: str) -> dict[str, Any]:
    """A Controller with these lines in place of its own with the same keys: lint reports of one key
    with two values.
    """
    lines = text.splitlines()
    keys = {line.partition("=")[0].lower() for line in lines}
    before = controller["spec"].get("extraConf", "").splitlines()
    kept = [line for line in before if line.partition("=")[0].lower() not in keys]
    return controller | {
        "spec": controller["spec"] | {"extraConf": "".join(f"{line}\n" for line in (*kept, *lines))}
    }


@pytest.mark.parametrize("each", BY_SLURMCTLD, ids=lambda each: each.name)
def test_no_bad_configuration_reaches_slurmctld(gated: Gated, each: BadConfiguration) -> None:
    life, before = gated.life(), gated.gate.status().running
    assert before == gated.release.config_set.sha256
    refused = gated.until_judged(asked_for(gated.release, each), "False")
    assert each.message in refused.message
    assert not [it for it in UNRELATED if it in refused.message]
    assert "slurmctld continues with the former configuration" in refused.message
    source = (
        "NodeSet slurm/cpu spec.partition.config"
        if "nodesets" in each.input
        else "spec.extraConf line "
    )
    assert (f"({source}" in refused.message) == (each.name not in WITHOUT_PLACE)
    gated.daemons.login("sinfo", "-h")
    assert gated.gate.status().running == before
    gated.until_judged(gated.release, "True")
    assert gated.life() == life


ENDING = "SlurmdSpoolDir=/etc/hostname/spool"
"""No slurmd can create this folder, and no rule of the operator knows it."""
DEADLY = "JobCompType=jobcomp/filetxt\nJobCompLoc=/nonexistent/folder/file"
"""slurmctld ends when it can't open this file. The dry run has no such files."""


def only(lines: str) -> BadConfiguration:
    """One that only a running daemon can tell."""
    return BadConfiguration("", {"extraConf": lines}, "a daemon", "")


def quoted(gated: Gated, release: Release, daemon: str, place: str) -> str:
    """What the operator quotes of a daemon, with the origin of the line."""
    log = (gated.daemons.home / place / "log").read_text(errors="replace")
    files = {name: text.encode() for name, text in release.config_set.files.items()}
    found = diagnosis.quoted(log, files, daemon)
    assert found is not None, log
    return f"{release.config_set.origin(found.file, found.line)}: {found.reason}"


def line_of(release: Release, line: str) -> int:
    """The line of the Controller's extraConf."""
    lines: list[str] = release.controller.spec.extra_conf.splitlines()
    return lines.index(line) + 1


def starts(gated: Gated) -> dict[str, str]:
    """When Slurm takes each slurmd to have started."""
    listing = gated.daemons.login("scontrol", "-o", "show", "nodes")
    return {it.name: it.started for it in slurmds.in_service(listing, gated.release.files)}


def test_a_slurmd_that_takes_a_configuration_has_another_start_time_which_ends_the_watch(
    gated: Gated,
) -> None:
    before = starts(gated)
    assert len(before) == 2
    release = asked_for(gated.release, only("KillWait=31"))
    gated.gate.publish(release)

    def is_kept() -> bool:
        status = gated.gate.status()
        return status.running == release.config_set.sha256 and not status.watching

    until("the change to run, and no slurmd to be watched", is_kept)
    after = starts(gated)
    assert [it for it in before if after[it] == before[it]] == []
    gated.until_judged(gated.release, "True")


def test_a_line_that_ends_every_slurmd_is_taken_back_and_they_run_again(gated: Gated) -> None:
    life, before = gated.life(), gated.gate.status().running
    release = asked_for(gated.release, only(ENDING))
    refused = gated.until_judged(release, "False")
    assert refused.reason == ConfigurationAccepted.SLURMD_ENDED
    assert "slurmd ended on 2 workers of 2" in refused.message
    rejected = gated.gate.status().rejected
    assert rejected is not None
    assert (rejected.daemon, len(rejected.nodes)) == ("slurmd", 2)
    until("the former configuration to run", lambda: gated.gate.status().running == before)
    words = (
        f"spec.extraConf line {line_of(release, ENDING)}: fatal: mkdir(/etc/hostname/spool): Not "
        "a directory"
    )
    for node in rejected.nodes:
        assert quoted(gated, release, "slurmd", node).startswith(words)
    gated.daemons.until_idle()
    gated.until_judged(gated.release, "True")
    assert gated.life() == life


def test_a_line_that_slurmctld_ends_on_after_its_dry_run_is_taken_back(gated: Gated) -> None:
    before = gated.gate.status().running
    release = asked_for(gated.release, only(DEADLY))
    refused = gated.until_judged(release, "False")
    assert refused.reason == ConfigurationAccepted.RECONFIGURE_FAILED
    assert "slurmctld ended when it read the configuration" in refused.message
    until("the former configuration to run", lambda: gated.gate.status().running == before)
    line = line_of(release, DEADLY.splitlines()[1])
    words = (
        f"spec.extraConf line {line}: fatal: open /nonexistent/folder/file: No such file or "
        "directory"
    )
    assert quoted(gated, release, "slurmctld", SLURMCTLD).startswith(words)
    gated.daemons.until_idle()
    gated.until_judged(gated.release, "True")
