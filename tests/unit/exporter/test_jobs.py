"""Samples of jobs. Expected values are counted by hand from the records in each test."""

import pytest

from sidecars.exporter.jobs import add_jobs, squeue_state
from sidecars.slurm.usage import JobUsage
from tests.unit.exporter.exposition import everything, nonzero, values

NOW = 1_800_000_000.0
GIB = 2**30


def job(number: int, *words: str, **fields: object) -> JobUsage:
    given = {
        "partition": "gpu",
        "user": "anna",
        "user_id": 1001,
        "account": "physics",
        "cpus": 4,
        "node_count": 1,
    }
    return JobUsage(number, frozenset(words), **(given | fields))  # type: ignore[arg-type]


def pending(number: int, waits: int = 30, **fields: object) -> JobUsage:
    since = int(NOW) - waits
    return job(
        number,
        "PENDING",
        **({"reason": "Resources", "submit_time": since, "eligible_time": since} | fields),
    )


def counted(
    *jobs: JobUsage, partitions: tuple[str, ...] = (), most: int = 100
) -> dict[str, dict[tuple[str, ...], float]]:
    samples = everything()
    add_jobs(samples, jobs, partitions, now=NOW, most_jobs=most)
    return values(samples)


def test_jobs_are_counted_by_state_and_each_state_is_present() -> None:
    found = counted(
        job(1, "RUNNING"),
        job(2, "RUNNING", "CONFIGURING"),
        job(3, "COMPLETED", "COMPLETING"),
        pending(4),
    )
    assert nonzero(found["slurm_jobs"]) == {("running",): 2, ("completed",): 1, ("pending",): 1}
    assert found["slurm_jobs"]["node_fail",] == 0
    assert nonzero(found["slurm_jobs_flagged"]) == {("configuring",): 1, ("completing",): 1}
    assert found["slurm_jobs_total"] == {(): 4}
    assert found["slurm_jobs_completing_total"] == {(): 1}
    assert found["slurm_queue_completing"] == {(): 1}
    assert found["slurm_queue_running"] == {(): 1}


def test_a_state_that_no_slurm_documents_counts_as_unrecognized() -> None:
    samples = everything()
    add_jobs(samples, [job(1, "DREAMING")], (), now=NOW, most_jobs=0)
    assert nonzero(values(samples)["slurm_jobs"]) == {("unrecognized",): 1}
    assert nonzero(values(samples)["slurm_jobs_flagged"]) == {("unrecognized",): 1}
    assert samples.unreadable == 1


def test_tasks_of_an_array_count_one_by_one_but_in_the_references_names() -> None:
    found = counted(pending(1, tasks=10_000, cpus=2))
    assert found["slurm_jobs"]["pending",] == 10_000
    assert found["slurm_partition_jobs"]["gpu", "pending"] == 10_000
    assert found["slurm_pending_cpus"] == {(): 20_000}
    assert found["slurm_jobs_pending_total"] == {(): 1}
    assert found["slurm_queue_pending"] == {(): 10_000}


def test_pending_jobs_are_counted_by_reason_in_each_of_their_partitions_and_once_in_all() -> None:
    found = counted(
        pending(1, partition="cpu,gpu"),
        pending(2, reason="Dependency"),
        pending(3, reason="Licenses"),
    )
    assert found["slurm_pending_jobs"] == {("Resources",): 1, ("Dependency",): 1, ("Licenses",): 1}
    assert found["slurm_partition_pending_jobs"] == {
        ("cpu", "Resources"): 1,
        ("gpu", "Resources"): 1,
        ("gpu", "Dependency"): 1,
        ("gpu", "Licenses"): 1,
    }
    assert found["slurm_queue_pending_dependency"] == {(): 1}


def test_a_held_job_is_reported_as_such_and_neither_waits_nor_asks_for_resources() -> None:
    found = counted(
        pending(1, waits=100_000, released=False, reason="JobHeldUser"), pending(2, node_count=3)
    )
    assert found["slurm_jobs_held"] == {(): 1}
    assert found["slurm_jobs_hold_total"] == {(): 1}
    assert found["slurm_pending_cpus"] == {(): 4}
    assert nonzero(found["slurm_pending_jobs_older"]) == {}
    assert found["slurm_partition_pending_nodes_max"] == {("gpu",): 3}
    assert found["slurm_partition_jobs_pending_maxnodecount_total"] == {("gpu",): 3}
    assert found["slurm_pending_jobs"] == {("JobHeldUser",): 1, ("Resources",): 1}


def test_waiting_jobs_are_counted_by_age_since_they_could_start() -> None:
    found = counted(
        pending(1, 59), pending(2, 60), pending(3, 3601), pending(4, 90_000), pending(5, -100)
    )
    older = {int(age): count for (age,), count in found["slurm_pending_jobs_older"].items()}
    assert older == {60: 3, 600: 2, 3600: 2, 21_600: 1, 86_400: 1}
    assert found["slurm_pending_oldest_timestamp_seconds"] == {(): NOW - 90_000}
    assert found["slurm_partition_pending_oldest_timestamp_seconds"] == {("gpu",): NOW - 90_000}


