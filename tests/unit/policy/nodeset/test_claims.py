"""Who owns the claims of a NodeSet's pods: `sidecars.policy.nodeset.claims`."""

from dataclasses import replace
from typing import Any

from sidecars.policy.nodeset.claims import ClaimChanges, changes
from sidecars.policy.nodeset.pods import PodPlan
from sidecars.policy.nodeset.records import Claim, Deletion
from sidecars.workloads.resources import NodeSet
from tests.support import builders
from tests.unit.policy.nodeset.builders import worker

TEMPLATES = [{"metadata": {"name": "data"}, "spec": {}}]
POD = worker(1)
OTHER = worker(0)
CLAIM = Claim("data-slinky-1", "claim-1")
NODESET_UID = "uid-of-slinky"


def asked(when_deleted: str = "Retain", when_scaled: str = "Retain", **spec: Any) -> NodeSet:
    policy = {"whenDeleted": when_deleted, "whenScaled": when_scaled}
    templates = {"volumeClaimTemplates": TEMPLATES, "persistentVolumeClaimRetentionPolicy": policy}
    return builders.nodeset("slinky", **(templates | spec))


def owners(found: ClaimChanges) -> list[tuple[str, list[str]]]:
    """Of the changes that no deletion waits for: name of the claim and uids of its owners."""
    return [(it.claim.name, [owner["uid"] for owner in it.owners]) for it in found.others]


def test_claims_that_are_retained_get_no_owner() -> None:
    assert changes(asked(), [CLAIM], [POD], PodPlan()) == ClaimChanges({})
    owned = replace(CLAIM, owners=frozenset({NODESET_UID}))
    assert owners(changes(asked(), [owned], [POD], PodPlan())) == [("data-slinky-1", [])]


def test_claims_that_are_deleted_with_the_nodeset_are_owned_by_it() -> None:
    assert owners(changes(asked("Delete"), [CLAIM], [POD], PodPlan())) == [
        ("data-slinky-1", [NODESET_UID])
    ]
    owned = replace(CLAIM, owners=frozenset({NODESET_UID}))
    assert changes(asked("Delete"), [owned], [POD], PodPlan()).others == ()


def test_the_claims_of_a_pod_that_waits_to_be_scaled_in_are_owned_by_it_until_it_is_rescued() -> (
    None
):
    waiting = PodPlan(scaled_in=(POD,))
    nodeset = asked(when_scaled="Delete")
    assert owners(changes(nodeset, [CLAIM], [OTHER, POD], waiting)) == [
        ("data-slinky-1", [POD.uid])
    ]
    owned = replace(CLAIM, owners=frozenset({POD.uid}))
    assert changes(nodeset, [owned], [OTHER, POD], waiting).others == ()
    assert owners(changes(nodeset, [owned], [OTHER, POD], PodPlan())) == [("data-slinky-1", [])]


def test_before_a_pod_is_scaled_in_it_becomes_the_owner_of_its_claims() -> None:
    nodeset = asked("Delete", "Delete")
    plan = PodPlan(delete=(Deletion(POD, "drained", scaled_in=True),), scaled_in=(POD,))
    found = changes(nodeset, [CLAIM], [OTHER, POD], plan)
    [change] = found.before_deletion[POD.uid]
    assert [owner["uid"] for owner in change.owners] == [POD.uid]
    assert found.others == ()
    replaced = PodPlan(delete=(Deletion(POD, "an update"),))
    assert changes(nodeset, [CLAIM], [OTHER, POD], replaced).before_deletion == {}


def test_claims_of_another_owner_and_terminating_ones_are_left_alone() -> None:
    for claim in (replace(CLAIM, owners=frozenset({"another"})), replace(CLAIM, terminating=True)):
        found = changes(asked("Delete", "Delete"), [claim], [POD], PodPlan(scaled_in=(POD,)))
        assert found.others == ()


def test_in_daemon_set_mode_a_pod_has_the_claims_of_its_kubernetes_node() -> None:
    daemon = replace(POD, mode="DaemonSet", place="a")
    there, elsewhere = Claim("data-x", "claim-x", place="a"), Claim("data-y", "claim-y", place="b")
    found = changes(
        asked(when_scaled="Delete"), [there, elsewhere], [daemon], PodPlan(scaled_in=(daemon,))
    )
    assert owners(found) == [("data-x", [daemon.uid])]
