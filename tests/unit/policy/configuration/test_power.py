"""Rules about power saving: `sidecars.policy.configuration.power`."""

import pytest

from sidecars.workloads.resources import NodeSet
from tests.support.builders import nodeset
from tests.support.linting import findings

SAVING = nodeset("cpu", powerSaving={"enabled": True, "startSeconds": 300})


def warnings(line: str, *nodesets: NodeSet) -> list[str]:
    """About power saving: those of a key of it."""
    found = findings(f"{line}\n", *nodesets)
    return [str(it) for it in found if it.severity == "warning" and line in it.message]


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("SuspendExcStates=external,DRAIN", "lacks RESERVED"),
        ("SuspendExcStates=DRAIN", "lacks EXTERNAL and RESERVED"),
        ("SuspendTime=600", "powerSaving.idleSeconds"),
        ("PrologTimeout=60", "begin up to 30 s after them"),
        ("PrologEpilogTimeout=60", "begin up to 30 s after them"),
        ("ResumeTimeout=60", "less than powerSaving.startSeconds, 300"),
    ],
)
def test_lines_that_keep_slurm_from_following_power_saving_are_reported(
    line: str, why: str
) -> None:
    [warning] = warnings(line, SAVING)
    assert why in warning
    assert "spec.extraConf line" in warning
    assert warnings(line, nodeset("cpu")) == []


@pytest.mark.parametrize(
    "line",
    [
        "",
        "SuspendExcStates=RESERVED,EXTERNAL",
        "SuspendTime=1000000000",
        "SuspendTime=INFINITE",
        "ResumeTimeout=300",
        "PrologEpilogTimeout=600",
        "ResumeRate=100\nSuspendRate=10",
        "SlurmctldParameters=power_save_interval=5",
    ],
)
def test_a_sites_own_values_that_power_saving_can_live_with_are_no_finding(line: str) -> None:
    assert findings(f"{line}\n", SAVING) == findings("", SAVING)


NUMBERS = ["\xb2", "\u0663", "9" * 5000, "-1", "1e3", "0x10", "NaN", "1_0", " ", "5 5", "\\", "#"]
KEYS = [
    *("SuspendTime", "ResumeTimeout", "PrologTimeout", "PrologEpilogTimeout", "MaxNodeCount"),
    *("SlurmdTimeout", "MaxJobCount", "SuspendExcStates", "TaskPlugin", "SchedulerParameters"),
]


@pytest.mark.parametrize("key", KEYS)
def test_whatever_stands_where_a_number_is_expected_is_read_without_an_error_of_ours(
    key: str,
) -> None:
    for number in NUMBERS:
        findings(f'{key}="{number}"\n{key}={number}\n', SAVING)
