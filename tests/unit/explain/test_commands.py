"""Slurm's commands in a pod: the script that runs them, and what they print."""

import subprocess
from pathlib import Path

import pytest

from sidecars.explain import commands
from sidecars.explain.core.records import Ending, Missing, Qos, Slurm, Waiting
from tests.unit.explain.printed import output, recorded, section


def read(out: str, err: str = "", subject: str = "job") -> tuple[Slurm, tuple[Missing, ...]]:
    return commands.read(commands.sections(out, err), subject)


def test_all_that_slurm_printed_is_decoded() -> None:
    slurm, missing = read(output())
    assert missing == ()
    assert slurm.nodes
    assert slurm.partitions
    assert slurm.jobs is not None
    assert slurm.jobs[0].pending is not None
    assert slurm.config is not None
    assert slurm.config["selecttypeparameters"] == "CR_CORE_MEMORY"
    assert slurm.waiting == (Waiting("5", 900, "bob", "Resources", ("cpu", "gpu")),)
    assert slurm.running == (
        Ending("7", 1_790_000_000.0, "bob", "cpu-0", "cpu"),
        Ending("8", None, "bob", "cpu-1", "cpu"),
    )


def test_an_unknown_job_is_no_job_and_not_a_missing_part() -> None:
    found = section("job", "", 1)
    slurm, missing = read(
        output(job=None) + found, "\x1ejob\nslurm_load_jobs error: Invalid job id specified\n"
    )
    assert slurm.jobs == ()
    assert missing == ()


def test_the_qos_of_slurmdbd_are_read_and_without_one_nothing_is_missing() -> None:
    text = "normal|cluster|00:00:00\nlow|suspend|00:00:30\n"
    slurm, missing = read(output(qos=text), subject="queue")
    assert slurm.qos == (Qos("normal", "cluster", "00:00:00"), Qos("low", "suspend", "00:00:30"))
    without, still = read(output() + section("qos", "", 1), subject="queue")
    assert without.qos is None
    assert missing == still == ()


def test_the_preempt_mode_of_a_partition_is_read() -> None:
    [record] = recorded("partitions")["partitions"]
    suspends = {"partitions": [record | {"preempt_mode": ["SUSPEND"]}], "errors": []}
    for answer, modes in ((suspends, {"SUSPEND"}), (recorded("partitions"), set())):
        [partition] = read(output(partitions=answer))[0].partitions or ()
        assert partition.preempt_modes == modes


def test_the_accounts_and_qos_of_a_partition_are_read_and_all_excludes_none() -> None:
    [record] = recorded("partitions")["partitions"]
    limits = {
        "accounts": {"allowed": "ALL", "deny": "guests,students"},
        "qos": {"allowed": "normal,high", "deny": ""},
    }
    answer = {"partitions": [record | limits], "errors": []}
    [partition] = read(output(partitions=answer))[0].partitions or ()
    assert (partition.allow_accounts, partition.deny_accounts) == ((), ("guests", "students"))
    assert (partition.allow_qos, partition.deny_qos) == (("normal", "high"), ())


def test_a_slurmctld_that_is_down_leaves_everything_unknown() -> None:
    slurm, [missing] = read(section("ping", "Slurmctld(primary) at c is DOWN"))
    assert slurm == Slurm()
    assert "is DOWN" in missing.why


def test_a_part_that_fails_is_named_and_the_others_are_read() -> None:
    found = output(partitions=None) + section("partitions", "", 1)
    slurm, missing = read(found, "\x1epartitions\nUnable to contact slurm controller\n")
    assert slurm.partitions is None
    assert slurm.nodes
    assert missing == (Missing("Slurm's partitions", "Unable to contact slurm controller"),)


@pytest.mark.parametrize("text", ["", "no JSON", '{"nodes": 5}', '{"nodes": [{"name": 3}]}', "[]"])
def test_a_part_that_cannot_be_read_is_unknown(text: str) -> None:
    slurm, [missing] = read(output(nodes=text))
    assert slurm.nodes is None
    assert missing.part == "Slurm's nodes"


def test_an_output_that_was_cut_off_keeps_what_was_complete() -> None:
    whole = output()
    slurm, missing = read(whole[: whole.index("\x1econfig")] + "\x1econfig\nSelectTy")
    assert slurm.nodes
    assert slurm.config is None
    assert slurm.jobs is None
    assert {it.part for it in missing} == {"Slurm's config", "Slurm's job", "Slurm's licenses"}


@pytest.mark.parametrize("job_id", ["12", "12_3", "12+1"])
def test_a_job_id_of_slurm_is_one(job_id: str) -> None:
    assert commands.JOB_ID.fullmatch(job_id)


@pytest.mark.parametrize("job_id", ["", "a", "12;id", "-1", "$(id)", "1 2", "12_"])
def test_other_text_is_none(job_id: str) -> None:
    assert not commands.JOB_ID.fullmatch(job_id)


ASSOCIATIONS = (
    "ClusterName=c Account=physics UserName=ada(1) Partition= ID=6 "
    "ParentAccount= Lineage=/science/physics/0-ada/ GrpJobs=N(2)\n"
    "ClusterName=c Account=physics UserName= Partition= ID=5 "
    "ParentAccount=science(3) Lineage=/science/physics/ GrpJobs=N(2)"
)


def slurm_in(folder: Path, ping: str) -> dict[str, str]:
    """Programs that stand for Slurm's, and the environment that finds them."""
    folder.mkdir()
    (folder / "scontrol").write_text(
        f'#!/bin/sh\ncase "$*" in ping) echo "{ping}" ;; *flags=assoc) echo "{ASSOCIATIONS}" ;;'
        ' *) echo "$@"; echo oops >&2 ;; esac\n'
    )
    (folder / "squeue").write_text(
        '#!/bin/sh\nfor last; do :; done; case $last in %a) echo physics ;; *) echo "$@" ;; esac\n'
    )
    for program in folder.iterdir():
        program.chmod(0o755)
    return {"PATH": f"{folder}:/usr/bin:/bin"}


def test_the_script_runs_each_command_with_the_job_as_a_parameter(tmp_path: Path) -> None:
    env = slurm_in(tmp_path / "bin", "Slurmctld(primary) at c is UP")
    done = subprocess.run(
        commands.script("job", "12"), env=env, capture_output=True, text=True, check=True
    )
    found = commands.sections(done.stdout, done.stderr)
    assert set(found) == {
        "ping",
        "nodes",
        "partitions",
        "reservations",
        "config",
        "job",
        "licenses",
        "limits",
        "queue",
    }
    assert found["job"].out.strip() == "show job 12 --json"
    assert found["job"].err == "oops"
    assert (
        found["limits"].out.strip()
        == "-o show assoc_mgr accounts=science,physics,root flags=assoc,qos"
    )
    assert found["queue"].out.startswith("-h -t PD,R,CG,S --sort=-p ")
    assert all(it.status == 0 for it in found.values())


def test_the_script_asks_nothing_more_of_a_slurmctld_that_is_down(tmp_path: Path) -> None:
    env = slurm_in(tmp_path / "bin", "Slurmctld(primary) at c is DOWN")
    done = subprocess.run(
        commands.script("job", "12"), env=env, capture_output=True, text=True, check=True
    )
    assert set(commands.sections(done.stdout, done.stderr)) == {"ping"}
