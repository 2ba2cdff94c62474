"""Requests about external jobs, and real answers of Slurm 26.05."""

import dataclasses
import json
from pathlib import Path
from typing import Any, TypeVar

import pytest

from sidecars.slurm import protocol
from sidecars.slurm.errors import Malformed
from sidecars.slurm.external import GUARD_OUTPUT, Allocation, ExternalRequest, Gres
from sidecars.slurm.protocol import Request, decode

T = TypeVar("T")

FIXTURES = Path(__file__).parent / "fixtures"
ONE = ExternalRequest(
    "pod", "bridge", "comment", cpus_per_task=2, memory_per_task=1000, gres_per_task="gres/gpu:1"
)


def answer(request: Request[T], fixture: str) -> T:
    recording = json.loads((FIXTURES / f"{fixture}.json").read_text())
    return decode(request, recording["status"], json.dumps(recording["body"]).encode())


def body(request: ExternalRequest) -> dict[str, Any]:
    found = protocol.submit_external(request).body
    assert found is not None
    return dict(found["job"])


def number(value: int) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}


def test_the_states_of_all_jobs_are_read_by_id() -> None:
    request = protocol.get_job_states()
    assert request.target("v0.0.45") == "/slurm/v0.0.45/jobs/state/"
    assert answer(request, "v0.0.45-job_states") == {
        1: {"CANCELLED"},
        2: {"RUNNING"},
        3: {"PENDING"},
    }
    assert answer(request, "v0.0.44-job_states") == {1: {"RUNNING"}}


def test_the_comment_of_a_job_may_be_no_utf_8() -> None:
    """Any user may write such a comment: the bridge decides nothing while a job can't be read."""
    recording = json.loads((FIXTURES / "v0.0.45-external_held.json").read_text())
    [its] = recording["body"]["jobs"]
    its["comment"] = "Pr?fung"
    text = json.dumps(recording["body"]).encode().replace(b"Pr?fung", b"Pr\xfcfung")
    assert decode(protocol.get_external_job(its["job_id"]), 200, text).comment == "Pr\ufffdfung"


def test_tasks_of_an_array_are_left_out_of_the_list() -> None:
    """As Slurm 26.05 answers while two of the tasks of array 5 have begun: their records are 6 and
    7.
    """
    listed = {
        "6_0": "RUNNING",
        "7_1": "COMPLETED,COMPLETING",
        "5_2": "PENDING",
        "5_3": "PENDING",
        "8": "RUNNING",
    }
    jobs = json.dumps(
        {"jobs": [{"job_id": key, "state": it.split(",")} for key, it in listed.items()]}
    ).encode()
    assert decode(protocol.get_job_states(), 200, jobs) == {8: {"RUNNING"}}


def test_an_entry_of_the_list_without_an_id_is_left_out() -> None:
    jobs = (
        b'{"jobs": [{"job_id": "x", "state": ["PENDING"]}, {"job_id": "6", "state": ["RUNNING"]}]}'
    )
    assert decode(protocol.get_job_states(), 200, jobs) == {6: {"RUNNING"}}


def test_the_record_of_a_task_is_found_among_those_of_all_of_its_array() -> None:
    recording = json.loads((FIXTURES / "v0.0.45-external_held.json").read_text())
    [its] = recording["body"]["jobs"]
    records = [its | {"job_id": job_id, "array_job_id": number(5)} for job_id in (5, 6, 7)]
    text = json.dumps(recording["body"] | {"jobs": records}).encode()
    for job_id in (5, 6, 7):
        found = decode(protocol.get_external_job(job_id), 200, text)
        assert found.job_id == job_id


@pytest.mark.parametrize(
    ("text", "want"), [("", ()), ("k[1-2],x", ("k1", "k2", "x")), ("k[", ("k[",))]
)
def test_the_nodes_that_a_job_excludes_are_read(text: str, want: tuple[str, ...]) -> None:
    recording = json.loads((FIXTURES / "v0.0.45-external_held.json").read_text())
    [its] = recording["body"]["jobs"]
    its["excluded_nodes"] = text
    found = decode(
        protocol.get_external_job(its["job_id"]), 200, json.dumps(recording["body"]).encode()
    )
    assert found.excluded_nodes == want


def test_an_empty_text_excludes_no_node() -> None:
    assert protocol.allow_nodes(7, ["k1", "x"]).body == {"excluded_nodes": "k1,x"}
    assert protocol.allow_nodes(7, []).body == {"excluded_nodes": ""}


