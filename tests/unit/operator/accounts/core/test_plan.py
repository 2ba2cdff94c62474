"""The changes that bring slurmdbd to a declaration: `sidecars.operator.accounts.core.plan`."""

from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from sidecars.operator.accounts.core.declared import Account, Declared, Qos, User, faults
from sidecars.operator.accounts.core.live import Live
from sidecars.operator.accounts.core.plan import exists, plan
from sidecars.simulate.accounting import Accounting
from sidecars.simulate.records import SimAssociation
from sidecars.slurm.protocol.accounting import Association
from tests.support.slurmdbd import apply, by_hand, live, replace_prune, settle

ACCOUNTS, USERS, QOS = ("a", "b", "c", "d"), ("alice", "bob"), ("high", "low")


def declared(**kinds: Any) -> Declared:
    """From plain values."""
    return msgspec.convert(kinds, Declared)


Strategy = st.SearchStrategy[Any]
numbers = st.none() | st.integers(0, 3)
levels: Strategy = st.sampled_from([None, "None", "Operator", "Administrator"])
association_limits: Strategy = st.fixed_dictionaries(
    {},
    optional={
        "MaxJobs": st.integers(-1, 3),
        "GrpJobs": st.integers(-1, 3),
        "GrpTRES": st.dictionaries(
            st.sampled_from(["cpu", "gres/gpu"]), st.integers(-1, 3), min_size=1
        ),
    },
)
qos_limits: Strategy = st.fixed_dictionaries(
    {},
    optional={
        "MaxWall": st.integers(-1, 3),
        "MaxTRESPerUser": st.dictionaries(
            st.sampled_from(["cpu", "gres/gpu"]), st.integers(-1, 3), min_size=1
        ),
    },
)


@st.composite
def declarations(draw: st.DrawFn) -> Declared:
    """A declaration that has no faults, whatever other such declaration slurmdbd has already."""
    qos = {
        name: Qos(
            description=draw(st.sampled_from([None, "d1", "d2"])),
            priority=draw(numbers),
            flags=draw(
                st.none() | st.lists(st.sampled_from(["DENY_LIMIT", "NO_RESERVE"]), unique=True)
            ),
            preempt=draw(st.sampled_from([None, ["normal"]])),
            preempt_mode=draw(st.sampled_from([None, "REQUEUE", "CANCEL"])),
            grace_time=draw(numbers),
            limits=draw(qos_limits),
        )
        for name in draw(st.sets(st.sampled_from(QOS)))
    }
    usable = st.none() | st.sets(st.sampled_from(["normal", *qos]), min_size=1).map(sorted)
    accounts: dict[str, Account] = {}
    for name in sorted(draw(st.sets(st.sampled_from(ACCOUNTS)))):
        # Parents come earlier in the alphabet or are explicit, so that no two declarations together
        # make a circle.
        accounts[name] = Account(
            fairshare=draw(numbers),
            qos=draw(usable),
            limits=draw(association_limits),
            description=draw(st.sampled_from([None, "d1", "d2"])),
            organization=draw(st.sampled_from([None, "o1", "o2"])),
            parent=draw(st.sampled_from([None, "root", *accounts])),
        )
    users: dict[str, User] = {}
    for name in draw(st.sets(st.sampled_from(USERS))) if accounts else ():
        its = draw(st.lists(st.sampled_from(sorted(accounts)), min_size=1, unique=True))
        users[name] = User(
            fairshare=draw(numbers),
            qos=draw(usable),
            limits=draw(association_limits),
            accounts=its,
            default_account=draw(st.sampled_from([None, *its])),
            admin_level=draw(levels),
        )
    return Declared(accounts, users, qos, draw(st.booleans()))


@given(declarations(), declarations())
def test_applying_the_plan_yields_what_is_declared_and_the_next_plan_is_empty(
    before: Declared, wanted: Declared
) -> None:
    slurmdbd = Accounting()
    by_hand(slurmdbd, before)
    assert list(faults(wanted, live(slurmdbd))) == []
    last, _ = settle(slurmdbd, wanted)
    assert last.changes == ()
    check(wanted, live(slurmdbd))


def check(wanted: Declared, found: Live) -> None:
    """slurmdbd has each declared field."""
    for name, account in wanted.accounts.items():
        association = found.here[name, ""]
        assert account.parent in {None, association.parent_account}
        assert account.description in {None, found.accounts[name].description}
        assert account.organization in {None, found.accounts[name].organization}
        has(association, account)
    for name, user in wanted.users.items():
        assert user.admin_level is None or found.users[name].admin_levels == {user.admin_level}
        for account_name in user.accounts:
            association = found.here[account_name, name]
            assert user.default_account != account_name or association.is_default
            has(association, user)
    for name, qos in wanted.qos.items():
        record = found.qos[name]
        assert qos.priority in {None, record.priority}
        assert qos.flags is None or set(qos.flags) == record.flags
        assert qos.preempt is None or set(qos.preempt) == record.preempt
        assert qos.preempt_mode in {None, record.preempt_mode}
        assert qos.grace_time in {None, record.grace_time}
        assert qos.limits.get("MaxWall") in {None, -1, record.limits.get("MaxWall")}


