"""What the dry run reads."""

import pytest

from sidecars.reconfigure import dryrun
from sidecars.reconfigure.dryrun import Place

CONF = """ClusterName=lab
SlurmctldHost=ctl-0(ctl-0.svc)
SlurmctldHost=ctl-1(ctl-1.svc)
SlurmctldAddr=ctl.svc
StateSaveLocation=/var/spool/slurmctld/lab
SlurmctldLogFile=/var/log/slurm/slurmctld.log
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageTRES=gres/gpu
SlurmctldPrimaryOnProg=/bin/on
NodeSet=w Feature=w
PartitionName=w Nodes=w QOS=high
"""
FILES = {"slurm.conf": CONF.encode(), "cgroup.conf": b"CgroupPlugin=disabled\n"}
PLACE = Place(host="ctl-0", port=26817, state="/etc/slurm/.gate/state", nodes=("w-0", "w-1"))


def prepared(conf: str = CONF, **files: str) -> list[str]:
    """The lines of the dry run's slurm.conf."""
    found = dryrun.prepare(
        {"slurm.conf": conf.encode()} | {k: v.encode() for k, v in files.items()}, PLACE
    )
    return found["slurm.conf"].decode().splitlines()


def test_it_touches_nothing_that_the_running_slurmctld_uses() -> None:
    lines = prepared()
    for key in (
        "ctl-1",
        "SlurmctldAddr",
        "/var/spool",
        "/var/log",
        "slurmdbd",
        "PrimaryOnProg",
        "gres/gpu",
        "QOS",
    ):
        assert not [line for line in lines if key in line]
    for line in (
        "SlurmctldHost=ctl-0(127.0.0.1)",
        "SlurmctldPort=26817",
        "StateSaveLocation=/etc/slurm/.gate/state",
    ):
        assert lines.count(line) == 1


@pytest.mark.parametrize(
    "plugin", ["jobcomp/filetxt", "FileTxt", "jobcomp/script", "elasticsearch"]
)
def test_no_job_completion_is_written_anywhere(plugin: str) -> None:
    lines = prepared(f"ClusterName=lab\nJobCompType={plugin}\n")
    assert [it for it in lines if it.startswith("JobCompType")] == ["JobCompType=jobcomp/none"]


@pytest.mark.parametrize("plugin", ["jobcomp/nosuch", "jobcomp/lua"])
def test_a_plugin_of_job_completions_that_slurm_lacks_or_that_reads_a_file_is_tried(
    plugin: str,
) -> None:
    lines = prepared(f"ClusterName=lab\nJobCompType={plugin}\n")
    assert [it for it in lines if it.startswith("JobCompType")] == [f"JobCompType={plugin}"]


def test_every_line_stays_where_it_was() -> None:
    lines = prepared()
    assert (lines[0], lines[9], lines[10]) == (
        "ClusterName=lab",
        "NodeSet=w Feature=w",
        "PartitionName=w Nodes=w",
    )


def test_other_settings_of_a_line_stay() -> None:
    assert prepared("ClusterName=a SlurmctldPort=1 KillWait=5\n")[0] == "ClusterName=a KillWait=5"


def test_a_qos_of_a_partition_is_checked_where_no_slurmdbd_could_know_it() -> None:
    assert "PartitionName=w Nodes=w QOS=high" in prepared("PartitionName=w Nodes=w QOS=high\n")


def test_live_dynamic_nodes_are_declared_unless_the_file_does_so() -> None:
    declared = [line for line in prepared(CONF + "NodeName=w-1\n") if line.startswith("NodeName=")]
    assert declared == ["NodeName=w-1", "NodeName=w-0 NodeAddr=127.0.0.1 State=UNKNOWN"]


def test_included_files_are_made_harmless_as_well() -> None:
    files = {"slurm.conf": b"Include more.conf\n", "more.conf": b"SlurmctldPort=1\nKillWait=5\n"}
    assert dryrun.prepare(files, PLACE)["more.conf"] == b"\nKillWait=5\n"


def test_scontrol_gets_the_way_to_this_pod_alone() -> None:
    files = {"slurm.conf": FILES["slurm.conf"] + b"SlurmUser=slurm\n"}
    assert dryrun.client_conf(files, "ctl-0", 6817).decode().splitlines() == [
        "ClusterName=lab",
        "SlurmUser=slurm",
        "SlurmctldHost=ctl-0(127.0.0.1)",
        "SlurmctldPort=6817",
        "MessageTimeout=60",
    ]


def test_every_slurmctld_is_known_by_name_and_address_in_order() -> None:
    text = b"SlurmctldHost=ctl-0(ctl-0.internal.lab)\nslurmctldhost=ctl-1\n"
    assert dryrun.hosts({"slurm.conf": text}) == [
        dryrun.Host("ctl-0", "ctl-0.internal.lab"),
        dryrun.Host("ctl-1", "ctl-1"),
    ]
    assert dryrun.hosts({"slurm.conf": b"nonsense\n"}) == []


def test_dynamic_nodes_differ_from_declared_ones() -> None:
    listing = "NodeName=a State=IDLE+DYNAMIC_NORM Foo=1\nNodeName=b State=IDLE Foo=1\n"
    assert dryrun.dynamic_nodes(listing) == ("a",)


def test_a_changed_setting_is_named_with_both_values() -> None:
    after = {"slurm.conf": b"SlurmctldPort=7\n"}
    assert dryrun.changed(FILES, after, ["SlurmctldPort", "KillWait"]) == [
        "SlurmctldPort (unset → 7)"
    ]
