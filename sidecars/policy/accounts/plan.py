"""The changes that bring Slurm to a declaration, in an order that can be interrupted anywhere and planned again.

What isn't declared is left as it is, field by field. Only what was created from the declaration is ever deleted, and
only with `prune`. slurmdbd answers 200 to some changes that it doesn't apply: read again and plan again, until the plan
is empty or the same.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sidecars.policy.accounts import reservations
from sidecars.policy.accounts.declared import ROOT, Account, Declared, Limit, Qos, User, parents_of
from sidecars.policy.accounts.live import Live
from sidecars.policy.accounts.step import Change, named
from sidecars.slurm.protocol import Request, accounting, delete_reservation
from sidecars.slurm.protocol.accounting import Association
from sidecars.slurm.protocol.limits import INHERITED, NO_LIMIT, Tres


@dataclass(frozen=True)
class Plan:
    """The changes in their order, and what else is to be reported."""

    changes: tuple[Change, ...]
    left: tuple[str, ...]
    """What stays although the declaration differs: each with the reason."""

    def created(self, before: Collection[str]) -> frozenset[str]:
        """What counts as created from declarations while the plan is applied. Store it before the first change."""
        return frozenset(before).union(*(change.creates for change in self.changes))


def exists(name: str, live: Live) -> bool:
    """Whether slurmdbd has what `named` names, on this cluster for what belongs to a cluster."""
    kind, _, rest = name.partition("/")
    if kind == "association":
        account, _, user = rest.partition("/")
        return (account, user) in live.here
    known: Mapping[str, Mapping[str, object]] = {
        "account": live.accounts,
        "user": live.users,
        "qos": live.qos,
        "reservation": live.reservations,
    }
    return rest in known.get(kind, {})


def plan(declared: Declared, live: Live, created: Collection[str]) -> Plan:
    """The changes for a declaration without faults. `created`: what was created from declarations before."""
    changes = [*_qos(declared, live), *_accounts(declared, live), *_users(declared, live)]
    changes += reservations.changes(declared, live, live.now)
    deletions, left = _prune(declared, live, [name for name in created if exists(name, live)])
    return Plan((*changes, *deletions), (*left, *reservations.left(declared, live, live.now)))


def _qos(declared: Declared, live: Live) -> Iterator[Change]:
    # A QOS may preempt one that comes later, so all exist before the lists are set.
    for name, wanted in declared.qos.items():
        if name not in live.qos:
            yield Change(
                f"create QOS {name}",
                accounting.save_qos(name, description=wanted.description or name),
                (named("qos", name),),
            )
    for name, wanted in declared.qos.items():
        record = live.qos.get(name) or accounting.Qos(name, wanted.description or name)
        fields, words = _qos_fields(wanted, record)
        if fields:
            yield Change(f"QOS {name}: {', '.join(words)}", accounting.save_qos(name, record, **fields))


def _qos_fields(wanted: Qos, record: accounting.Qos) -> tuple[dict[str, Any], list[str]]:
    fields = _differing(
        ("description", wanted.description, record.description),
        ("priority", wanted.priority, record.priority),
        ("flags", _set(wanted.flags), record.flags),
        ("preempt", _set(wanted.preempt), record.preempt),
        ("preempt_mode", wanted.preempt_mode, record.preempt_mode),
        ("grace_time", wanted.grace_time, record.grace_time),
    )
    words = [_word(key, value) for key, value in fields.items()]
    limits, tres = _limits(wanted.limits, record.limits, lambda name: record.tres.get(name, {}), record.tres)
    return _with_limits(fields, words, limits, tres)


def _accounts(declared: Declared, live: Live) -> Iterator[Change]:
    order = _from_the_top(declared, live)
    for name in order:
        wanted, present = declared.accounts[name], live.accounts.get(name)
        if name not in live.accounts_here:
            parent = wanted.parent or ROOT
            request = accounting.add_accounts(
                [name],
                clusters=[live.cluster],
                parent=parent,
                description=wanted.description or "",
                organization=wanted.organization or "",
            )
            creates = (named("association", name, ""), *(() if present is not None else (named("account", name),)))
            yield Change(f"create account {name} below {parent}", request, creates)
        if present is not None:
            texts = _differing(
                ("description", wanted.description, present.description),
                ("organization", wanted.organization, present.organization),
            )
            if texts:
                whole = {"description": present.description, "organization": present.organization, **texts}
                words = [_word(key, value) for key, value in texts.items()]
                yield Change(f"account {name}: {', '.join(words)}", accounting.update_account(name, **whole))
    for name in order:
        wanted = declared.accounts[name]
        record = live.accounts_here.get(name) or Association(name, live.cluster, parent_account=wanted.parent or ROOT)
        moved = _differing(("parent", wanted.parent, record.parent_account))
        yield from _association(f"account {name}", wanted, record, live, moved)


def _users(declared: Declared, live: Live) -> Iterator[Change]:
    yield from _new_associations(declared, live)
    for name, wanted in declared.users.items():
        order = _accounts_of(wanted)
        without = not any(user == name for _, user in live.here)
        for account in order:
            default = without and account == order[0]
            record = live.here.get((account, name)) or Association(account, live.cluster, name, is_default=default)
            become = account == _default_of(name, wanted, declared, live) and not record.is_default
            yield from _association(
                f"user {name} in account {account}", wanted, record, live, {"is_default": True} if become else {}
            )
    for name, wanted in declared.users.items():
        levels = live.users[name].admin_levels if name in live.users else {"None"}
        if wanted.admin_level is not None and levels != {wanted.admin_level}:
            yield Change(
                f"user {name}: admin level {wanted.admin_level}",
                accounting.update_user(name, admin_level=wanted.admin_level),
            )


_TOGETHER = 100
"""Users that one request adds."""


def _accounts_of(user: User) -> list[str]:
    """The default account first: the first account that a user ever gets becomes it."""
    return sorted(user.accounts, key=lambda account: account != user.default_account)


def _new_associations(declared: Declared, live: Live) -> Iterator[Change]:
    """Users come into their accounts, many with one request, each into its first account first."""
    first: dict[str, list[str]] = {}
    others: dict[str, list[str]] = {}
    for name, wanted in declared.users.items():
        missing = [account for account in _accounts_of(wanted) if (account, name) not in live.here]
        for number, account in enumerate(missing):
            (others if number else first).setdefault(account, []).append(name)
    for groups in (first, others):
        for account, names in groups.items():
            for start in range(0, len(names), _TOGETHER):
                some = names[start : start + _TOGETHER]
                creates = [named("association", account, name) for name in some]
                if groups is first:
                    creates += [named("user", name) for name in some if name not in live.users]
                request = accounting.add_users(some, accounts=[account], clusters=[live.cluster])
                who = f"user {some[0]}" if len(some) == 1 else f"users {', '.join(some)}"
                yield Change(f"add {who} to account {account}", request, tuple(creates))


def _default_of(name: str, wanted: User, declared: Declared, live: Live) -> str | None:
    """The account that must be the user's default one; None for whichever it is."""
    if wanted.default_account is not None or not declared.prune:
        return wanted.default_account
    # The association with the default account can't be deleted.
    default = next((account for (account, user), it in live.here.items() if user == name and it.is_default), None)
    return wanted.accounts[0] if default is not None and default not in wanted.accounts else None


