"""What is known of a pod."""

import dataclasses

from sidecars.bridge.core.records import GroupKey, Pod, avoid_key

POD = Pod("u", "team", "pod", GroupKey("team", "group/g"))


def test_a_terminating_pod_uses_resources_and_a_finished_or_lost_one_does_not() -> None:
    terminating = dataclasses.replace(POD, deleting=True)
    assert (terminating.live, terminating.present) == (False, True)
    for gone in (dataclasses.replace(POD, finished=True), dataclasses.replace(POD, lost=True)):
        assert (gone.live, gone.present) == (False, False)


def test_nodes_are_avoided_for_what_replaces_the_pod() -> None:
    assert avoid_key(dataclasses.replace(POD, owner="job-uid")) == "team/job-uid"
    assert avoid_key(POD) == "team/group/g"


def test_nobody_decides_which_nodes_the_pods_of_another_namespace_avoid() -> None:
    """A tenant writes any uid as that of the owner of its pods."""
    for owner in ("", "job-uid"):
        theirs = dataclasses.replace(POD, owner=owner)
        for forged in (owner, avoid_key(theirs)):
            other = Pod("v", "other", "pod", GroupKey("other", "v"), owner=forged)
            assert avoid_key(other) != avoid_key(theirs)
