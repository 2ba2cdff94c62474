"""Requests as they are sent, and real answers of Slurm 26.05 (`fixtures`) and broken ones as they
are decoded.
"""

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.slurm import protocol
from sidecars.slurm.errors import (
    AuthenticationError,
    Malformed,
    NotFound,
    Refused,
    Rejected,
    ServerFault,
    SlurmError,
)
from sidecars.slurm.protocol import Request, accounting, decode
from sidecars.slurm.records import Job, JobRequest, Nodes, Pending, Ping, QueuedJob, Reservation
from tests.contract import requests

T = TypeVar("T")

FIXTURES = Path(__file__).parent / "fixtures"
BOTH = pytest.mark.parametrize("version", protocol.VERSIONS)


def answer(request: Request[T], fixture: str) -> T:
    """`request` answered as in the recording."""
    recording = json.loads((FIXTURES / f"{fixture}.json").read_text())
    body = (
        recording["text"].encode()
        if "text" in recording
        else json.dumps(recording["body"]).encode()
    )
    return decode(request, recording["status"], body)


def refusal(request: Request[T], fixture: str) -> Refused:
    with pytest.raises(Refused) as caught:
        answer(request, fixture)
    return caught.value


def nodes(*fields: dict[str, Any]) -> bytes:
    """A good answer with these nodes."""
    return json.dumps(
        {"nodes": fields, "last_update": {"set": True, "infinite": False, "number": 7}}
    ).encode()


UPDATE = protocol.update_nodes(["n1"], comment="x")


# --- requests


def test_requests_are_paths_below_the_version() -> None:
    assert protocol.get_nodes().target("v0.0.45") == "/slurm/v0.0.45/nodes/"
    assert protocol.get_nodes(17).target("v0.0.44") == "/slurm/v0.0.44/nodes/?update_time=17"
    assert protocol.get_jobs(17).target("v0.0.44") == "/slurm/v0.0.44/jobs/?update_time=17"
    assert protocol.delete_node("a/b?c").target("v0.0.44") == "/slurm/v0.0.44/node/a%2Fb%3Fc"
    assert str(protocol.delete_node("n1")) == "DELETE node/n1"


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_a_name_that_would_change_the_path_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="name anything in Slurm"):
        protocol.delete_node(name)


def test_a_write_names_its_nodes_as_one_hostlist_and_only_the_fields_given() -> None:
    request = protocol.update_nodes(
        [f"n{i}" for i in range(3)], state=["DRAIN"], reason="slurm-operator: x"
    )
    assert request.method == "POST"
    assert json.loads(request.content() or b"") == {
        "name": ["n[0-2]"],
        "state": ["DRAIN"],
        "reason": "slurm-operator: x",
    }
    everything = protocol.update_nodes(
        ["n"], comment="", extra="{}", features=["a"], active_features=[], topology="default:s1"
    )
    assert everything.body == {
        "name": ["n"],
        "comment": "",
        "extra": "{}",
        "features": ["a"],
        "features_act": [],
        "topology_str": "default:s1",
    }


def test_versions_are_tried_newest_first_but_the_one_that_worked_before_them() -> None:
    assert protocol.versions_to_try(None) == ("v0.0.45", "v0.0.44")
    assert protocol.versions_to_try("v0.0.44") == ("v0.0.44", "v0.0.45")


# --- real answers


@BOTH
def test_a_list_of_nodes_is_decoded(version: str) -> None:
    found = answer(protocol.get_nodes(), f"{version}-nodes")
    assert found is not None
    assert found.last_update > 1_700_000_000
    by_name = {node.name: node for node in found.nodes}
    assert by_name["n1"].states == {"IDLE", "DYNAMIC_NORM"}
    assert by_name["n2"].states == {"ALLOCATED", "DYNAMIC_NORM"}
    node = by_name["n3"]
    assert node.states == {"MIXED", "DYNAMIC_NORM"}
    assert json.loads(node.extra) == {"podUid": "uid-n3", "a": [1, 2]}
    assert (node.instance_id, node.comment, node.cpus, node.alloc_cpus) == (
        "inst-n3",
        "only n3",
        2,
        1,
    )
    assert node.features == node.active_features == ("w",)
    assert node.partitions == ("all",)
    assert node.real_memory == 24105