@pytest.mark.parametrize(
    "reason",
    ["Dependency", "QOSMaxJobsPerUserLimit", "AssocGrpCpuLimit", "Licenses", "JobArrayTaskLimit",
     "Reservation", "PartitionDown", "BeginTime"],
)  # fmt: skip
def test_a_job_that_waits_for_something_else_than_nodes_could_not_have_started(reason: str) -> None:
    found = counted(pending(1, 90_000, reason=reason), pending(2, 700, reason="Resources"))
    older = {int(age): count for (age,), count in found["slurm_pending_jobs_older"].items()}
    assert older == {60: 1, 600: 1, 3600: 0, 21_600: 0, 86_400: 0}


def test_without_a_waiting_job_there_is_no_oldest_one() -> None:
    found = counted(job(1, "RUNNING"))
    assert "slurm_pending_oldest_timestamp_seconds" not in found


def test_allocated_resources_are_those_of_running_and_suspended_jobs() -> None:
    found = counted(
        job(
            1,
            "RUNNING",
            cpus=8,
            memory=2048,
            gres=("gpu:h100:2(IDX:0-1)", "gpu:h100:2(IDX:0,3),shard:1"),
        ),
        job(2, "SUSPENDED", cpus=1, memory=1024, user="ben", user_id=1002, account="chemistry"),
        job(3, "COMPLETED", cpus=64, memory=99, gres=("gpu:h100:8",)),
        pending(4, cpus=16),
    )
    assert found["slurm_jobs_cpus_allocated"] == {(): 9}
    assert found["slurm_jobs_memory_allocated_bytes"] == {(): 3 * GIB}
    assert found["slurm_jobs_gpus_allocated"] == {("h100",): 4}
    assert found["slurm_user_cpus_allocated"] == {("anna",): 8, ("ben",): 1}
    assert found["slurm_user_gpus_allocated"] == {("h100", "anna"): 4}
    assert found["slurm_account_memory_allocated_bytes"] == {
        ("physics",): 2 * GIB,
        ("chemistry",): GIB,
    }
    assert found["slurm_jobs_memory_alloc_bytes"] == {(): 3072}


def test_users_and_accounts_have_pending_and_running_even_when_zero() -> None:
    found = counted(pending(1), job(2, "RUNNING", user="ben", user_id=1002))
    assert found["slurm_user_jobs"] == {
        ("pending", "anna"): 1,
        ("running", "anna"): 0,
        ("pending", "ben"): 0,
        ("running", "ben"): 1,
    }
    assert found["slurm_account_jobs"] == {("physics", "pending"): 1, ("physics", "running"): 1}
    assert found["slurm_user_jobs_pending_total"] == {("1001", "anna"): 1, ("1002", "ben"): 0}
    assert found["slurm_user_jobs_running"] == {("anna",): 0, ("ben",): 1}


def test_a_partition_without_jobs_has_zeros() -> None:
    found = counted(partitions=("empty",))
    assert found["slurm_partition_jobs"]["empty", "pending"] == 0
    assert found["slurm_partition_pending_cpus"] == {("empty",): 0}
    assert found["slurm_partition_jobs_pending_total"] == {("empty",): 0}


def test_single_jobs_have_series_up_to_the_bound_running_ones_first() -> None:
    samples = everything()
    jobs = [
        pending(1),
        pending(2),
        job(3, "RUNNING", name='a "b"\n', memory=1024),
        job(4, "COMPLETED"),
    ]
    assert add_jobs(samples, jobs, (), now=NOW, most_jobs=2) == 1
    found = values(samples)
    # Labels in the order of their names: account, job_id, name, partition, reason, state, user.
    assert found["slurm_job_info"] == {
        ("physics", "3", 'a "b" ', "gpu", "", "running", "anna"): 1,
        ("physics", "1", "", "gpu", "Resources", "pending", "anna"): 1,
    }
    assert found["slurm_job_memory_allocated_bytes"] == {("3",): GIB}


def test_reasons_that_are_no_words_of_slurm_are_not_labels() -> None:
    found = counted(
        *(pending(number, reason=f"made_up_{number}") for number in range(500)),
        pending(999, reason="a b"),
    )
    assert len(found["slurm_pending_jobs"]) == 401
    assert found["slurm_pending_jobs"]["unrecognized",] == 101


def test_the_words_of_squeue() -> None:
    assert squeue_state(frozenset({"COMPLETED", "COMPLETING"})) == "completing"
    assert squeue_state(frozenset({"RUNNING", "CONFIGURING"})) == "configuring"
    assert squeue_state(frozenset({"OUT_OF_MEMORY"})) == "out_of_memory"


def test_ten_thousands_of_jobs_add_up_in_every_view() -> None:
    jobs = [
        pending(
            number, partition=f"p{number % 10}", user=f"u{number % 500}", account=f"a{number % 50}"
        )
        if number % 5
        else job(
            number,
            "RUNNING",
            partition=f"p{number % 10}",
            user=f"u{number % 500}",
            account=f"a{number % 50}",
        )
        for number in range(50_000)
    ]
    found = counted(*jobs, most=1000)
    assert found["slurm_jobs"]["running",] == 10_000
    assert found["slurm_jobs"]["pending",] == 40_000
    for name, groups in (("partition", 10), ("user", 500), ("account", 50)):
        series = found[f"slurm_{name}_jobs"]
        assert sum(series.values()) == 50_000
        assert len({labels for labels in series if "pending" in labels}) == groups
    assert found["slurm_jobs_cpus_allocated"] == {(): 40_000}
    assert len(found["slurm_job_info"]) == 1000