def test_components_of_a_heterogeneous_job_are_in_the_list_by_their_own_ids() -> None:
    jobs = (
        b'{"jobs": [{"job_id": "7+0", "state": ["RUNNING"]}, {"job_id": "8+1", "state": '
        b'["PENDING"]}]}'
    )
    assert decode(protocol.get_job_states(), 200, jobs) == {7: {"RUNNING"}, 8: {"PENDING"}}


def test_a_component_is_found_among_the_records_of_all_of_the_job() -> None:
    for job_id, offset, cpus in ((1, 0, 1), (2, 1, 2)):
        job = answer(protocol.get_external_job(job_id), "v0.0.45-external_components")
        assert (job.job_id, job.het_id, job.het_offset, job.cpus_per_task) == (
            job_id,
            1,
            offset,
            cpus,
        )
    with pytest.raises(Malformed):
        answer(protocol.get_external_job(3), "v0.0.45-external_components")


def test_a_guard_is_a_batch_job_that_is_never_queued_again() -> None:
    found = body(dataclasses.replace(ONE, guard=True))
    assert "flags" not in found
    assert found["script"] == "#!/bin/sh\nexec sleep infinity\n"
    assert (found["hold"], found["requeue"], found["current_working_directory"]) == (
        True,
        False,
        "/",
    )
    assert found["standard_output"] == GUARD_OUTPUT
    same = {key: value for key, value in body(ONE).items() if key != "flags"}
    assert same.items() <= found.items()


def test_a_heterogeneous_job_is_submitted_as_a_list_of_components() -> None:
    other = ExternalRequest("other", "bridge", "comment", cpus_per_task=9)
    found = protocol.submit_external(ONE, other).body
    assert found is not None
    assert [it["cpus_per_task"] for it in found["jobs"]] == [2, 9]
    assert all(it["hold"] and it["flags"] == ["EXTERNAL_JOB"] for it in found["jobs"])
    assert "job" not in found


@pytest.mark.parametrize("text", [b"{}", b'{"jobs": [{"state": ["RUNNING"]}]}', b'{"jobs": null}'])
def test_a_list_that_is_damaged_is_no_empty_list(text: bytes) -> None:
    with pytest.raises(Malformed):
        decode(protocol.get_job_states(), 200, text)


def test_a_held_job() -> None:
    job = answer(protocol.get_external_job(1), "v0.0.45-external_held")
    assert job.states == {"PENDING"}
    assert (job.job_id, job.external, job.blocked) == (1, True, True)
    assert (job.user_name, job.user_id, job.reason) == ("mail", 8, "JobHeldUser")
    assert job.comment
    assert job.admin_comment == ""
    assert job.allocations == ()


@pytest.mark.parametrize("fixture", ["v0.0.45-external_running", "v0.0.44-external_running"])
def test_a_running_job_has_cpus_memory_and_gpus_on_its_nodes(fixture: str) -> None:
    job = answer(protocol.get_external_job(1), fixture)
    assert not job.blocked
    assert job.admin_comment == job.comment
    assert job.cpus_per_task == 2
    assert job.end_time > 0
    [allocation] = job.allocations
    assert (allocation.node, allocation.cpus, allocation.memory, allocation.gpus) == (
        "k1",
        6,
        3000,
        3,
    )


def test_a_running_job_has_whole_nodes_or_shares_cores_as_slurm_decides() -> None:
    def found(**nodes: object) -> tuple[bool, bool]:
        job = {
            "job_id": 1,
            "job_state": ["RUNNING"],
            "job_resources": {"nodes": nodes} if nodes else None,
        }
        its = decode(protocol.get_external_job(1), 200, json.dumps({"jobs": [job]}).encode())
        return its.whole, its.shared

    assert found(whole=True, select_type=["ONE_ROW"]) == (True, False)
    assert found(whole=False, select_type=["AVAILABLE"]) == (False, True)
    assert found() == (False, False)


def test_a_job_that_has_ended_still_has_them() -> None:
    job = answer(protocol.get_external_job(1), "v0.0.45-external_cancelled")
    assert job.states == {"CANCELLED"}
    assert job.allocations[0].cpus == 6


def with_detail(detail: str) -> Allocation:
    """What a job has on its node by the detail of its GRES."""
    nodes = {"allocation": [{"name": "k1", "cpus": {"count": 1}, "memory": {"allocated": 0}}]}
    job = {
        "job_id": 1,
        "job_state": ["RUNNING"],
        "gres_detail": [detail],
        "job_resources": {"nodes": nodes},
    }
    found = decode(protocol.get_external_job(1), 200, json.dumps({"jobs": [job]}).encode())
    [allocation] = found.allocations
    return allocation


