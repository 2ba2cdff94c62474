"""No pod is released by a job that shares its cores, or that has a part of the devices of a node
with a slurmd.
"""

import dataclasses
from typing import Any

import pytest

from sidecars.bridge.core.alone import totals
from sidecars.bridge.core.placeholder import job_of
from sidecars.bridge.core.records import Job, Own, Pod, Release, Report, Why
from sidecars.contract import bridge
from sidecars.contract.bridge import Comment
from sidecars.slurm.external import Allocation, ExternalJob, Gres
from tests.unit.bridge.core.test_decide import POD, RUNNING, SHAPE, act

NEEDS = dataclasses.replace(SHAPE, gres="gres/gpu:h100:2", exclusive=True)
WAITS: Pod = dataclasses.replace(POD, job=7, shape=NEEDS)
ALL = Own(whole=True, gres=(("a", (("gpu", 4),)),))
GUARD: Job = dataclasses.replace(RUNNING, guard=True, own=ALL)
NODE = {"a": {"gpu": 4, "nic": 1}}


def words(job: Job, pod: Pod = WAITS, gres: Any = NODE) -> str:
    [action] = act(pod, jobs=(job,), gres=gres)
    assert isinstance(action, Report)
    assert action.why is Why.NODE_NOT_FREE
    return action.message


def test_a_pod_gets_the_gpus_of_a_guard_that_has_all_of_its_node() -> None:
    assert act(WAITS, jobs=(GUARD,), gres=NODE) == (Release(WAITS, 7, "a", 1000),)


def test_a_pod_gets_no_gpu_by_a_guard_on_whose_nodes_other_jobs_may_be() -> None:
    own = dataclasses.replace(ALL, whole=False)
    assert "other jobs may be on the nodes of job 7" in words(dataclasses.replace(GUARD, own=own))


def test_a_pod_gets_no_gpu_by_a_guard_that_shares_its_node_with_jobs_of_its_user() -> None:
    own = dataclasses.replace(ALL, gres=(("a", (("gpu", 2),)),))
    assert "job 7 has 2 of 4 gpu of node a: cancel it" in words(dataclasses.replace(GUARD, own=own))


def test_a_pod_gets_no_gpu_of_a_node_whose_number_of_gpus_is_not_known() -> None:
    found = words(GUARD, gres={})
    assert "Slurm's record of node a doesn't show how many gpu it has" in found
    assert "the next one" not in found, "it would have no more"


def test_all_devices_that_a_guard_has_count_when_the_requests_of_its_pod_are_not_known() -> None:
    own = dataclasses.replace(ALL, gres=(("a", (("gpu", 2),)),))
    changed = dataclasses.replace(WAITS, shape=None, problem="the namespace has another user now")
    assert "job 7 has 2 of 4 gpu" in words(dataclasses.replace(GUARD, own=own), changed)


def test_a_pod_that_requests_whole_nodes_gets_none_where_other_jobs_may_be() -> None:
    pod = dataclasses.replace(WAITS, shape=dataclasses.replace(SHAPE, exclusive=True))
    assert act(pod, jobs=(GUARD,), gres=NODE) == (Release(pod, 7, "a", 1000),)
    assert "other jobs may be on the nodes of job 7" in words(
        dataclasses.replace(GUARD, own=Own()), pod
    )


def test_what_a_pod_may_not_be_beside_slurms_jobs_counts_at_its_release() -> None:
    """Its user can change its annotations after the submission."""
    pod = dataclasses.replace(POD, job=7, unguarded="request the whole node")
    assert "pod can't run there: request the whole node" in words(
        dataclasses.replace(GUARD, own=Own()), pod
    )
    external = dataclasses.replace(RUNNING)
    assert act(pod, jobs=(external,)) == (Release(pod, 7, "a", 1000),)


def test_a_pod_of_which_not_everything_is_known_is_released_on_whole_nodes_alone() -> None:
    """Its user can write a wrong annotation after the submission."""
    pod = dataclasses.replace(POD, job=7, shape=None, problem="annotation x doesn't exist")
    assert "what pod may use is not known: annotation x" in words(
        dataclasses.replace(GUARD, own=Own()), pod
    )
    assert act(pod, jobs=(GUARD,), gres=NODE) == (Release(pod, 7, "a", 1000),)


def test_a_pod_without_devices_shares_its_node() -> None:
    pod = dataclasses.replace(POD, job=7)
    guard = dataclasses.replace(GUARD, own=Own())
    assert act(pod, jobs=(guard,)) == (Release(pod, 7, "a", 1000),)


@pytest.mark.parametrize("guard", [True, False])
def test_no_pod_is_released_by_a_job_whose_cores_slurm_gives_to_others(guard: bool) -> None:
    pod = dataclasses.replace(POD, job=7)
    job = dataclasses.replace(RUNNING, guard=guard, own=Own(shared=True))
    assert "Slurm gives the cores of job 7 to other jobs, too" in words(job, pod)


def test_no_pod_is_released_by_a_guard_whose_epilogs_would_not_wait_for_it() -> None:
    """Its user has changed its output while it was pending."""
    pod = dataclasses.replace(POD, job=7)
    changed = dataclasses.replace(RUNNING, guard=True, retains=False)
    assert "its user has changed the output of job 7" in words(changed, pod)


def test_an_external_job_has_its_gpus_beside_others() -> None:
    job = dataclasses.replace(GUARD, guard=False, own=Own(gres=(("a", (("gpu", 2),)),)))
    assert act(WAITS, jobs=(job,)) == (Release(WAITS, 7, "a", 1000),)


def test_the_gpus_of_all_types_count_together() -> None:
    assert totals("gpu:h100:4(S:0-1),gpu:a100:2,nic:1") == {"gpu": 6, "nic": 1}
    assert totals("") == {}
    assert totals("gpu:x:y:z") is None


@pytest.mark.parametrize(
    "other", ["bandwidth:lustre:no_consume:4G", "bandwidth:No_Consume:4G", "bandwidth:4G"]
)
def test_what_jobs_do_not_consume_hides_no_gpus_of_its_node(other: str) -> None:
    assert totals(f"{other},gpu:h100:4(S:0-1)") == {"gpu": 4, "bandwidth": 2**32}
    assert totals("gpu:no_consumers:4") == {"gpu": 4}


def test_how_a_job_has_its_nodes_is_by_its_record() -> None:
    gres = (Gres("gpu:h100", 3, frozenset({0, 1, 2})), Gres("gpu:a100", 1))
    record = ExternalJob(
        7,
        frozenset({"RUNNING"}),
        guard=True,
        allocations=(Allocation("w0", 8, gres=gres),),
        shared=True,
        whole=True,
    )
    comment = Comment("team", "u")
    job = job_of(
        *(dataclasses.replace(record, comment=bridge.encode(comment)), comment, record.states),
        current=True,
        shapes={},
        kube_nodes={},
        guard_nodes={"w0": "a"},
    )
    assert job.own == Own(shared=True, whole=True, gres=(("a", (("gpu", 4),)),))