def _association(
    what: str, wanted: Account | User, record: Association, live: Live, more: Mapping[str, Any]
) -> Iterator[Change]:
    above = live.accounts_here.get(record.account if record.user else record.parent_account)
    inherited_limits, inherited_tres = (above.limits, above.tres) if above is not None else ({}, {})
    fields = {
        **more,
        **_differing(
            ("shares", wanted.fairshare, record.shares),
            ("qos", _set(wanted.qos), frozenset(record.qos)),
            ("default_qos", wanted.default_qos, record.default_qos),
        ),
    }
    words = [_word(key, value) for key, value in fields.items()]
    own = {
        name: value
        for name, value in record.limits.items()
        if not (name in INHERITED and inherited_limits.get(name) == value)
    }
    limits, tres = _limits(
        wanted.limits,
        record.limits,
        lambda name: accounting.own_counts(name, record, inherited_tres),
        record.tres,
        own,
    )
    fields, words = _with_limits(fields, words, limits, tres)
    if "qos" in fields:
        fields["qos"] = sorted(fields["qos"])
    if fields:
        request = accounting.update_association(record, inherited=inherited_tres, **fields)
        yield Change(f"{what}: {', '.join(words)}", request)


def _limits(
    wanted: Mapping[str, Limit],
    present: Mapping[str, int],
    own_tres: Callable[[str], Mapping[str, int]],
    tres: Tres,
    own: Mapping[str, int] | None = None,
) -> tuple[dict[str, int], dict[str, dict[str, int]]]:
    """The limits to set. NO_LIMIT removes a record's own limit; one that it has from its parent remains."""
    numbers: dict[str, int] = {}
    counts: dict[str, dict[str, int]] = {}
    for name, value in wanted.items():
        if isinstance(value, dict):
            changed = {
                each: count
                for each, count in value.items()
                if (each in own_tres(name) if count == NO_LIMIT else tres.get(name, {}).get(each) != count)
            }
            if changed:
                counts[name] = changed
        elif name in (present if own is None else own) if value == NO_LIMIT else present.get(name) != value:
            numbers[name] = value
    return numbers, counts