def test_a_node_that_registers_again_after_a_reconfigure_has_no_times_for_a_moment() -> None:
    before, after = (
        answer(protocol.get_nodes(), f"{version}-nodes") for version in protocol.VERSIONS
    )
    assert before is not None
    assert after is not None
    assert all(node.slurmd_start_time > node.boot_time > 1_700_000_000 for node in before.nodes)
    assert all(node.slurmd_start_time == node.boot_time == 0 for node in after.nodes)


@BOTH
def test_one_node_is_decoded(version: str) -> None:
    assert answer(protocol.get_node("n3"), f"{version}-node").name == "n3"


def test_a_node_that_is_completing_and_drained_shows_both() -> None:
    found = answer(protocol.get_nodes(), "v0.0.45-nodes_completing")
    assert found is not None
    (node,) = (node for node in found.nodes if node.name == "n2")
    assert node.states == {"IDLE", "DRAIN", "COMPLETING", "DYNAMIC_NORM"}
    assert (node.reason, node.reason_set_by_user) == ("x", "slurm")
    assert node.reason_changed_at > 1_700_000_000


@BOTH
def test_an_empty_list_of_nodes_is_empty(version: str) -> None:
    found = answer(protocol.get_nodes(), f"{version}-nodes_empty")
    assert found is not None
    assert found.nodes == ()


@BOTH
def test_nothing_new_is_none_for_nodes_and_for_jobs(version: str) -> None:
    assert answer(protocol.get_nodes(5), f"{version}-nodes_unchanged") is None
    assert answer(protocol.get_jobs(5), f"{version}-jobs_unchanged") is None


@BOTH
def test_jobs_are_decoded(version: str) -> None:
    found = answer(protocol.get_jobs(), f"{version}-jobs")
    assert found is not None
    by_state = {next(iter(job.states)): job for job in found.jobs}
    running, pending = by_state["RUNNING"], by_state["PENDING"]
    assert running == Job(
        job_id=5,
        states=frozenset({"RUNNING"}),
        name="wrap",
        partition="all",
        user_name="root",
        nodes="n3",
        required_nodes="n3",
        submit_time=running.submit_time,
        start_time=running.start_time,
        end_time=running.start_time + 600,
        time_limit=10,
        cpus=1,
        node_count=1,
    )
    assert (pending.nodes, pending.start_time, pending.time_limit) == ("", 0, None)


@BOTH
def test_the_queue_has_the_same_jobs_and_what_pending_ones_wait_for(version: str) -> None:
    jobs, queue = (
        answer(protocol.get_jobs(), f"{version}-jobs"),
        answer(protocol.get_queue(), f"{version}-jobs"),
    )
    assert jobs is not None
    assert queue is not None
    assert [(job.job_id, job.states, job.nodes) for job in queue.jobs] == [
        (job.job_id, job.states, job.nodes) for job in jobs.jobs
    ]
    assert {next(iter(job.states)): job.pending is not None for job in queue.jobs} == {
        "RUNNING": False,
        "PENDING": True,
    }


def decoded(**changes: Any) -> QueuedJob:
    """The recorded pending job with other values of some fields."""
    record = json.loads((FIXTURES / "v0.0.45-job_pending.json").read_text()) | changes
    found = decode(
        protocol.get_queue(), 200, json.dumps({"jobs": [record], "last_update": 1}).encode()
    )
    assert found is not None
    return found.jobs[0]


def test_what_a_pending_job_requests_is_decoded() -> None:
    request = JobRequest(
        ("all",),
        max_nodes=1,
        cpus_per_task=1,
        min_cpus_per_node=1,
        max_nodes_implied=True,
        tasks_per_core=0,
        tasks_per_socket=0,
    )
    job = decoded()
    assert job.pending == Pending(request, "JobHeldUser", 0, 0)
    number = {"set": True, "infinite": False, "number": 7}
    changed = decoded(
        partition="a,b",
        tres_req_str="cpu=4,mem=1G,node=3,billing=4",
        node_count=number,
        memory_per_cpu=number,
        tres_per_node="gres/gpu:h100:2",
        contiguous=True,
        core_spec=2,
        flags=["EXTERNAL_JOB", "PREFER_MINIMUM_NODE_COUNT", "SPREAD_JOB"],
        array_task_string="1-9%4",
        array_max_tasks=number,
        het_job_id=number,
        het_job_id_set="7-8",
        priority=number,
        dependency="after:1",
    ).pending
    assert changed is not None
    assert (changed.array_tasks, changed.array_max_running) == ("1-9", 7)
    assert (changed.het_job_id, changed.het_job_ids, changed.priority, changed.dependency) == (
        7,
        "7-8",
        7,
        "after:1",
    )
    found = changed.request
    assert (found.partitions, found.min_nodes, found.memory_per_cpu) == (("a", "b"), 3, 7)
    assert (found.tres_per_node, found.contiguous, found.specialized) == (
        "gres/gpu:h100:2",
        True,
        True,
    )
    assert (found.external, found.max_nodes_implied) == (True, False)
    assert (found.fewest_nodes, found.most_nodes) == (True, True)


