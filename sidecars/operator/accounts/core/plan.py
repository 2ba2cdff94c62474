"""The changes that bring Slurm to a declaration, in an order that can be interrupted anywhere and
planned again.

What isn't declared is left as it is, field by field. Only what was created from the declaration is
ever deleted, and only with `prune`. slurmdbd answers 200 to some changes that it doesn't apply:
read again and plan again, until the plan is empty or the same.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from sidecars.operator.accounts.core import reservations
from sidecars.operator.accounts.core.declared import (
    ROOT,
    Account,
    Declared,
    Limit,
    Qos,
    User,
    parents_of,
)
from sidecars.operator.accounts.core.live import Live
from sidecars.operator.accounts.core.step import Change, named
from sidecars.slurm.protocol import Request, accounting, delete_reservation
from sidecars.slurm.protocol.accounting import Association
from sidecars.slurm.protocol.limits import INHERITED, NO_LIMIT, Limits, Tres


@dataclass(frozen=True)
class Plan:
    """The changes in their order, and what else is to be reported."""

    changes: tuple[Change, ...]
    left: tuple[str, ...]
    """What stays although the declaration differs: each with the reason."""

    def created(self, before: Collection[str]) -> frozenset[str]:
        """Return what counts as created from declarations while the plan is applied. Store it
        before the first change.
        """
        return frozenset(before).union(*(change.creates for change in self.changes))


def exists(name: str, live: Live) -> bool:
    """Return whether slurmdbd has what `named` names, on this cluster for what belongs to a
    cluster.
    """
    return _has(live, live.here, name)


def _has(place: Live | Declared, associations: Collection[tuple[str, str]], name: str) -> bool:
    kind, _, rest = name.partition("/")
    if kind == "association":
        account, _, user = rest.partition("/")
        return (account, user) in associations
    kinds: Mapping[str, Mapping[str, object]] = {
        "account": place.accounts,
        "user": place.users,
        "qos": place.qos,
        "reservation": place.reservations,
    }
    return rest in kinds.get(kind, {})


def plan(declared: Declared, live: Live, created: Collection[str]) -> Plan:
    """Return the changes for a declaration without faults. `created`: what was created from
    declarations before.
    """
    changes = [*_qos(declared, live), *_accounts(declared, live), *_users(declared, live)]
    changes += reservations.changes(declared, live, live.now)
    pruning = _Pruning(declared, live, [name for name in created if exists(name, live)])
    left = (*pruning.left, *reservations.left(declared, live, live.now))
    return Plan((*changes, *pruning.changes), left)


def _qos(declared: Declared, live: Live) -> Iterator[Change]:
    # A QOS may preempt one that comes later, so all exist before the lists are set.
    for name, qos in declared.qos.items():
        if name not in live.qos:
            yield Change(
                f"create QOS {name}",
                accounting.save_qos(accounting.Qos(name), description=qos.description or name),
                (named("qos", name),),
            )
    for name, qos in declared.qos.items():
        record = live.qos.get(name) or accounting.Qos(name, qos.description or name)
        fields, words = _qos_fields(qos, record)
        if fields:
            yield Change(f"QOS {name}: {', '.join(words)}", accounting.save_qos(record, **fields))


def _qos_fields(qos: Qos, record: accounting.Qos) -> tuple[dict[str, Any], list[str]]:
    fields = _differing(
        ("description", qos.description, record.description),
        ("priority", qos.priority, record.priority),
        ("flags", _set(qos.flags), record.flags),
        ("preempt", _set(qos.preempt), record.preempt),
        ("preempt_mode", qos.preempt_mode, record.preempt_mode),
        ("grace_time", qos.grace_time, record.grace_time),
    )
    words = [_word(key, value) for key, value in fields.items()]
    limits = _limits(qos.limits, record.limits, lambda name: record.tres.get(name, {}), record.tres)
    return _with_limits(fields, words, limits)


def _accounts(declared: Declared, live: Live) -> Iterator[Change]:
    order = _from_the_top(declared, live)
    for name in order:
        account, present = declared.accounts[name], live.accounts.get(name)
        if name not in live.accounts_here:
            parent = account.parent or ROOT
            request = accounting.add_accounts(
                [name],
                clusters=[live.cluster],
                parent=parent,
                description=account.description or "",
                organization=account.organization or "",
            )
            creates = (
                named("association", name, ""),
                *(() if present is not None else (named("account", name),)),
            )
            yield Change(f"create account {name} below {parent}", request, creates)
        if present is not None:
            texts = _differing(
                ("description", account.description, present.description),
                ("organization", account.organization, present.organization),
            )
            if texts:
                whole = {
                    "description": present.description,
                    "organization": present.organization,
                    **texts,
                }
                words = [_word(key, value) for key, value in texts.items()]
                yield Change(
                    f"account {name}: {', '.join(words)}", accounting.update_account(name, **whole)
                )
    for name in order:
        account = declared.accounts[name]
        record = live.accounts_here.get(name) or Association(
            name, live.cluster, parent_account=account.parent or ROOT
        )
        moved = _differing(("parent", account.parent, record.parent_account))
        yield from _association(f"account {name}", account, record, live, moved)


def _users(declared: Declared, live: Live) -> Iterator[Change]:
    yield from _new_associations(declared, live)
    for name, declaration in declared.users.items():
        order = _accounts_of(declaration)
        without = not any(user == name for _, user in live.here)
        for account in order:
            default = without and account == order[0]
            record = live.here.get((account, name)) or Association(
                account, live.cluster, name, is_default=default
            )
            become = (
                account == _default_of(name, declaration, declared, live) and not record.is_default
            )
            yield from _association(
                f"user {name} in account {account}",
                declaration,
                record,
                live,
                {"is_default": True} if become else {},
            )
    for name, declaration in declared.users.items():
        levels = live.users[name].admin_levels if name in live.users else {"None"}
        if declaration.admin_level is not None and levels != {declaration.admin_level}:
            yield Change(
                f"user {name}: admin level {declaration.admin_level}",
                accounting.update_user(name, admin_level=declaration.admin_level),
            )


_TOGETHER = 100
"""Users that one request adds."""


def _accounts_of(user: User) -> list[str]:
    """Return the accounts of a user, the default account first: the first account that a user ever
    gets becomes it.
    """
    return sorted(user.accounts, key=lambda account: account != user.default_account)


def _new_associations(declared: Declared, live: Live) -> Iterator[Change]:
    """Users come into their accounts, many with one request, each into its first account first."""
    first: dict[str, list[str]] = {}
    others: dict[str, list[str]] = {}
    for name, user in declared.users.items():
        missing = [account for account in _accounts_of(user) if (account, name) not in live.here]
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


def _default_of(name: str, declaration: User, declared: Declared, live: Live) -> str | None:
    """Return the account that must be the user's default one, or None for whichever it is."""
    if declaration.default_account is not None or not declared.prune:
        return declaration.default_account
    # The association with the default account can't be deleted.
    default = next(
        (account for (account, user), it in live.here.items() if user == name and it.is_default),
        None,
    )
    return (
        declaration.accounts[0]
        if default is not None and default not in declaration.accounts
        else None
    )


