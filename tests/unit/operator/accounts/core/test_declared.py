"""What is wrong with a declaration, and which parents it means:
`sidecars.operator.accounts.core.declared`.
"""

from typing import Any

import pytest

from sidecars.operator.accounts.core.declared import faults, parents_of
from sidecars.simulate.accounting import Accounting
from sidecars.simulate.records import SimAssociation
from tests.support.slurmdbd import by_hand, live
from tests.unit.operator.accounts.core.test_plan import declared


def test_the_parent_is_the_declared_one_then_that_of_slurmdbd_and_for_a_new_account_root() -> None:
    slurmdbd = Accounting()
    by_hand(
        slurmdbd,
        declared(
            accounts={"theirs": {}, "below": {"parent": "theirs"}, "moved": {"parent": "theirs"}}
        ),
    )
    wanted = declared(
        accounts={"new": {}, "under": {"parent": "below"}, "below": {}, "moved": {"parent": "new"}}
    )
    parents = parents_of(wanted, live(slurmdbd))
    names = ("new", "under", "below", "moved", "theirs", "root", "absent")
    assert {name: parents(name) for name in names} == {
        "new": "root",
        "under": "below",
        "below": "theirs",
        "moved": "new",
        "theirs": "root",
        "root": "",
        "absent": "",
    }


def test_an_account_that_only_another_cluster_has_is_none_to_be_below() -> None:
    slurmdbd = Accounting()
    slurmdbd.add_cluster("other")
    slurmdbd.associations.append(SimAssociation("physics", "other", parent="root"))
    found = list(faults(declared(accounts={"a": {"parent": "physics"}}), live(slurmdbd)))
    assert found == [
        "accounts.a.parent: no account `physics` exists; add it to accounts, or correct the name"
    ]


@pytest.mark.parametrize(
    ("kinds", "fault"),
    [
        ({"accounts": {"a": {"parent": "x"}}}, "accounts.a.parent: no account `x` exists"),
        (
            {"accounts": {"a": {"parent": "b"}, "b": {"parent": "a"}}},
            "accounts.a.parent: below itself (a → b → a)",
        ),
        ({"accounts": {"a": {"parent": "a"}}}, "accounts.a.parent: below itself (a → a)"),
        (
            {"accounts": {"theirs": {"parent": "below"}}},
            "accounts.theirs.parent: below itself (theirs → below → theirs)",
        ),
        ({"accounts": {"Upper": {}}}, "accounts.Upper: a name has a-z"),
        ({"accounts": {"root": {}}}, "accounts.root: slurmdbd manages this account"),
        ({"accounts": {"a": {"qos": ["x"]}}}, "accounts.a.qos: no QOS `x` exists"),
        ({"accounts": {"a": {"defaultQos": "x"}}}, "accounts.a.defaultQos: no QOS `x` exists"),
        (
            {"accounts": {"a": {"fairshare": -2}}},
            "accounts.a.fairshare: -2 is not a number from 0 to",
        ),
        ({"accounts": {"a": {"limits": {"MaxJob": 1}}}}, "accounts.a.limits.MaxJob: no such limit"),
        (
            {"accounts": {"a": {"limits": {"MaxJobs": -7}}}},
            "accounts.a.limits.MaxJobs: -7 is no limit",
        ),
        (
            {"accounts": {"a": {"limits": {"MaxJobs": {"cpu": 1}}}}},
            "accounts.a.limits.MaxJobs: should be a number",
        ),
        (
            {"accounts": {"a": {"limits": {"GrpTRES": 1}}}},
            "accounts.a.limits.GrpTRES: should be a number for each TRES",
        ),
        (
            {"qos": {"q": {"limits": {"GrpTRES": {"gres/x": 1}}}}},
            "qos.q.limits.GrpTRES.gres/x: Slurm doesn't count",
        ),
        ({"qos": {"q": {"preempt": ["x"]}}}, "qos.q.preempt: no QOS `x` exists"),
        ({"qos": {"q": {"preempt": ["q"]}}}, "qos.q.preempt: a QOS can't preempt itself"),
        ({"users": {"u": {}}}, "users.u.accounts: a user needs an account"),
        ({"users": {"u": {"accounts": ["x"]}}}, "users.u.accounts: no account `x` exists"),
        (
            {"users": {"u": {"accounts": ["theirs", "theirs"]}}},
            "users.u.accounts: an account is listed twice",
        ),
        (
            {"users": {"u": {"accounts": ["theirs"], "defaultAccount": "below"}}},
            "users.u.defaultAccount: `below` is none of its accounts",
        ),
    ],
)
def test_a_fault_is_named_with_its_place_and_value(kinds: Any, fault: str) -> None:
    slurmdbd = Accounting()
    by_hand(slurmdbd, declared(accounts={"theirs": {}, "below": {"parent": "theirs"}}))
    found = list(faults(declared(**kinds), live(slurmdbd)))
    assert len(found) == 1
    assert found[0].startswith(fault)
