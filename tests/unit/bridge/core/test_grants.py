"""Which devices of a running job each of its pods gets."""

import dataclasses

import pytest

from sidecars.bridge.core import decide, grants
from sidecars.bridge.core.devices import Claim, Device, Granted, Wish
from sidecars.bridge.core.records import Deallocate, Grant, GroupKey, Job, Phase, Pod, View
from sidecars.contract.bridge import Comment

GPUS = tuple(Device("d", "k1", f"gpu-{index}") for index in range(4))
KEY = GroupKey("team", "g")


def claim(
    uid: str, *granted: int, shown: bool = True, number: int = 1, others: bool = False
) -> Claim:
    wishes = (Wish("gpu", "gpu:h100", number),)
    has = tuple(Granted("gpu", GPUS[index]) for index in granted) or None
    return Claim(uid, f"claim-{uid}", wishes, has, shown=shown and has is not None, others=others)


def pod(name: str, *claims: Claim, job: int = 7) -> Pod:
    return Pod(name, "team", name, KEY, gated=True, job=job, claims=claims)


def job(*devices: int) -> Job:
    named = tuple(GPUS[index] for index in devices)
    return Job(
        *(7, Phase.RUNNING, "ada", Comment("team", "g")),
        slots=(("k1", 2),),
        devices=(("k1", "gpu:h100", named),) if named else (),
    )


def view(*pods: Pod, **holders: int) -> View:
    """`holders`: the devices of claims of others, by their uids."""
    found: dict[Device, set[str]] = {}
    for it in (claim for pod in pods for claim in pod.claims or ()):
        for _, device in it.granted or ():
            found.setdefault(device, set()).add(it.uid)
    for uid, index in holders.items():
        found.setdefault(GPUS[index], set()).add(uid)
    return View(pods, {}, known=True, holders=found)


def plan(it: Job, *pods: Pod, **holders: int) -> grants.Plan:
    return grants.plan(it, [(pod, "k1") for pod in pods], view(*pods, **holders))


def given(it: grants.Plan) -> dict[str, list[str]]:
    return {
        action.claim.uid: [device.name for _, device in action.granted]
        for action in it.actions
        if isinstance(action, Grant)
    }


def test_each_pod_gets_other_devices_of_the_job() -> None:
    found = plan(job(1, 3), pod("a", claim("c1")), pod("b", claim("c2")))
    assert given(found) == {"c1": ["gpu-1"], "c2": ["gpu-3"]}


def test_the_requests_of_one_claim_get_different_devices() -> None:
    two = dataclasses.replace(
        claim("c1"), wishes=(Wish("a", "gpu:h100", 1), Wish("b", "gpu:h100", 2))
    )
    assert given(plan(job(0, 1, 3), pod("a", two))) == {"c1": ["gpu-0", "gpu-1", "gpu-3"]}


def test_a_pod_without_claims_needs_no_device() -> None:
    assert plan(job(), pod("a")) == grants.Plan()


def test_what_is_shown_is_kept_and_the_others_get_the_rest() -> None:
    found = plan(job(1, 3), pod("a", claim("c1")), pod("b", claim("c2", 1)))
    assert given(found) == {"c1": ["gpu-3"]}
    assert plan(job(1, 3), pod("a", claim("c1", 3)), pod("b", claim("c2", 1))) == grants.Plan()


def test_what_was_sent_is_sent_again_until_it_is_shown() -> None:
    found = plan(job(1, 3), pod("a", claim("c1")), pod("b", claim("c2", 1, shown=False)))
    assert given(found) == {"c1": ["gpu-3"], "c2": ["gpu-1"]}


def test_devices_of_an_earlier_job_are_taken_back_and_only_then_replaced() -> None:
    this = pod("a", claim("c1", 0))
    [action] = plan(job(1), this).actions
    assert action == Deallocate(this, claim("c1", 0))


def test_devices_that_were_taken_back_release_no_pod_although_claim_and_job_have_them() -> None:
    its = dataclasses.replace(claim("c1", 1), returned=True)
    this = pod("a", its)
    assert plan(job(1), this).actions == [Deallocate(this, its)]