def _association(
    what: str, holder: Account | User, record: Association, live: Live, more: Mapping[str, Any]
) -> Iterator[Change]:
    above = live.accounts_here.get(record.account if record.user else record.parent_account)
    inherited_limits, inherited_tres = (above.limits, above.tres) if above is not None else ({}, {})
    fields = {
        **more,
        **_differing(
            ("shares", holder.fairshare, record.shares),
            ("qos", _set(holder.qos), frozenset(record.qos)),
            ("default_qos", holder.default_qos, record.default_qos),
        ),
    }
    words = [_word(key, value) for key, value in fields.items()]
    own = {
        name: value
        for name, value in record.limits.items()
        if not (name in INHERITED and inherited_limits.get(name) == value)
    }
    limits = _limits(
        holder.limits,
        record.limits,
        lambda name: accounting.own_counts(name, record, inherited_tres),
        record.tres,
        own,
    )
    fields, words = _with_limits(fields, words, limits)
    if "qos" in fields:
        fields["qos"] = sorted(fields["qos"])
    if fields:
        request = accounting.update_association(record, inherited=inherited_tres, **fields)
        yield Change(f"{what}: {', '.join(words)}", request)


def _limits(
    limits: Mapping[str, Limit],
    present: Mapping[str, int],
    own_tres: Callable[[str], Mapping[str, int]],
    tres: Tres,
    own: Mapping[str, int] | None = None,
) -> Limits:
    """Return the limits to set. NO_LIMIT removes a record's own limit; one that it has from its
    parent remains.
    """
    numbers: dict[str, int] = {}
    counts: dict[str, dict[str, int]] = {}
    for name, value in limits.items():
        if isinstance(value, dict):
            changed = {
                each: count
                for each, count in value.items()
                if (
                    each in own_tres(name)
                    if count == NO_LIMIT
                    else tres.get(name, {}).get(each) != count
                )
            }
            if changed:
                counts[name] = changed
        elif (
            name in (present if own is None else own)
            if value == NO_LIMIT
            else present.get(name) != value
        ):
            numbers[name] = value
    return Limits(numbers, counts)


def _with_limits(
    fields: Mapping[str, Any], words: Sequence[str], limits: Limits
) -> tuple[dict[str, Any], list[str]]:
    merged, shown = dict(fields), list(words)
    if limits.numbers or limits.tres:
        merged["limits"] = limits
        shown += [f"{name}={value}" for name, value in limits.numbers.items()]
        shown += [
            f"{name}={','.join(f'{it}={count}' for it, count in counts.items())}"
            for name, counts in limits.tres.items()
        ]
    return merged, shown