@pytest.mark.parametrize(
    ("detail", "gpus"),
    [
        ("gpu(CNT:3)", 3),
        ("gpu:h100:2(IDX:0,3)", 2),
        ("gpu:h100:2(IDX:0),gpu:a100(CNT:1)", 3),
        ("nic(CNT:1)", 0),
    ],
)
def test_gpus_are_counted_in_each_form_of_the_detail(detail: str, gpus: int) -> None:
    assert with_detail(detail).gpus == gpus


@pytest.mark.parametrize(
    ("detail", "gres"),
    [
        ("gpu:h100:2(IDX:0,3)", (Gres("gpu:h100", 2, frozenset({0, 3})),)),
        ("gpu:2(IDX:0-1)", (Gres("gpu", 2, frozenset({0, 1})),)),
        ("gpu:h100(CNT:2)", (Gres("gpu:h100", 2),)),
        (
            "mig:x:1(IDX:0),gpu:h100:3(IDX:0-1,3)",
            (Gres("mig:x", 1, frozenset({0})), Gres("gpu:h100", 3, frozenset({0, 1, 3}))),
        ),
        ("gpu:h100:1(IDX:0),gpu:1g.5gb:0(IDX:)", (Gres("gpu:h100", 1, frozenset({0})),)),
        ("", ()),
    ],
)
def test_each_gres_of_a_node_has_its_indices(detail: str, gres: tuple[Gres, ...]) -> None:
    assert with_detail(detail).gres == gres


@pytest.mark.parametrize(
    "detail",
    [
        "gpu:1(IDX:-)",
        "gpu:1(IDX:0-)",
        "gpu:1(IDX:5-3)",
        "gpu:1(IDX:0-99999999999)",
        "gpu:1(IDX:" + "9" * 5000 + ")",
        "gpu(CNT:" + "9" * 5000 + ")",
        "mig(CNT:" + "9" * 5000 + ")",
    ],
    ids=lambda it: it[:20],
)
def test_a_detail_without_numbers_of_devices_is_malformed_and_quoted(detail: str) -> None:
    with pytest.raises(Malformed) as caught:
        with_detail(detail)
    assert caught.value.field == "gres_detail"
    assert f"should count devices, is '{detail[:40]}" in str(caught.value)


def test_a_submission_returns_the_id() -> None:
    assert answer(protocol.submit_external(ONE), "v0.0.45-external_submitted") == 1


def test_a_submission_is_blocked_and_external_and_requests_what_one_pod_needs() -> None:
    found = body(ONE)
    assert found["flags"] == ["EXTERNAL_JOB"]
    assert found["hold"] is True
    assert (found["nodes"], found["tasks"], found["cpus_per_task"]) == ("1", 1, 2)
    assert found["memory_per_node"] == number(1000)
    assert found["tres_per_node"] == "gres/gpu:1"
    assert not found.keys() & {
        "account",
        "qos",
        "time_limit",
        "shared",
        "excluded_nodes",
        "memory_per_cpu",
    }


def test_memory_of_several_pods_is_requested_for_each_cpu_rounded_up() -> None:
    found = body(
        ExternalRequest("g", "p", "", tasks=4, max_nodes=4, cpus_per_task=3, memory_per_task=1000)
    )
    assert found["memory_per_cpu"] == number(334)
    assert found["nodes"] == "1-4"
    assert "memory_per_node" not in found


def test_all_that_is_wished_for_is_requested() -> None:
    request = ExternalRequest(
        *("g", "p", "comment"),
        tasks=2,
        gres_per_task="gres/gpu:1",
        account="physics",
        qos="high",
        minutes=5,
        features="fast",
        extra="zone=a",
        excluded_nodes=("k2",),
        exclusive=True,
        licenses="matlab",
        reservation="r",
        wckey="w",
    )
    found = body(request)
    wanted = {
        "tres_per_task": "gres/gpu:1",
        "account": "physics",
        "qos": "high",
        "time_limit": number(5),
        "constraints": "fast",
        "extra": "zone=a",
        "excluded_nodes": ["k2"],
        "shared": ["none"],
        "licenses": "matlab",
        "reservation": "r",
        "wckey": "w",
    }
    assert found.items() >= wanted.items()


def test_one_request_starts_a_job_and_another_cancels_it() -> None:
    start, cancel = protocol.start_external(7, "comment"), protocol.cancel_job(7)
    assert (start.method, start.path, start.body) == (
        "POST",
        "job/7",
        {"hold": False, "admin_comment": "comment"},
    )
    assert (cancel.method, cancel.path) == ("DELETE", "job/7")
