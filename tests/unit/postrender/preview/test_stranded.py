"""Jobs that a change of their partition strands: a preview names them before the change."""

import textwrap
from pathlib import Path
from typing import Any

import pytest

from postrender.preview.report import Preview, preview
from postrender.preview.state import SlurmState, State
from postrender.preview.stranded import Stranded
from postrender.preview.words import as_text
from sidecars.slurm.records import Job, Node
from sidecars.workloads.resources import Manifest
from tests.unit.postrender.expand import streams
from tests.unit.postrender.preview import clusters

ROOT = Path(__file__).parents[4]
KEY = ("slurm", "slurm")
SHORT = "PartitionName=short Nodes=slinky State=UP"
EVERY = "PartitionName=every Nodes=ALL State=UP"
OWN: dict[str, Any] = {"partition": {"enabled": True}}


def pending(number: int, partitions: str) -> Job:
    return Job(number, frozenset({"PENDING"}), partition=partitions)


def running(number: int, partition: str) -> Job:
    return Job(number, frozenset({"RUNNING"}), partition=partition, nodes="slinky-0")


JOBS = (
    pending(1, "slinky"),
    running(2, "slinky"),
    pending(3, "slinky,short"),
    pending(4, "short"),
    running(5, "short"),
    Job(6, frozenset({"COMPLETED"}), partition="slinky"),
    pending(7, "every"),
)


def documents(lines: str = f"{SHORT}\n{EVERY}", **nodeset: Any) -> list[Manifest]:
    return [
        *streams.known_keys(),
        streams.controller(extraConf=lines),
        streams.nodeset(**{**OWN, **nodeset}),
    ]


def compared(after: list[Manifest], slurm: SlurmState | None = None, **more: Any) -> Preview:
    idle = [clusters.node(it, "IDLE") for it in range(2)]
    known = State(
        clusters.NOW,
        live=True,
        pods=[clusters.pod(it) for it in range(2)],
        slurm={KEY: slurm or SlurmState(idle, JOBS)},
        **more,
    )
    return preview(documents(), after, streams.SITE, known)


def found(*of: tuple[str, str, tuple[int, ...], tuple[int, ...]]) -> tuple[Stranded, ...]:
    return tuple(Stranded("slurm/slurm", *it) for it in of)


def test_a_change_that_keeps_the_partitions_strands_no_job() -> None:
    assert compared(documents(slurmd={"image": "slurmd:next"})).stranded == ()


def test_of_the_closed_partition_of_a_nodeset_only_jobs_without_another_one_wait() -> None:
    disabled = compared(documents(partition={"enabled": False}))
    assert disabled.stranded == found(("slinky", "closed", (1,), ()))
    down = compared(documents(partition={"enabled": True, "config": "State=DOWN"}))
    assert down.stranded == found(("slinky", "closed", (1,), ()))


def test_all_jobs_of_a_partition_that_extra_conf_no_longer_has_are_lost() -> None:
    assert compared(documents(EVERY)).stranded == found(("short", "removed", (), (4, 5)))


def test_a_job_whose_other_partition_is_down_waits_for_the_one_that_is_removed() -> None:
    down = f"{EVERY.replace('UP', 'DOWN')}"
    jobs = [pending(8, "short,every")]
    idle = [clusters.node(it, "IDLE") for it in range(2)]
    known = State(clusters.NOW, live=True, slurm={KEY: SlurmState(idle, jobs)})
    before, after = documents(f"{SHORT}\n{down}"), documents(down)
    assert preview(before, after, streams.SITE, known).stranded == found(
        ("short", "removed", (8,), ())
    )


def test_a_partition_that_is_set_down_by_a_default_strands_its_jobs() -> None:
    lines = f"PartitionName=DEFAULT State=INACTIVE\n{SHORT.removesuffix(' State=UP')}\n{EVERY}"
    assert compared(documents(lines)).stranded == found(
        ("short", "closed", (4,), ()),
    )


def test_a_partition_whose_nodesets_have_no_worker_left_strands_its_jobs() -> None:
    gone = compared(documents(replicas=0))
    assert gone.stranded == found(
        ("every", "empty", (7,), ()),
        ("short", "empty", (3, 4), ()),
        ("slinky", "empty", (1,), ()),
    )


@pytest.mark.parametrize(
    "kept",
    [
        {"autoscaling": {"max": 4}},
        {"scalingMode": "DaemonSet"},
        {"powerSaving": {"enabled": True, "node": "CPUs=4 RealMemory=8000"}},
    ],
)
def test_a_nodeset_that_gets_workers_for_jobs_strands_none(kept: dict[str, Any]) -> None:
    assert compared(documents(replicas=0, **kept)).stranded == ()


def test_nodes_that_are_no_workers_may_run_the_jobs_of_all_nodes() -> None:
    nodes = [*(clusters.node(it, "IDLE") for it in range(2)), Node("outside", frozenset({"IDLE"}))]
    left = compared(documents(replicas=0), SlurmState(nodes, JOBS)).stranded
    assert [it.partition for it in left] == ["short", "slinky"]


def test_while_slurm_can_not_be_asked_the_jobs_of_a_closed_partition_are_unknown() -> None:
    after = documents(partition={"enabled": False})
    [one] = compared(after, SlurmState(problem="no answer")).stranded
    assert (one.partition, one.waiting, one.unknown) == ("slinky", (), "no answer")
    # Without a live cluster, no job is known of any change.
    assert preview(documents(), after, streams.SITE, State(clusters.NOW)).stranded == ()


def test_the_text_names_the_partition_the_jobs_and_what_ends_their_wait() -> None:
    found = compared(documents(EVERY, partition={"enabled": False}))
    text = as_text(Preview(stranded=found.stranded))
    page = (ROOT / "docs" / "preview.md").read_text(encoding="utf-8")
    assert textwrap.indent(text, "  ") in page