def test_a_job_that_has_not_changed_is_the_same_object_as_in_the_former_answer() -> None:
    before = answer(protocol.get_queue(), "v0.0.44-jobs")
    assert before is not None
    after = answer(protocol.get_queue(before), "v0.0.44-jobs")
    assert after is not None
    assert all(old is new for old, new in zip(before.jobs, after.jobs, strict=True))
    other = replace(before, jobs=(replace(before.jobs[0], name="other"), *before.jobs[1:]))
    after = answer(protocol.get_queue(other), "v0.0.44-jobs")
    assert after is not None
    assert after.jobs == before.jobs


@BOTH
def test_the_queue_reports_whether_it_shows_which_jobs_are_exclusive(version: str) -> None:
    queue = answer(protocol.get_queue(), f"{version}-jobs")
    assert queue is not None
    assert queue.exclusive_known == (version == "v0.0.44")


def test_jobs_that_request_the_same_share_one_object() -> None:
    first, second = decoded(job_id=1).pending, decoded(job_id=2).pending
    assert first is not None
    assert second is not None
    assert first.request is second.request


def test_no_jobs_at_all_is_an_empty_list() -> None:
    found = answer(protocol.get_jobs(), "v0.0.45-jobs_empty")
    assert found is not None
    assert found.jobs == ()


@BOTH
def test_reservations_partitions_and_counters_are_decoded(version: str) -> None:
    maint, infinite = answer(protocol.get_reservations(), f"{version}-reservations")
    assert maint == Reservation(
        name="maint",
        node_list="n[1,3]",
        flags=frozenset({"MAINT", "IGNORE_JOBS", "SPEC_NODES"}),
        users=("root",),
        start_time=maint.start_time,
        end_time=maint.start_time + 3600,
    )
    assert infinite.users == ("root", "slurm")
    (partition,) = answer(protocol.get_partitions(), f"{version}-partitions")
    assert (partition.name, partition.node_list) == ("all", "n[1-3]")
    assert partition.states == {"UP"}
    assert answer(requests.diag(), f"{version}-diag").request_time > 1_700_000_000
    answer(protocol.reconfigure(), f"{version}-reconfigure")


def test_the_configuration_reports_when_slurmctld_started() -> None:
    def start(body: bytes) -> int:
        return protocol.decode(protocol.slurmctld_start(), 200, body)

    assert (
        start(b'{"slurm_conf_meta": {"BOOT_TIME": 1770000000, "LastUpdate": 1770000001}}')
        == 1_770_000_000
    )
    assert start(b'{"slurm_conf_meta": {}, "errors": []}') == 0
    assert start(b'{"errors": []}') == 0


def test_the_configuration_reports_what_slurm_allocates() -> None:
    def words(body: bytes) -> tuple[str, ...]:
        return protocol.decode(protocol.select_type_parameters(), 200, body)

    assert words(b'{"slurm_conf": {"SelectTypeParameters": ["CR_CORE_MEMORY", "CR_LLN"]}}') == (
        "CR_CORE_MEMORY",
        "CR_LLN",
    )
    assert words(b'{"slurm_conf": {}, "errors": []}') == ()
    with pytest.raises(Malformed, match="SelectTypeParameters"):
        words(b'{"slurm_conf": {"SelectTypeParameters": 7}}')


@BOTH
def test_a_ping_reports_who_responds(version: str) -> None:
    (ping,) = answer(protocol.ping(), f"{version}-ping")
    assert (ping.hostname, ping.responding, ping.primary) == ("localhost", True, True)


def test_a_ping_reports_a_dead_slurmctld_and_a_bad_token_without_an_error() -> None:
    (dead,) = answer(protocol.ping(), "v0.0.45-ctld_down_ping")
    assert dead == Ping(
        "localhost", False, True, "Unable to contact slurm controller (connect failure)"
    )
    (refused,) = answer(protocol.ping(), "v0.0.45-bad_token_ping")
    assert refused.status == "Protocol authentication error"
    assert not refused.responding


