"""Slurm's reasons in words: all that Slurm 26.05 can report, and the limit that each names."""

from pathlib import Path

import pytest

from sidecars.slurm.job_reasons import REASONS, UNKNOWN, Limit, words

NAMES = (Path(__file__).parent / "fixtures" / "job-state-reasons-26.05.txt").read_text().split()
"""The strings of src/common/job_state_reason.c at slurm-26-05-3-1."""


def test_the_recorded_list_is_that_of_slurm() -> None:
    assert len(NAMES) == 216
    assert len(set(NAMES)) == 216


@pytest.mark.parametrize("name", NAMES)
def test_each_reason_has_cause_and_remedy(name: str) -> None:
    found = words(name)
    assert found is not UNKNOWN
    assert found.cause.endswith(".")
    assert found.remedy


def test_the_table_has_no_reason_that_slurm_does_not_have() -> None:
    assert set(REASONS) <= set(NAMES)


@pytest.mark.parametrize(
    ("name", "limit"),
    [
        ("QOSGrpCpuLimit", Limit(of_qos=True, key="GrpTRES", tres="cpu")),
        ("QOSGrpCPUMinutesLimit", Limit(of_qos=True, key="GrpTRESMins", tres="cpu")),
        ("AssocGrpCPURunMinutesLimit", Limit(of_qos=False, key="GrpTRESRunMins", tres="cpu")),
        ("QOSMaxGRESPerUser", Limit(of_qos=True, key="MaxTRESPU", tres="gres")),
        ("MaxGRESPerAccount", Limit(of_qos=True, key="MaxTRESPA", tres="gres")),
        ("MaxMemoryRunMinsPerUser", Limit(of_qos=True, key="MaxTRESRunMinsPU", tres="mem")),
        ("QOSMaxCpuMinutesPerJobLimit", Limit(of_qos=True, key="MaxTRESMinsPJ", tres="cpu")),
        ("AssocMaxWallDurationPerJobLimit", Limit(of_qos=False, key="MaxWallPJ", tres="")),
        ("AssocMaxJobsLimit", Limit(of_qos=False, key="MaxJobs", tres="")),
        ("QOSMaxJobsPerUserLimit", Limit(of_qos=True, key="MaxJobsPU", tres="")),
        ("QOSMaxSubmitJobPerUserLimit", Limit(of_qos=True, key="MaxSubmitJobsPU", tres="")),
        ("MaxSubmitJobsPerAccount", Limit(of_qos=True, key="MaxSubmitJobsPA", tres="")),
        ("QOSGrpWallLimit", Limit(of_qos=True, key="GrpWall", tres="")),
        ("QOSMinCpuNotSatisfied", Limit(of_qos=True, key="MinTRESPJ", tres="cpu")),
        ("AssocMaxBBPerNode", Limit(of_qos=False, key="MaxTRESPN", tres="bb")),
    ],
)
def test_a_limit_is_read_from_its_name(name: str, limit: Limit) -> None:
    assert words(name).limit == limit


def test_what_the_job_itself_exceeds_does_not_end_and_what_others_use_does() -> None:
    assert not words("AssocMaxCpuPerJobLimit").waits
    assert not words("QOSMinNode").waits
    assert words("AssocGrpCpuLimit").waits
    assert words("Priority").waits
    assert not words("JobHeldUser").waits


def test_a_reason_of_a_later_slurm_is_unknown() -> None:
    assert words("WaitsForTheMoon") is UNKNOWN
    assert words("MaxMemPerLimit").limit is None