def has(association: Association, wanted: Account | User) -> None:
    """The association has what is declared for it."""
    assert wanted.fairshare in {None, association.shares}
    assert wanted.qos is None or set(wanted.qos) == set(association.qos)
    assert wanted.limits.get("MaxJobs") in {None, -1, association.limits.get("MaxJobs")}
    assert wanted.limits.get("GrpJobs") in {None, association.limits.get("GrpJobs", -1)}
    for tres, count in wanted.limits.get("GrpTRES", {}).items():  # type: ignore[union-attr]
        assert association.tres.get("GrpTRES", {}).get(tres, -1) == count


@given(declarations(), declarations(), st.integers(0, 40))
def test_an_interruption_anywhere_is_made_good_by_the_next_plan(
    first: Declared, wanted: Declared, stop: int
) -> None:
    slurmdbd = Accounting()
    _, ours = settle(slurmdbd, first)
    step = plan(wanted, live(slurmdbd), ours)
    # What counts as created is stored before the first change.
    ours = step.created(ours)
    apply(slurmdbd, step.changes[:stop])
    last, _ = settle(slurmdbd, wanted, ours)
    assert last.changes == ()
    check(wanted, live(slurmdbd))
    reference = Accounting()
    _, ours = settle(reference, first)
    settle(reference, wanted, ours)
    assert live(slurmdbd) == live(reference)


@given(declarations(), declarations())
def test_what_others_made_is_never_removed_and_only_declared_fields_of_it_change(
    others: Declared, wanted: Declared
) -> None:
    slurmdbd = Accounting()
    by_hand(slurmdbd, others)
    before = live(slurmdbd)
    _, ours = settle(slurmdbd, replace_prune(wanted, prune=True))
    # Everything that was declared is deleted again, and what others created stays.
    settle(slurmdbd, Declared(prune=True), ours)
    after = live(slurmdbd)
    assert set(before.accounts) <= set(after.accounts)
    assert set(before.users) <= set(after.users)
    assert set(before.qos) <= set(after.qos)
    assert set(before.here) <= set(after.here)
    for key, association in before.here.items():
        if key[0] not in wanted.accounts and (key[1] not in wanted.users or not key[1]):
            now = after.here[key]
            assert (now.parent_account, now.shares) == (
                association.parent_account,
                association.shares,
            )
            assert now.tres == association.tres or key[1]
    for name, qos in before.qos.items():
        assert name in wanted.qos or after.qos[name] == qos


@given(declarations())
def test_with_prune_what_was_created_goes_when_it_is_not_declared_any_more(
    wanted: Declared,
) -> None:
    slurmdbd = Accounting()
    before = live(slurmdbd)
    _, ours = settle(slurmdbd, wanted)
    last, ours = settle(slurmdbd, Declared(prune=True), ours)
    assert (last.changes, last.left) == ((), ())
    assert live(slurmdbd) == before
    assert not any(exists(name, live(slurmdbd)) for name in ours)


def test_without_prune_it_stays_and_is_named() -> None:
    slurmdbd = Accounting()
    _, ours = settle(
        slurmdbd,
        declared(accounts={"a": {}}, users={"alice": {"accounts": ["a"]}}, qos={"high": {}}),
    )
    last, _ = settle(slurmdbd, Declared(), ours)
    assert last.changes == ()
    assert last.left == (
        "user alice stays: set prune to delete it",
        "account a stays: set prune to delete it",
        "QOS high stays: set prune to delete it",
    )


def test_an_account_stays_while_someone_elses_user_or_account_is_in_it() -> None:
    slurmdbd = Accounting()
    _, ours = settle(slurmdbd, declared(accounts={"a": {}, "b": {}, "c": {"parent": "b"}}))
    by_hand(slurmdbd, declared(users={"bob": {"accounts": ["a"]}}, accounts={"d": {"parent": "c"}}))
    last, _ = settle(slurmdbd, Declared(prune=True), ours)
    assert last.changes == ()
    assert sorted(last.left) == [
        "account a stays: it has users, for example bob",
        "account b stays: account c is below it",
        "account c stays: account d is below it",
    ]


def test_a_user_whom_someone_else_added_to_another_account_stays_in_that_one() -> None:
    slurmdbd = Accounting()
    _, ours = settle(slurmdbd, declared(accounts={"a": {}}, users={"alice": {"accounts": ["a"]}}))
    theirs = {"accounts": ["theirs"], "defaultAccount": "theirs"}
    by_hand(slurmdbd, declared(accounts={"theirs": {}}, users={"alice": theirs}))
    last, _ = settle(slurmdbd, Declared(prune=True), ours)
    assert last.changes == ()
    assert [key for key in live(slurmdbd).here if key[1] == "alice"] == [("theirs", "alice")]


