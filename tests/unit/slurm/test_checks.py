"""Jobs of checks: their records, and how Slurm's answers become them."""

import json
from typing import Any

import pytest

from sidecars.slurm import protocol
from sidecars.slurm.checks import CheckJob, CheckRequest, WaitingJob
from sidecars.slurm.errors import Malformed, NotFound
from sidecars.slurm.protocol import Request


def decoded(request: Request[Any], *jobs: dict[str, Any]) -> Any:
    return protocol.decode(request, 200, json.dumps({"jobs": jobs, "errors": []}).encode())


def test_a_job_has_its_nodes_to_itself_and_is_never_requeued() -> None:
    request = protocol.submit_check(
        CheckRequest("check-net", "#!/bin/sh", ("a", "b"), "all", 2, 1000, "check-net.a")
    )
    body = request.body
    assert body is not None
    job = body["job"]
    assert (job["required_nodes"], job["nodes"], job["shared"], job["requeue"]) == (
        ["a", "b"],
        "2",
        ["none"],
        False,
    )
    assert (job["time_limit"]["number"], job["deadline"], job["reservation"]) == (
        2,
        1000,
        "check-net.a",
    )
    assert protocol.decode(request, 200, b'{"job_id": 7, "errors": []}') == 7


def test_a_job_outside_of_reservations_names_none() -> None:
    body = protocol.submit_check(CheckRequest("c", "#!/bin/sh", ("a",), "all", 2, 1000)).body
    assert body is not None
    assert "reservation" not in body["job"]


def test_a_record_has_the_exit_status_and_how_often_it_was_requeued() -> None:
    record = {
        "job_id": 7,
        "job_state": ["FAILED", "COMPLETING"],
        "comment": "check 0 | full",
        "exit_code": {
            "status": ["ERROR"],
            "return_code": {"set": True, "infinite": False, "number": 77},
        },
        "restart_cnt": 1,
    }
    found = decoded(protocol.get_check_job(7), record)
    assert found == CheckJob(7, frozenset({"FAILED", "COMPLETING"}), "check 0 | full", 77, 1)
    assert found.ended


@pytest.mark.parametrize(
    ("state", "waits"), [("PENDING", True), ("RUNNING", False), ("SUSPENDED", False)]
)
def test_a_job_that_waits_or_runs_has_not_ended(state: str, waits: bool) -> None:
    found = CheckJob(1, frozenset({state}))
    assert (found.ended, found.waits) == (False, waits)


def test_a_waiting_job_has_all_its_partitions_and_its_reason() -> None:
    record = {
        "job_id": 8,
        "job_state": ["PENDING"],
        "name": "train",
        "partition": "a,b",
        "state_reason": "Resources",
        "priority": {"set": True, "infinite": False, "number": 0},
    }
    assert decoded(protocol.get_waiting_job(8), record) == WaitingJob(
        8, True, "train", ("a", "b"), "Resources", True
    )


def test_a_task_of_an_array_that_waits_is_found_beside_those_that_run() -> None:
    states = {
        "jobs": [
            {"job_id": "7_[2-9%2]", "state": ["PENDING"]},
            {"job_id": "8", "state": ["RUNNING"]},
        ],
        "errors": [],
    }
    assert protocol.decode(protocol.get_waiting_ids(), 200, json.dumps(states).encode()) == {7}
    running = {"job_id": 8, "job_state": ["RUNNING"], "partition": "a"}
    waits = {"job_id": 7, "job_state": ["PENDING"], "partition": "b", "state_reason": "Resources"}
    assert decoded(protocol.get_waiting_job(7), running, waits) == WaitingJob(
        7, True, "", ("b",), "Resources"
    )


def test_an_answer_without_the_job_is_malformed_and_an_unknown_one_not_found() -> None:
    with pytest.raises(Malformed, match="jobs: should contain a job"):
        decoded(protocol.get_check_job(7))
    unknown = {"errors": [{"error_number": 2017, "error": "Invalid job id specified"}]}
    with pytest.raises(NotFound):
        protocol.decode(protocol.get_check_job(7), 500, json.dumps(unknown).encode())