def _with_limits(
    fields: Mapping[str, Any], words: Sequence[str], limits: Mapping[str, int], tres: Tres
) -> tuple[dict[str, Any], list[str]]:
    found, shown = dict(fields), list(words)
    if limits:
        found["limits"] = limits
        shown += [f"{name}={value}" for name, value in limits.items()]
    if tres:
        found["tres"] = tres
        shown += [
            f"{name}={','.join(f'{it}={count}' for it, count in counts.items())}" for name, counts in tres.items()
        ]
    return found, shown


def _prune(declared: Declared, live: Live, ours: Iterable[str]) -> tuple[list[Change], tuple[str, ...]]:
    """Deletions, from the lowest accounts to the top, and what stays."""
    stale = {name for name in ours if not _is_declared(name, declared)}
    changes: list[Change] = []
    left: list[str] = []

    def decide(name: str, text: str, why_not: str, request: Callable[[], Request[Any]], *with_it: str) -> bool:
        if not declared.prune:
            why_not = "set prune to delete it"
        if why_not:
            left.append(f"{text} stays: {why_not}")
            return False
        changes.append(Change(f"delete {text}", request(), deletes=(name, *with_it)))
        return True

    for name in sorted(live.reservations):
        if named("reservation", name) in stale:
            decide(named("reservation", name), f"reservation {name}", "", partial(delete_reservation, name))
    remaining = list(live.associations)
    for user in sorted({it.user for it in live.associations if it.user} | set(live.users)):
        its = [it for it in remaining if it.user == user]
        stale_here = [it for it in its if _stale_association(it, live, stale)]
        whole = named("user", user) in stale and len(stale_here) == len(its)
        if whole:
            associations = [named("association", it.account, user) for it in its]
            if decide(named("user", user), f"user {user}", "", partial(accounting.delete_user, user), *associations):
                remaining = [it for it in remaining if it.user != user]
            continue
        for it in stale_here:
            # Users have a default account on each cluster.
            others_here = sum(each.cluster == live.cluster for each in its) > 1
            keeps = it.is_default and others_here and user not in declared.users
            if decide(
                named("association", it.account, user),
                f"user {user} in account {it.account}",
                "it is the user's default account; change that with sacctmgr" if keeps else "",
                partial(accounting.delete_association, it.account, it.cluster, it.user),
            ):
                remaining.remove(it)
    for account in reversed(_tree(live)):
        if named("account", account) not in stale:
            if named("association", account, "") in stale:
                left.append(f"account {account} stays: another cluster had it before; remove it with sacctmgr")
            continue
        others = [it for it in remaining if it.account == account and it.user]
        below = [it for it in remaining if it.parent_account == account and not it.user]
        elsewhere = [it for it in remaining if it.account == account and it.cluster != live.cluster]
        used = (
            f"it has users, for example {others[0].user}"
            if others
            else f"account {below[0].account} is below it"
            if below
            else f"cluster {elsewhere[0].cluster} has it too"
            if elsewhere
            else ""
        )
        if decide(
            named("account", account),
            f"account {account}",
            used,
            partial(accounting.delete_account, account),
            named("association", account, ""),
        ):
            remaining = [it for it in remaining if it.account != account]
    for name in sorted(live.qos):
        if named("qos", name) not in stale:
            continue
        users = [it for it in remaining if name in it.qos or it.default_qos == name]
        preempting = [it.name for it in live.qos.values() if name in it.preempt]
        used = (
            f"account {users[0].account} can use it"
            if users
            else f"QOS {preempting[0]} can preempt it"
            if preempting
            else ""
        )
        decide(named("qos", name), f"QOS {name}", used, partial(accounting.delete_qos, name))
    return changes, tuple(left)