def test_an_account_stays_while_another_cluster_has_it() -> None:
    slurmdbd = Accounting()
    _, ours = settle(slurmdbd, declared(accounts={"a": {}}))
    slurmdbd.add_cluster("other")
    slurmdbd.associations.append(SimAssociation("a", "other", parent="root"))
    last, _ = settle(slurmdbd, Declared(prune=True), ours)
    assert last.left == ("account a stays: cluster other has it too",)


def test_a_qos_stays_while_anyone_can_use_it() -> None:
    slurmdbd = Accounting()
    _, ours = settle(slurmdbd, declared(qos={"high": {}, "low": {"preempt": ["high"]}}))
    by_hand(slurmdbd, declared(accounts={"a": {"qos": ["low"]}}))
    last, _ = settle(slurmdbd, Declared(prune=True), ours)
    assert last.left == (
        "QOS high stays: QOS low can preempt it",
        "QOS low stays: account a can use it",
    )


def test_what_jobs_use_is_refused_and_everything_else_is_done() -> None:
    slurmdbd = Accounting()
    wanted = declared(
        accounts={"a": {}}, users={"alice": {"accounts": ["a"]}, "bob": {"accounts": ["a"]}}
    )
    _, ours = settle(slurmdbd, wanted)
    slurmdbd.with_jobs.add(("a", "alice"))
    step = plan(Declared(prune=True), live(slurmdbd), ours)
    refused = apply(slurmdbd, step.changes)
    assert set(refused) == {"delete user alice", "delete account a"}
    assert set(live(slurmdbd).users) == {"root", "alice"}


def test_two_accounts_change_places_without_one_being_below_itself_in_between() -> None:
    slurmdbd = Accounting()
    settle(slurmdbd, declared(accounts={"a": {"parent": "root"}, "b": {"parent": "a"}}))
    step = plan(
        declared(accounts={"a": {"parent": "b"}, "b": {"parent": "root"}}), live(slurmdbd), ()
    )
    assert [change.text for change in step.changes] == [
        "account b: parent=root",
        "account a: parent=b",
    ]
    apply(slurmdbd, step.changes)
    found = live(slurmdbd).accounts_here
    assert (found["a"].parent_account, found["b"].parent_account) == ("b", "root")


def test_a_changed_field_keeps_the_tres_flags_and_mode_that_someone_else_set() -> None:
    slurmdbd = Accounting()
    by_hand(
        slurmdbd,
        declared(
            accounts={"a": {"limits": {"GrpTRES": {"cpu": 5}, "MaxTRES": {"cpu": 1}}}},
            qos={"high": {"flags": ["DENY_LIMIT"], "preemptMode": "REQUEUE"}},
        ),
    )
    settle(
        slurmdbd,
        declared(
            accounts={"a": {"fairshare": 3, "limits": {"GrpTRES": {"gres/gpu": 2}}}},
            qos={"high": {"priority": 9}},
        ),
    )
    found = live(slurmdbd)
    assert found.here["a", ""].tres == {"GrpTRES": {"cpu": 5, "gres/gpu": 2}, "MaxTRES": {"cpu": 1}}
    assert (found.qos["high"].flags, found.qos["high"].preempt_mode) == (
        frozenset({"DENY_LIMIT"}),
        "REQUEUE",
    )


def test_many_users_come_into_an_account_with_one_request() -> None:
    slurmdbd = Accounting()
    users = {f"u{number}": {"accounts": ["b", "a"], "defaultAccount": "a"} for number in range(150)}
    wanted = declared(accounts={"a": {}, "b": {}}, users=users)
    step = plan(wanted, live(slurmdbd), ())
    assert (
        sum(change.text.startswith("add users u") for change in step.changes)
        == len(step.changes) - 2
        == 4
    )
    last, _ = settle(slurmdbd, wanted)
    assert last.changes == ()
    here = live(slurmdbd).here
    assert all(here["a", name].is_default for name in users)


def test_a_user_leaves_the_default_account_once_another_one_is_the_default() -> None:
    slurmdbd = Accounting()
    both = declared(accounts={"a": {}, "b": {}}, users={"alice": {"accounts": ["a", "b"]}})
    _, ours = settle(slurmdbd, both)
    wanted = declared(accounts={"a": {}, "b": {}}, users={"alice": {"accounts": ["b"]}}, prune=True)
    last, _ = settle(slurmdbd, wanted, ours)
    assert last.changes == ()
    found = live(slurmdbd).here
    assert ("a", "alice") not in found
    assert found["b", "alice"].is_default