@BOTH
def test_a_write_that_was_done_is_none(version: str) -> None:
    answer(UPDATE, f"{version}-update")


@BOTH
def test_an_unknown_node_is_not_found_for_each_verb(version: str) -> None:
    assert isinstance(refusal(protocol.get_node("zz"), f"{version}-node_unknown"), NotFound)
    assert isinstance(refusal(protocol.delete_node("zz"), f"{version}-delete_unknown"), NotFound)
    assert isinstance(refusal(UPDATE, f"{version}-update_unknown"), NotFound)


@BOTH
def test_what_slurmctld_will_not_do_is_rejected_with_its_number(version: str) -> None:
    busy = refusal(protocol.delete_node("n3"), f"{version}-delete_busy")
    assert isinstance(busy, Rejected)
    assert busy.numbers == {2016}
    assert "HTTP 422: Requested nodes are busy: Failure to delete node n3 (2016)" in str(busy)
    transition = refusal(UPDATE, f"{version}-update_bad_transition")
    assert isinstance(transition, Rejected)
    assert transition.numbers == {2180}
    assert refusal(UPDATE, f"{version}-update_bad_word").numbers == {9207, 2180}
    assert isinstance(refusal(protocol.get_nodes(1), f"{version}-bad_query"), Rejected)


@BOTH
@pytest.mark.parametrize(
    "fixture", ["bad_token", "bad_token_update", "bad_token_jobs", "no_right", "no_token"]
)
def test_a_refused_token_is_an_authentication_error(version: str, fixture: str) -> None:
    assert isinstance(refusal(protocol.get_nodes(), f"{version}-{fixture}"), AuthenticationError)


def test_the_number_of_an_authentication_error_counts_whatever_the_status() -> None:
    body = json.dumps(
        {"errors": [{"error_number": 1007, "error": "Protocol authentication error"}]}
    ).encode()
    for status in (200, 500):
        with pytest.raises(AuthenticationError):
            decode(protocol.get_nodes(), status, body)


@pytest.mark.parametrize(
    "fixture",
    ["v0.0.45-ctld_down", "v0.0.44-ctld_down", "v0.0.45-ctld_down_update", "unknown_version"],
)
def test_what_is_out_of_order_is_a_server_fault(fixture: str) -> None:
    assert isinstance(refusal(protocol.get_nodes(), fixture), ServerFault)


# --- broken answers


def test_errors_with_status_200_are_no_answer() -> None:
    body = json.dumps(
        {"nodes": [], "last_update": 5, "errors": [{"error_number": 1, "error": "Unspecified"}]}
    ).encode()
    with pytest.raises(ServerFault, match="Unspecified"):
        decode(protocol.get_nodes(), 200, body)


def test_no_error_at_all_about_a_list_is_a_fault_and_not_an_unknown_node() -> None:
    body = json.dumps({"errors": [{"error_number": 0, "error": "No error"}]}).encode()
    with pytest.raises(ServerFault):
        decode(protocol.get_nodes(), 200, body)


@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"\xff\xfe", b'{"nodes": [', b"[" * 100_000, b"9" * 5000]
)
def test_an_answer_that_is_no_json_is_malformed(body: bytes) -> None:
    with pytest.raises(Malformed, match="GET nodes/: body"):
        decode(protocol.get_nodes(), 200, body)


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (b"[]", "body"),
        (b"null", "body"),
        (b"{}", "nodes"),
        (b'{"nodes": null}', "nodes"),
        (b'{"nodes": {}}', "nodes"),
        (b'{"nodes": [], "last_update": "x"}', "last_update"),
        (b'{"nodes": [], "last_update": {"set": true, "number": 1e400}}', "last_update.number"),
        (b'{"nodes": [], "errors": 1}', "errors"),
        (nodes({"name": ""}), "nodes[0].name"),
        (nodes({"name": "a"}, {"name": 5}), "nodes[1].name"),
        (nodes({"name": "a", "state": [1]}), "nodes[0].state"),
        (nodes({"name": "a", "reason": []}), "nodes[0].reason"),
        (nodes({"name": "a", "cpus": True}), "nodes[0].cpus"),
        (nodes({"name": "a", "cpus": "4"}), "nodes[0].cpus"),
        (nodes({"name": "a", "real_memory": 2**64}), "nodes[0].real_memory"),
        (
            nodes({"name": "a", "boot_time": {"set": True, "number": 1.5}}),
            "nodes[0].boot_time.number",
        ),
    ],
)
def test_a_wrong_type_is_malformed_and_names_the_call_and_the_field(
    body: bytes, field: str
) -> None:
    with pytest.raises(Malformed) as caught:
        decode(protocol.get_nodes(), 200, body)
    assert caught.value.source == "GET nodes/"
    assert caught.value.field == field