class _Pruning:
    """Deletions of what was created from here, from the lowest accounts to the top."""

    def __init__(self, declared: Declared, live: Live, ours: Iterable[str]) -> None:
        self.changes: list[Change] = []
        self.left: list[str] = []
        """What stays, each with the reason."""
        self._declared = declared
        self._live = live
        associations = {(account, "") for account in declared.accounts}
        for user, it in declared.users.items():
            associations |= {(account, user) for account in it.accounts}
        self._stale = {name for name in ours if not _has(declared, associations, name)}
        self._remaining = list(live.associations)
        """The associations that exist after the deletions."""
        self._reservations()
        for user in sorted({it.user for it in live.associations if it.user} | set(live.users)):
            self._user(user)
        for account in reversed(_tree(live)):
            self._account(account)
        for qos in sorted(live.qos):
            self._qos(qos)

    def _delete(
        self, name: str, text: str, why_not: str, request: Callable[[], Request[Any]], *with_it: str
    ) -> bool:
        """Delete one unless a reason speaks against it. Returns whether it is deleted."""
        if not self._declared.prune:
            why_not = "set prune to delete it"
        if why_not:
            self.left.append(f"{text} stays: {why_not}")
            return False
        self.changes.append(Change(f"delete {text}", request(), deletes=(name, *with_it)))
        return True

    def _reservations(self) -> None:
        for name in sorted(self._live.reservations):
            if named("reservation", name) in self._stale:
                self._delete(
                    named("reservation", name),
                    f"reservation {name}",
                    "",
                    partial(delete_reservation, name),
                )

    def _user(self, user: str) -> None:
        """Delete the user, or the associations that are not declared."""
        its = [it for it in self._remaining if it.user == user]
        stale = [it for it in its if _stale_association(it, self._live, self._stale)]
        whole = named("user", user) in self._stale and len(stale) == len(its)
        if not whole:
            for it in stale:
                self._association(it, its)
        elif self._delete(
            named("user", user),
            f"user {user}",
            "",
            partial(accounting.delete_user, user),
            *(named("association", it.account, user) for it in its),
        ):
            self._remaining = [it for it in self._remaining if it.user != user]

    def _association(self, it: Association, of_user: Sequence[Association]) -> None:
        # Users have a default account on each cluster.
        others_here = sum(each.cluster == self._live.cluster for each in of_user) > 1
        keeps = it.is_default and others_here and it.user not in self._declared.users
        if self._delete(
            named("association", it.account, it.user),
            f"user {it.user} in account {it.account}",
            "it is the user's default account; change that with sacctmgr" if keeps else "",
            partial(accounting.delete_association, it.account, it.cluster, it.user),
        ):
            self._remaining.remove(it)

    def _account(self, account: str) -> None:
        if named("account", account) not in self._stale:
            if named("association", account, "") in self._stale:
                self.left.append(
                    f"account {account} stays: another cluster had it before; remove it with "
                    "sacctmgr"
                )
            return
        if self._delete(
            named("account", account),
            f"account {account}",
            self._why_account_stays(account),
            partial(accounting.delete_account, account),
            named("association", account, ""),
        ):
            self._remaining = [it for it in self._remaining if it.account != account]

    def _why_account_stays(self, account: str) -> str:
        remaining = self._remaining
        others = [it for it in remaining if it.account == account and it.user]
        if others:
            return f"it has users, for example {others[0].user}"
        below = [it for it in remaining if it.parent_account == account and not it.user]
        if below:
            return f"account {below[0].account} is below it"
        elsewhere = [
            it for it in remaining if it.account == account and it.cluster != self._live.cluster
        ]
        return f"cluster {elsewhere[0].cluster} has it too" if elsewhere else ""

    def _qos(self, name: str) -> None:
        if named("qos", name) not in self._stale:
            return
        users = [it for it in self._remaining if name in it.qos or it.default_qos == name]
        preempting = [it.name for it in self._live.qos.values() if name in it.preempt]
        used = (
            f"account {users[0].account} can use it"
            if users
            else f"QOS {preempting[0]} can preempt it"
            if preempting
            else ""
        )
        self._delete(named("qos", name), f"QOS {name}", used, partial(accounting.delete_qos, name))


def _stale_association(association: Association, live: Live, stale: Collection[str]) -> bool:
    return (
        association.cluster == live.cluster
        and not association.partition
        and named("association", association.account, association.user) in stale
    )


def _tree(live: Live) -> list[str]:
    """Return the accounts of the cluster, each after its parent."""
    parents = {name: it.parent_account for name, it in live.accounts_here.items()}
    return _ordered(sorted(parents), lambda name: parents.get(name, ""))


def _from_the_top(declared: Declared, live: Live) -> list[str]:
    """Return the declared accounts, each after its parent, so that no change moves an account below
    itself.
    """
    parent = parents_of(declared, live)
    accounts = {*declared.accounts, *live.accounts_here}
    return [name for name in _ordered(sorted(accounts), parent) if name in declared.accounts]


def _ordered(names: Sequence[str], parent: Callable[[str], str]) -> list[str]:
    depths: dict[str, int] = {}
    for name in names:
        depth, above, visited = 0, parent(name), {name}
        while above and above not in visited:
            visited.add(above)
            depth, above = depth + 1, parent(above)
        depths[name] = depth
    return sorted(names, key=lambda name: (depths[name], name))


def _differing(*fields: tuple[str, Any, Any]) -> dict[str, Any]:
    return {key: asked for key, asked, present in fields if asked is not None and asked != present}


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
