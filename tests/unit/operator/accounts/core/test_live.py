"""What of slurmdbd belongs to one Slurm cluster: `sidecars.operator.accounts.core.live`."""

from typing import Any

import pytest

from sidecars.operator.accounts.core.declared import Declared
from sidecars.operator.accounts.core.live import Live
from sidecars.operator.accounts.core.plan import exists
from sidecars.operator.accounts.core.step import named
from sidecars.simulate.accounting import Accounting
from sidecars.simulate.records import SimAccount, SimAssociation
from sidecars.slurm.protocol.accounting import Association
from tests.support.slurmdbd import CLUSTER, by_hand, live, settle
from tests.unit.operator.accounts.core.test_plan import declared

WANTED: dict[str, Any] = {
    "accounts": {"physics": {"fairshare": 3}},
    "users": {"alice": {"accounts": ["physics"]}},
}

Places = dict[tuple[str, str, str, str], SimAssociation]


def foreign(slurmdbd: Accounting) -> Places:
    """The associations of other clusters and those of partitions."""
    return {it.key: it for it in slurmdbd.associations if it.cluster != "slurm" or it.partition}


def with_another_cluster() -> Accounting:
    """A slurmdbd where cluster `other` has alice in account physics with its own limits."""
    slurmdbd = Accounting()
    slurmdbd.add_cluster("other")
    slurmdbd.associations += [
        SimAssociation("physics", "other", parent="root", shares=40, limits={"GrpJobs": 4}),
        SimAssociation(
            "physics", "other", "alice", is_default=True, shares=50, limits={"MaxJobs": 5}
        ),
    ]
    slurmdbd.accounts["physics"] = SimAccount("physics", "theirs", "theirs")
    slurmdbd.users["alice"] = "None"
    return slurmdbd


def with_a_partition() -> Accounting:
    """A slurmdbd where alice is in account physics in partition gpu alone."""
    slurmdbd = Accounting()
    by_hand(slurmdbd, declared(accounts={"physics": {}}))
    slurmdbd.associations.append(
        SimAssociation(
            "physics", "slurm", "alice", shares=60, partition="gpu", limits={"MaxJobs": 6}
        )
    )
    slurmdbd.users["alice"] = "None"
    return slurmdbd


def test_only_associations_of_the_cluster_without_a_partition_are_its_own() -> None:
    own = Association("physics", "slurm", "alice")
    others = (
        Association("physics", "other", "alice", shares=9),
        Association("physics", "slurm", "alice", "gpu", shares=9),
        Association("physics", "other", "alice", "gpu", shares=9),
        Association("chemistry", "other"),
        Association("chemistry", "slurm", "bob", "gpu"),
    )
    found = Live("slurm", {}, {}, {}, (*others, own, *others), frozenset())
    assert dict(found.here) == {("physics", "alice"): own}
    assert dict(found.accounts_here) == {}
    assert not exists(named("association", "chemistry", ""), found)


@pytest.mark.parametrize("make", [with_another_cluster, with_a_partition])
def test_what_another_cluster_or_a_partition_has_is_created_here_and_there_it_stays(
    make: Any,
) -> None:
    slurmdbd = make()
    before = repr(foreign(slurmdbd))
    last, ours = settle(slurmdbd, declared(**WANTED))
    assert last.changes == ()
    here = live(slurmdbd).here
    assert (here["physics", ""].shares, here["physics", "alice"].shares) == (3, 1)
    assert named("association", "physics", "alice") in ours
    assert repr(foreign(slurmdbd)) == before


def test_a_limit_is_set_here_whatever_another_cluster_or_a_partition_has() -> None:
    slurmdbd = with_another_cluster()
    settle(slurmdbd, declared(**WANTED))
    slurmdbd.associations.append(
        SimAssociation("physics", "slurm", "alice", shares=8, partition="gpu")
    )
    before = repr(foreign(slurmdbd))
    wanted = declared(
        accounts={"physics": {"limits": {"GrpJobs": 4}}},
        users={"alice": {"accounts": ["physics"], "fairshare": 8, "limits": {"MaxJobs": 5}}},
    )
    last, _ = settle(slurmdbd, wanted)
    assert last.changes == ()
    here = live(slurmdbd).here
    assert here["physics", ""].limits == {"GrpJobs": 4}
    assert (here["physics", "alice"].shares, here["physics", "alice"].limits["MaxJobs"]) == (8, 5)
    assert repr(foreign(slurmdbd)) == before


def test_after_prune_the_account_and_user_of_another_cluster_are_as_before() -> None:
    slurmdbd = with_another_cluster()
    before = repr(foreign(slurmdbd))
    _, ours = settle(slurmdbd, declared(**WANTED))
    last, _ = settle(slurmdbd, Declared(prune=True), ours)
    assert last.changes == ()
    assert last.left == (
        "account physics stays: another cluster had it before; remove it with sacctmgr",
    )
    assert ("physics", "alice") not in live(slurmdbd).here
    assert repr(foreign(slurmdbd)) == before
    assert {"physics", "alice"} <= {*live(slurmdbd).accounts, *live(slurmdbd).users}


def test_two_clusters_declare_the_same_names_in_one_slurmdbd_and_neither_loses_any() -> None:
    slurmdbd = Accounting()
    slurmdbd.add_cluster("other")
    mine, theirs = (
        declared(
            accounts={"physics": {"fairshare": fairshare, "limits": {"MaxJobs": fairshare}}},
            users={"alice": {"accounts": ["physics"], "limits": {"MaxSubmitJobs": fairshare}}},
        )
        for fairshare in (5, 7)
    )
    settle(slurmdbd, mine)
    first, created = settle(slurmdbd, theirs, cluster="other")
    again, _ = settle(slurmdbd, mine)
    assert (first.changes, again.changes) == ((), ())
    for cluster, number in ((CLUSTER, 5), ("other", 7)):
        here = live(slurmdbd, cluster).here
        assert (here["physics", ""].shares, here["physics", ""].limits["MaxJobs"]) == (
            number,
            number,
        )
        assert here["physics", "alice"].limits["MaxSubmitJobs"] == number

    before = repr(live(slurmdbd).here)
    settle(slurmdbd, Declared(prune=True), created, cluster="other")
    assert ("physics", "alice") not in live(slurmdbd, "other").here
    assert repr(live(slurmdbd).here) == before


def test_a_parent_that_only_another_cluster_has_is_none_of_this_one() -> None:
    slurmdbd = with_another_cluster()
    assert "physics" in live(slurmdbd).accounts
    assert set(live(slurmdbd).accounts_here) == {"root"}