def _is_declared(name: str, declared: Declared) -> bool:
    kind, _, rest = name.partition("/")
    if kind == "association":
        account, _, user = rest.partition("/")
        if not user:
            return account in declared.accounts
        return user in declared.users and account in declared.users[user].accounts
    known: dict[str, Mapping[str, object]] = {
        "account": declared.accounts,
        "user": declared.users,
        "qos": declared.qos,
        "reservation": declared.reservations,
    }
    return rest in known.get(kind, {})


def _stale_association(association: Association, live: Live, stale: Collection[str]) -> bool:
    return (
        association.cluster == live.cluster
        and not association.partition
        and named("association", association.account, association.user) in stale
    )


def _tree(live: Live) -> list[str]:
    """The accounts of the cluster, each after its parent."""
    parents = {name: it.parent_account for name, it in live.accounts_here.items()}
    return _ordered(sorted(parents), lambda name: parents.get(name, ""))


def _from_the_top(declared: Declared, live: Live) -> list[str]:
    """The declared accounts, each after its parent, so that no change moves an account below itself."""
    parent = parents_of(declared, live)
    known = {*declared.accounts, *live.accounts_here}
    return [name for name in _ordered(sorted(known), parent) if name in declared.accounts]


def _ordered(names: Sequence[str], parent: Callable[[str], str]) -> list[str]:
    depths: dict[str, int] = {}
    for name in names:
        depth, above, seen = 0, parent(name), {name}
        while above and above not in seen:
            seen.add(above)
            depth, above = depth + 1, parent(above)
        depths[name] = depth
    return sorted(names, key=lambda name: (depths[name], name))


def _differing(*fields: tuple[str, Any, Any]) -> dict[str, Any]:
    return {key: wanted for key, wanted, present in fields if wanted is not None and wanted != present}


def _set(names: Sequence[str] | None) -> frozenset[str] | None:
    return None if names is None else frozenset(names)


_WORDS = {
    "shares": "fairshare",
    "default_qos": "default QOS",
    "is_default": "default account",
    "preempt_mode": "preempt mode",
    "grace_time": "grace time",
}


def _word(key: str, value: object) -> str:
    if value is True:
        return _WORDS.get(key, key)
    text = ",".join(sorted(value)) if isinstance(value, frozenset) else str(value)
    return f"{_WORDS.get(key, key)}={text}"
