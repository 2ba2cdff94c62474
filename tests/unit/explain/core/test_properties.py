"""Whatever was read: no question raises an exception, and no finding contradicts what was read."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecars.explain.core import (
    bundle_contents,
    cluster_health,
    config,
    job,
    node,
    nodeset,
    pod,
    top,
)
from sidecars.explain.core.records import Answer, Ending, Kube, Missing, Seen, Slurm, Waiting
from sidecars.slurm import states
from sidecars.slurm.details import JobDetail, PartitionDetail
from sidecars.slurm.records import JobRequest, Node, Pending, Reservation
from tests.unit.explain.core import building
from tests.unit.slurm.test_job_reasons import NAMES

pytestmark = pytest.mark.timeout(600)

QUESTIONS: list[Callable[[Seen], Answer]] = [
    lambda it: job.explain(it, "12"),
    lambda it: pod.explain(it, "slurm-worker-cpu-1"),
    lambda it: node.explain(it, "cpu-0"),
    lambda it: node.explain(it, "kube-cpu-0"),
    lambda it: nodeset.explain(it, building.NODESET),
    lambda it: config.explain(it, ""),
    cluster_health.explain,
]

odd_text = st.sampled_from(
    [
        "",
        "cpu",
        "gpu:h100:2",
        "a[0-",
        "gpu:x:y:z",
        "cpu-[0-1]",
        "1-3%2",
        "\x1b[31m",
        "*",
        "gres/gpu=",
        "-1",
    ]
)
word = st.sampled_from(
    [
        "IDLE",
        "DOWN",
        "DRAIN",
        "ALLOCATED",
        "MIXED",
        "NOT_RESPONDING",
        "RESERVED",
        "POWERED_DOWN",
        "NEW_STATE",
        "UNKNOWN",
    ]
)
number = st.sampled_from([0, 1, 2, 64, 2**31, 2**63])
small = st.integers(0, 8)
json_value: Any = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | odd_text,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["conditions", "state", "waiting", "reason", "type"]), inner, max_size=3
        )
    ),
    max_leaves=6,
)
PLACES = [
    ("metadata",),
    ("spec",),
    ("status",),
    ("metadata", "labels"),
    ("metadata", "ownerReferences"),
    ("status", "conditions"),
    ("status", "containerStatuses"),
    ("spec", "nodeName"),
]

node_record = st.builds(
    Node,
    name=st.sampled_from(["cpu-0", "cpu-1", "odd"]),
    states=st.frozensets(word, max_size=4),
    reason=st.sampled_from(
        ["", "bad disk", "Not responding", "slurm-operator: x", "slurm-node: health: disk: full"]
    ),
    gres=odd_text,
    gres_used=odd_text,
    cpus=small,
    sockets=small,
    cores=small,
    threads=small,
    alloc_cpus=small,
    real_memory=st.integers(0, 20_000),
    partitions=st.sampled_from([(), ("cpu",), ("cpu", "other")]),
    extra=st.sampled_from(["", "{", building.node().extra]),
    reservation=st.sampled_from(["", "course"]),
)
request = st.builds(
    JobRequest,
    partitions=st.sampled_from([(), ("cpu",), ("gone",), ("cpu", "other")]),
    min_nodes=small,
    max_nodes=small,
    tasks=small,
    cpus=small,
    cpus_per_task=small,
    memory_per_node=number,
    features=odd_text,
    tres_per_node=odd_text,
    tres_per_task=odd_text,
    required_nodes=odd_text,
    excluded_nodes=odd_text,
    licenses=odd_text,
)
pending = st.builds(
    Pending,
    request=request,
    priority=small,
    eligible_time=number,
    dependency=odd_text,
    array_tasks=odd_text,
    het_job_id=small,
    het_job_ids=odd_text,
)
a_job = st.builds(
    JobDetail,
    job_id=st.just(12),
    states=st.frozensets(
        st.sampled_from(["PENDING", "RUNNING", "COMPLETING", "CONFIGURING", "FAILED", "ODD"]),
        max_size=3,
    ),
    partition=st.sampled_from(["", "cpu", "cpu,other"]),
    nodes=odd_text,
    submit_time=number,
    start_time=number,
    end_time=number,
    time_limit=st.none() | number,
    pending=st.none() | pending,
    reason=st.sampled_from(["", "Odd", *NAMES]),
    description=odd_text,
    reservation=st.sampled_from(["", "course"]),
)
partitions = st.builds(
    PartitionDetail,
    name=st.sampled_from(["cpu", "other"]),
    states=st.frozensets(st.sampled_from(["UP", "DOWN"])),
    node_sets=odd_text,
    node_list=odd_text,
    max_minutes=st.none() | number,
)
reservations = st.builds(
    Reservation, name=st.just("course"), node_list=odd_text, start_time=number, end_time=number
)


def tuples(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | st.lists(inner, max_size=3).map(tuple)


slurm = st.builds(
    Slurm,
    jobs=tuples(a_job),
    nodes=tuples(node_record),
    partitions=tuples(partitions),
    reservations=tuples(reservations),
    licenses=st.none(),
    config=st.none()
    | st.dictionaries(st.sampled_from(["selecttypeparameters", "slurmdtimeout"]), odd_text),
    limits=st.none() | odd_text,
    waiting=tuples(st.builds(Waiting, job=odd_text, priority=small)),
    running=tuples(st.builds(Ending, job=odd_text, at=st.none() | number.map(float))),
)


@st.composite
def damaged(draw: st.DrawFn, build: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """An object in which one place has another value."""
    found = build()
    path = draw(st.sampled_from(PLACES))
    at: Any = found
    for key in path[:-1]:
        at = at.get(key, {})
    at[path[-1]] = draw(json_value)
    return found


objects = st.one_of(
    damaged(building.pod),
    damaged(building.nodeset),
    damaged(building.unscheduled),
    damaged(lambda: building.starting("cpu-1", "CrashLoopBackOff")),
    damaged(building.controller),
    damaged(building.kube_node),
    damaged(lambda: building.event("Pod", "slurm-worker-cpu-1", "FailedMount", "x")),
    st.sampled_from([{}, {"metadata": None}, {"metadata": {"name": 5}, "status": []}]),
    st.builds(building.nodeset),
    st.builds(building.pod),
)
seen = st.builds(
    Seen,
    now=st.just(building.NOW),
    slurm=slurm,
    kube=st.builds(
        Kube,
        **{
            field: tuples(objects)
            for field in Kube.__dataclass_fields__
            if field != "absent_kube_nodes"
        },
    ),
    missing=st.lists(st.builds(Missing, part=odd_text, why=odd_text), max_size=1).map(tuple),
)


@settings(max_examples=300, deadline=None)
@given(seen)
def test_no_question_raises_an_exception(found: Seen) -> None:
    for question in QUESTIONS:
        answer = question(found)
        assert answer.state
        for it in answer.findings:
            assert it.cause
            assert it.at is None or it.event
    assert top.top(found).missing == found.missing
    assert bundle_contents.bundle(found)


@settings(max_examples=300, deadline=None)
@given(seen)
def test_no_finding_about_a_job_contradicts_what_was_read(found: Seen) -> None:
    answer = job.explain(found, "12")
    codes = {it.code for it in answer.findings}
    by_name = {it.name: it for it in found.slurm.nodes or ()}
    if found.slurm.jobs is None:
        assert "NotFound" not in codes
        assert not answer.known
    if "FitsNow" in codes:
        assert not {"Impossible", "Busy"} & codes
        assert not answer.would_start
    if "NoNodes" in codes:
        assert found.slurm.nodes is not None
    for it in answer.findings:
        if it.code in ("Drained", "Down"):
            name = it.about.removeprefix("node ")
            assert states.is_drain(by_name[name].states) or states.is_down(by_name[name].states)
        if it.code == "ScaledToZero":
            names = {
                each["metadata"]["name"]
                for each in found.kube.nodesets or ()
                if each.get("spec", {}).get("replicas") == 0
            }
            assert it.about.rpartition("/")[2] in names
        if it.code == "NoSlurmctld":
            assert found.kube.pods is not None


@settings(max_examples=100, deadline=None)
@given(seen)
def test_an_answer_without_slurm_claims_nothing_about_nodes(found: Seen) -> None:
    answer = job.explain(replace(found, slurm=Slurm()), "12")
    assert not {"Drained", "Down", "NoNodes", "NotFound", "Impossible", "FitsNow"} & {
        it.code for it in answer.findings
    }
