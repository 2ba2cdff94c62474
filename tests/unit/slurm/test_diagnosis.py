"""What the words of Slurm's daemons mean. The outputs are those of Slurm 26.05.5."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.slurm import diagnosis
from sidecars.slurm.diagnosis import Culprit

CONF = """ClusterName=lab
SlurmctldHost=ctl-0(ctl-0.svc)
PrologFlags=Contain
ProctrackType=proctrack/linuxproc
AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageTRES=gres/gpu
SelectType=select/cons_tres
SlurmctldParameters=enable_configless
MailProg=/bin/none
NodeSet=w Feature=w
PartitionName=w Nodes=w QOS=high
"""
FILES = {"slurm.conf": CONF.encode(), "cgroup.conf": b"CgroupPlugin=disabled\n"}
STAMP = "[2026-01-01T00:00:00.000] "
MESSAGES = {
    "Fooo=1": (
        (
            "error: _parse_next_key: Parsing error at unrecognized key: Fooo\nfatal: Unable to "
            "process configuration file"
        ),
        Culprit("Parsing error at unrecognized key: Fooo", "slurm.conf", 12),
    ),
    "PartitionName=p3 Nodes=nosuch": (
        (
            "error: Configured MailProg is invalid\nerror: _find_node_record: lookup failure for "
            'node "nosuch"\n'
            "build_part_bitmap: invalid node name nosuch in partition\nfatal: Invalid node names "
            "in partition p3"
        ),
        Culprit(
            'Invalid node names in partition p3; lookup failure for node "nosuch"', "slurm.conf", 12
        ),
    ),
    "PartitionName=w Nodes=ALL": (
        "fatal: _build_single_partitionline_info: duplicate entry for partition w",
        Culprit("duplicate entry for partition w", "slurm.conf", 12),
    ),
    "SlurmctldTimeout=abc": (
        (
            'error: SlurmctldTimeout value "abc" is not a valid number\nfatal: Unable to process '
            "configuration file"
        ),
        Culprit('SlurmctldTimeout value "abc" is not a valid number', "slurm.conf", 12),
    ),
    "PartitionName=z Nodes=ALL Default=MAYBE": (
        (
            'error: "MAYBE" is not a valid option for "Default"\n'
            'error: Parse error in file /etc/slurm/slurm.conf line 12: " Default=MAYBE"\n'
            "fatal: Unable to process configuration file"
        ),
        Culprit(
            '"MAYBE" is not a valid option for "Default"; can\'t parse " Default=MAYBE"',
            "slurm.conf",
            12,
        ),
    ),
    "TopologyPlugin=topology/tree": (
        (
            "error: s_p_parse_file: cannot stat file /etc/slurm/topology.conf: No such file or "
            "directory, retrying in 1sec"
        ),
        Culprit(
            "slurmctld needs the file /etc/slurm/topology.conf, which does not exist",
            "topology.conf",
        ),
    ),
    "JobSubmitPlugins=lua": (
        (
            "error: If using PrologFlags=Contain for pam_slurm_adopt, proctrack/cgroup is "
            "required. If not using pam_slurm_adopt, please ignore error.\n"
            "error: job_submit/lua: Unable to stat /etc/slurm/job_submit.lua: No such file or "
            "directory\n"
            "error: Couldn't load specified plugin name for job_submit/lua: Plugin init() "
            "callback failed\n"
            "error: cannot create job_submit context for job_submit/lua\n"
            "fatal: failed to initialize job_submit plugin"
        ),
        Culprit(
            (
                "job_submit/lua: Unable to stat /etc/slurm/job_submit.lua: No such file or "
                "directory; Couldn't load specified plugin name for job_submit/lua: Plugin "
                "init() callback failed; cannot create job_submit context for job_submit/lua"
            ),
            "slurm.conf",
            12,
        ),
    ),
    "AcctGatherEnergyType=acct_gather_energy/nosuch": (
        (
            "error: cannot create acct_gather_energy context for acct_gather_energy/nosuch\n"
            "fatal: can not open the (null) plugin"
        ),
        Culprit(
            "cannot create acct_gather_energy context for acct_gather_energy/nosuch",
            "slurm.conf",
            12,
        ),
    ),
    "Licenses=a:b:c": (
        "fatal: Invalid configured licenses: a:b:c",
        Culprit("Invalid configured licenses: a:b:c", "slurm.conf", 12),
    ),
}


@pytest.mark.parametrize("line", MESSAGES)
def test_the_culprit_is_named_with_its_line(line: str) -> None:
    message, culprit = MESSAGES[line]
    output = "".join(f"{STAMP}{text}\n" for text in message.splitlines())
    assert (
        diagnosis.diagnose(output, {**FILES, "slurm.conf": f"{CONF}{line}\n".encode()}) == culprit
    )


def test_files_of_pyxis_that_slurmctld_skips_are_no_reason_to_end() -> None:
    skipped = (
        "error: Slurm does not support glob parsing. /usr/share/pyxis/* from plugstack.conf will "
        "be skipped over. If this expected, ignore this message and set DebugFlags=GLOB_SILENCE "
        "in your slurm.conf."
    )
    lines = (
        skipped,
        'error: "Include" failed in file /etc/slurm/plugstack.conf line 1',
        "fatal: out of licenses: a",
    )
    output = "".join(f"{STAMP}{text}\n" for text in lines)
    files = {**FILES, "plugstack.conf": b"include /usr/share/pyxis/*\n"}
    assert diagnosis.diagnose(output, files).reason == "out of licenses: a"


LOOP = """slurmd: error: CPU frequency setting not configured for this node
slurmd: fatal: mkdir(/proc/nope): No such file or directory
slurmd ended with status 1; starting it again
slurmd: error: _fetch: no answer
slurmd: fatal: mkdir(/proc/nope): No such file or directory
slurmd ended with status 1; starting it again
slurmd: error: of the start that continues
"""


def test_of_a_log_with_many_starts_the_last_one_that_ended_counts() -> None:
    assert diagnosis.last_end(LOOP).splitlines() == LOOP.splitlines()[2:5]
    started = (
        "slurmd: error: task_g_init: no such plugin\nslurmd: error: slurmd initialization "
        "failed\nslurmd: info"
    )
    assert diagnosis.last_end(started).endswith("slurmd initialization failed")


def test_a_daemon_that_runs_has_not_ended() -> None:
    assert (
        diagnosis.last_end("slurmd: error: not responding\nslurmd: slurmd started on now\n") == ""
    )


def test_an_end_is_quoted_with_its_level() -> None:
    files = {**FILES, "slurm.conf": f"{CONF}SlurmdSpoolDir=/proc/nope\n".encode()}
    found = diagnosis.quoted(LOOP, files, "slurmd")
    assert found is not None
    assert found.reason.startswith("fatal: mkdir(/proc/nope): No such file or directory")
    assert (found.file, found.line) == ("slurm.conf", 12)
    failed = "error: Unable to initialize slurmd spooldir\nerror: slurmd initialization failed\n"
    assert diagnosis.quoted(failed, FILES, "slurmd") == Culprit(
        "error: Unable to initialize slurmd spooldir; slurmd initialization failed"
    )
    assert diagnosis.quoted("slurmd: running\n", FILES, "slurmd") is None


def test_what_slurmd_ended_on_is_found_in_the_configuration() -> None:
    files = {**FILES, "slurm.conf": f"{CONF}SlurmdSpoolDir=/proc/nope\n".encode()}
    found = diagnosis.diagnose(
        "slurmd: fatal: mkdir(/proc/nope): No such file or directory\n", files, "slurmd"
    )
    assert found == Culprit("mkdir(/proc/nope): No such file or directory", "slurm.conf", 12)


def test_silence_is_reported_as_silence() -> None:
    assert diagnosis.diagnose("", FILES).reason == "slurmctld ended without a message"


LINES = st.lists(
    st.sampled_from(
        [
            "slurmd: fatal: ",
            "error: ",
            "fatal",
            "slurmctld: error: Parsing error at unrecognized key: ",
            "error: Parse error in file /etc/slurm/slurm.conf line 99999999999999999999: ",
            "\x1b[2J\x00\u2028",
            "\N{LATIN SMALL LETTER A WITH DIAERESIS}" * 50,
        ]
    )
    | st.text(max_size=30),
    max_size=12,
).map("\n".join)


@given(LINES)
def test_whatever_a_daemon_logs_is_a_reason_or_none(log: str) -> None:
    files = {"slurm.conf": b"ClusterName=lab\n\xff\n"}
    found = diagnosis.quoted(log, files, "slurmd")
    assert found is None or found.reason.startswith(("fatal: ", "error: "))
    assert diagnosis.diagnose(log, files).reason


@pytest.mark.parametrize("word", ["a", "error: ", "=", " ", "/", "fatal: error: "])
def test_a_log_of_one_long_line_costs_no_time(word: str) -> None:
    line = "slurmd: fatal: " + word * (65_536 // len(word))
    began = time.process_time()
    diagnosis.quoted("\n".join([line] * 4), {"slurm.conf": b"ClusterName=lab\n"}, "slurmd")
    assert time.process_time() - began < 2
