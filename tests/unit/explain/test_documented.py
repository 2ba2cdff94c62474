"""The examples of docs/explain.md: each is what `kubectl slurm` prints in the situation that it
shows.
"""

import re
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from sidecars.contract import bridge
from sidecars.contract.bridge import Comment
from sidecars.contract.extra import PodFacts, encode
from sidecars.explain.core import job as subject
from sidecars.explain.core import pod as of_pod
from sidecars.explain.core.records import Ending, Missing, Object, Seen, Slurm
from sidecars.explain.text import lines
from sidecars.slurm.details import JobDetail
from sidecars.slurm.records import Node
from tests.unit.explain.core.building import busy, event, job, node, nodeset, partition, pod, seen
from tests.unit.explain.core.test_bridge_pod import blocking, old_pod
from tests.unit.explain.core.test_bridge_pod import waiting as waiting_pod

PAGE = Path(__file__).parents[3] / "docs" / "explain.md"
NODESET = "slurm-worker-slinky"


def printed(command: str) -> list[str]:
    """What the page shows below this command."""
    [block] = re.findall(
        rf"```console\n\$ kubectl {command}\n(.*?)```", PAGE.read_text(), re.DOTALL
    )
    found: list[str] = block.splitlines()
    return found


def clock(time: str) -> float:
    """A time of the day of the examples."""
    return datetime.fromisoformat(f"2026-11-23T{time}+00:00").astimezone(UTC).timestamp()


def worker(make: Any, name: str, *words: str, **more: Any) -> Node:
    extra = encode(PodFacts(f"uid-of-{name}", f"slurm-worker-{name}", "slurm", f"uid-of-{NODESET}"))
    found: Node = make(name, *words, partitions=("all",), extra=extra, **more)
    return found


def own_pod(name: str) -> Object:
    """The worker pod of a node of the example."""
    found = pod(name)
    owner = {"kind": "NodeSet", "name": NODESET, "uid": f"uid-of-{NODESET}"}
    found["metadata"]["ownerReferences"] = [owner]
    return found


def waiting(number: int, submitted: str, **more: Any) -> JobDetail:
    found = job("Resources", partitions=("all",), partition="all", **more)
    return replace(
        found,
        job_id=number,
        submit_time=int(clock(submitted)),
        last_evaluated=int(clock(submitted)),
    )


def cluster(
    now: str,
    nodes: tuple[Node, ...],
    found: JobDetail,
    events: tuple[Object, ...] = (),
    **more: Any,
) -> Seen:
    running = seen(
        {"jobs": (found,), "nodes": nodes, "partitions": (partition("all", node_sets="ALL"),)}
        | more,
        {
            "nodesets": (nodeset(NODESET) | {"status": {"replicas": 2, "partitions": ["all"]}},),
            "events": events,
            "pods": tuple(own_pod(it.name) for it in nodes),
        },
        exec_in="kubectl -n slurm exec slurm-controller-0 -c slurmctld --",
    )
    return replace(running, now=clock(now))


def drained() -> Seen:
    scaled = event("NodeSet", NODESET, "ScalingUp", "Creating 2 pod(s)")
    scaled |= {"lastTimestamp": "2026-11-23T22:58:37Z", "type": "Normal"}
    bad = {
        "reason": "bad disk",
        "reason_set_by_user": "root",
        "reason_changed_at": int(clock("22:59:50")),
    }
    nodes = (worker(node, "slinky-0", "IDLE", "DRAIN", **bad), worker(busy, "slinky-1"))
    return cluster("22:59:55", nodes, waiting(8, "22:59:53"), (scaled,))


def planned() -> Seen:
    nodes = (worker(busy, "slinky-0"), worker(busy, "slinky-1"))
    end = clock("23:04:42")
    found = replace(waiting(6, "22:59:42"), start_time=int(end))
    return cluster("23:00:00", nodes, found, running=(Ending("4", end, "root", "slinky-1"),))


def without_rights() -> Seen:
    quotas = Missing(
        "quotas",
        'you lack the right to list resourcequotas in the namespace "slurm"',
        "Ask for this right, or use an account that has it.",
    )
    slurm = Missing(
        "everything that Slurm knows",
        'you lack the right to create pods/exec in the namespace "slurm", with which Slurm\'s '
        "commands are run in pod slurm-controller-0",
        "An administrator grants it: kubectl create role slurm-explain -n slurm --verb=create "
        "--resource=pods/exec",
    )
    return replace(seen(missing=(quotas, slurm)), slurm=Slurm())


@pytest.mark.parametrize(
    ("number", "found"),
    [(8, drained()), (6, planned()), (9, without_rights())],
    ids=["drained", "planned", "no rights"],
)
def test_an_example_of_the_page_is_what_is_printed_in_its_situation(
    number: int, found: Seen
) -> None:
    shown = lines(subject.explain(found, str(number)), found.now)
    assert shown == printed(f"slurm explain job {number}")


def test_the_example_of_a_pod_of_the_bridge_is_what_is_printed_in_its_situation() -> None:
    asked = waiting_pod(*blocking())
    submitted = event("Pod", "train-0", "Submitted", "Slurm job 7 waits for this pod's resources")
    submitted |= {"lastTimestamp": "2026-11-23T22:59:40Z", "type": "Normal"}
    old = old_pod(0)
    old["metadata"]["deletionTimestamp"] = "2026-11-23T23:00:25Z"
    cannot = "you lack the right to list controllers.slinky.slurm.net at the cluster scope"
    remedy = "Ask for this right, or use an account that has it."
    missing = (Missing("Slurm clusters of all namespaces", cannot, remedy),)
    read = seen(kube={"pods": (asked, old), "events": (submitted,)}, missing=missing)
    found = replace(read, now=clock("23:00:00"), namespace="physics", slurm=Slurm())
    assert lines(of_pod.explain(found, "train-0"), found.now) == printed(
        "slurm explain pod train-0 -n physics"
    )


def test_the_example_of_a_guard_is_what_is_printed_in_its_situation() -> None:
    ended: dict[str, Any] = {
        "states": frozenset({"CANCELLED", "COMPLETING"}),
        "pending": None,
        "nodes": "slinky-0",
    }
    comment = bridge.encode(Comment("physics", "uid-of-train-0"))
    found = replace(waiting(7, "22:40:00"), **ended, guard=True, comment=comment, reason="None")
    left = old_pod(0)
    left["metadata"] |= {"name": "train-0", "deletionTimestamp": "2026-11-23T23:00:25Z"}
    left["metadata"]["deletionGracePeriodSeconds"] = 60
    at = cluster("23:00:00", (worker(node, "slinky-0", "IDLE", "COMPLETING"),), found)
    at = replace(at, kube=replace(at.kube, guarded=(left,)))
    assert lines(subject.explain(at, "7"), at.now) == printed("slurm explain job 7")