def test_a_value_that_nobody_expected_is_malformed_too() -> None:
    def read(answer: Any) -> int:
        return int("9" * 5000)

    with pytest.raises(Malformed, match="GET x: body: Exceeds the limit"):
        decode(Request("GET", "x", read=read), 200, b"{}")


def test_an_answer_for_one_node_must_contain_one_node() -> None:
    with pytest.raises(Malformed, match="contains 2"):
        decode(protocol.get_node("a"), 200, nodes({"name": "a"}, {"name": "b"}))


@pytest.mark.parametrize("body", [b"oops", b"", b"[1]", b'{"errors": 5}', b"\xff"])
def test_a_bad_status_with_an_unreadable_body_is_a_server_fault(body: bytes) -> None:
    with pytest.raises(ServerFault, match="HTTP 500"):
        decode(protocol.get_nodes(), 500, body)


def test_a_304_that_nobody_asked_for_is_a_server_fault() -> None:
    with pytest.raises(ServerFault):
        decode(protocol.ping(), 304, b"")


def test_numbers_may_be_plain_unset_or_infinite() -> None:
    body = nodes(
        {
            "name": "a",
            "boot_time": 5,
            "last_busy": {"set": False, "infinite": False, "number": 9},
            "slurmd_start_time": {"set": True, "infinite": True, "number": 9},
            "port": None,
        }
    )
    found = decode(protocol.get_nodes(), 200, body)
    assert isinstance(found, Nodes)
    (node,) = found.nodes
    assert (node.boot_time, node.last_busy, node.slurmd_start_time, node.port) == (5, 0, 0, 0)


def test_unknown_fields_and_state_words_are_taken() -> None:
    found = decode(
        protocol.get_nodes(), 200, nodes({"name": "a", "state": ["IDLE", "NEW_WORD"], "new": {}})
    )
    assert found is not None
    assert found.nodes[0].states == {"IDLE", "NEW_WORD"}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
ENVELOPE = st.fixed_dictionaries(
    {},
    optional={
        "nodes": JSON
        | st.lists(
            st.dictionaries(st.sampled_from(["name", "state", "cpus", "boot_time"]), JSON),
            max_size=3,
        ),
        "jobs": JSON,
        "errors": JSON
        | st.lists(st.dictionaries(st.sampled_from(["error_number", "error"]), JSON), max_size=2),
        "last_update": JSON,
    },
)


@given(ENVELOPE | JSON, st.sampled_from([200, 304, 401, 422, 500]))
def test_any_json_is_an_answer_or_a_slurm_error(body: Any, status: int) -> None:
    requests: list[Request[Any]] = [
        protocol.get_nodes(1),
        protocol.get_jobs(),
        protocol.get_node("a"),
        UPDATE,
    ]
    for request in requests:
        with contextlib.suppress(SlurmError):
            decode(request, status, json.dumps(body).encode())


@pytest.mark.parametrize(
    "body",
    [
        json.dumps(
            {
                "errors": [
                    {"error": "\x1b[2J" + "e" * 10_000_000, "description": "a\nlevel=ERROR forged"}
                ]
            }
        ).encode(),
        b"\x1b]0;title\x07" * 1000,
        json.dumps({"nodes": "\n" * 10_000}).encode(),
    ],
)
def test_an_error_quotes_a_server_bounded_and_on_one_line(body: bytes) -> None:
    for status in (200, 500):
        with pytest.raises(SlurmError) as caught:
            decode(protocol.get_nodes(), status, body)
        assert str(caught.value).isprintable()
        assert len(str(caught.value)) <= 500


@pytest.mark.parametrize("lacking", range(3))
def test_an_association_is_deleted_only_if_it_is_named_whole(lacking: int) -> None:
    names = ["physics", "lab", "ada"]
    assert accounting.delete_association(*names).query == (
        ("account", "physics"),
        ("cluster", "lab"),
        ("user", "ada"),
    )
    names[lacking] = ""
    with pytest.raises(ValueError, match="account, cluster and user"):
        accounting.delete_association(*names)