def test_nothing_is_taken_back_from_a_pod_whose_release_was_sent() -> None:
    sent = dataclasses.replace(pod("a", claim("c1", 0)), node="k1")
    found = plan(job(1), sent)
    assert found.fault
    assert not found.actions


def test_fewer_devices_than_the_claim_requests_are_taken_back() -> None:
    [action] = plan(job(0, 1), pod("a", claim("c1", 0, number=2))).actions
    assert isinstance(action, Deallocate)


def test_a_device_that_another_claim_has_is_not_given() -> None:
    found = plan(job(1), pod("a", claim("c1")), other=1)
    assert "gpu-1 of node k1 is still allocated to another ResourceClaim" in found.fault
    assert not found.actions


def test_a_device_that_two_claims_show_is_released_to_none_of_them() -> None:
    found = plan(job(1, 3), pod("a", claim("c1", 1)), pod("b", claim("c2", 1)))
    assert all(isinstance(it, Deallocate) for it in found.actions)
    assert len(found.actions) == 2


def test_a_claim_that_something_else_has_reserved_is_left_alone() -> None:
    found = plan(job(1), pod("a", claim("c1", 0, others=True)))
    assert "has other devices than Slurm job 7" in found.fault
    found = plan(job(1), pod("a", claim("c1", 1, others=True)))
    assert found.fault


def test_a_job_whose_devices_are_not_known_gives_none() -> None:
    assert "Slurm names no device" in plan(job(), pod("a", claim("c1"))).fault


def test_a_job_with_fewer_devices_than_its_pods_request_gives_none_twice() -> None:
    found = plan(job(1), pod("a", claim("c1")), pod("b", claim("c2")))
    assert "still allocated" in found.fault
    assert "requests more" in plan(job(1), pod("a", claim("c1", number=2))).fault


def test_a_pod_whose_claims_are_not_known_gets_nothing() -> None:
    lost = dataclasses.replace(pod("a"), claims=None, unsized="gone")
    assert "can't be read: gone" in plan(job(1), lost).fault


def test_a_claim_that_is_being_deleted_gets_nothing() -> None:
    found = plan(job(1), pod("a", dataclasses.replace(claim("c1"), deleting=True)))
    assert "is being deleted" in found.fault


def test_a_pod_stays_on_the_node_of_its_devices() -> None:
    assert grants.node_of(pod("a", claim("c1", 1)), job(1)) == "k1"
    assert grants.node_of(pod("a", claim("c1", 0)), job(1)) == ""
    assert grants.node_of(pod("a"), job(1)) == ""


def unused(*pods: Pod, phase: Phase | None) -> list[Deallocate]:
    its = dataclasses.replace(job(0), phase=phase) if phase is not None else None
    found = dataclasses.replace(view(*pods), jobs={7: its} if its is not None else {})
    return [it for it in decide.decide(found) if isinstance(it, Deallocate)]


@pytest.mark.parametrize("phase", [None, Phase.PENDING, Phase.STOPPED, Phase.ENDED])
def test_a_pod_behind_its_gate_gives_its_devices_back_while_its_job_does_not_run(
    phase: Phase | None,
) -> None:
    this = pod("a", claim("c1", 0))
    assert unused(this, phase=phase) == [Deallocate(this, claim("c1", 0))]


def test_a_pod_that_was_queued_again_gives_its_devices_back() -> None:
    this = dataclasses.replace(pod("a", claim("c1", 0)), job=None)
    assert unused(this, phase=Phase.RUNNING) == [Deallocate(this, claim("c1", 0))]


def test_pods_whose_release_was_sent_or_whose_job_runs_keep_their_devices() -> None:
    this = pod("a", claim("c1", 0))
    assert not unused(this, phase=Phase.RUNNING)
    assert not unused(dataclasses.replace(this, node="k1"), phase=None)
    assert not unused(dataclasses.replace(this, gated=False), phase=None)


def test_devices_that_are_not_shown_yet_or_reserved_by_something_else_are_not_taken_back() -> None:
    assert not unused(pod("a", claim("c1", 0, others=True)), phase=None)
    assert not unused(pod("a", claim("c1", 0, shown=False)), phase=None)
