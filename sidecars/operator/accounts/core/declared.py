"""Accounts, users, QOS and reservations as a ConfigMap declares them, and what is wrong with
them.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime
from typing import Literal

import msgspec

from sidecars.operator.accounts.core.live import Live
from sidecars.slurm.protocol import limits as slurm

KEY = "declared.json"
"""The key in the ConfigMap's data."""

ROOT = "root"
"""The account that all others are below, and the user that slurmdbd creates with it."""

_NAME = re.compile(r"[a-z0-9_][a-z0-9_.@-]*")
"""Slurm itself folds the names of accounts and QOS to lower case."""

Limit = int | dict[str, int]
"""A number, or a number for each TRES; NO_LIMIT removes it."""


class DeclaredError(Exception):
    """The ConfigMap can't be read; the message names the place."""


class _Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """What isn't set (None) is left as it is in slurmdbd."""


class _Associated(_Part, frozen=True):
    """What an account and a user have in common: fields of associations."""

    fairshare: int | None = None
    qos: list[str] | None = None
    """Names of the QOS that jobs can use."""
    default_qos: str | None = None
    limits: dict[str, Limit] = {}
    """By the names of sacctmgr."""


class Account(_Associated, frozen=True):
    """An account."""

    description: str | None = None
    organization: str | None = None
    parent: str | None = None
    """None: root for a new account."""


class User(_Associated, frozen=True):
    """A user of Slurm. The fields of associations apply to each of its accounts here."""

    accounts: list[str] = []
    default_account: str | None = None
    admin_level: Literal["None", "Operator", "Administrator"] | None = None


class Qos(_Part, frozen=True):
    """A quality of service."""

    description: str | None = None
    priority: int | None = None
    flags: list[str] | None = None
    preempt: list[str] | None = None
    preempt_mode: Literal["DISABLED", "SUSPEND", "REQUEUE", "CANCEL", "GANG"] | None = None
    grace_time: int | None = None
    """Seconds."""
    limits: dict[str, Limit] = {}


class Reservation(_Part, frozen=True):
    """A reservation."""

    start_time: datetime
    minutes: int | None = None
    """None: without an end."""
    nodes: list[str] | None = None
    """Names of Slurm nodes, and hostlists."""
    node_count: int | None = None
    partition: str | None = None
    users: list[str] = []
    accounts: list[str] = []
    flags: list[str] = []


class Declared(_Part, frozen=True):
    """All of it."""

    accounts: dict[str, Account] = {}
    users: dict[str, User] = {}
    qos: dict[str, Qos] = {}
    prune: bool = False
    """Whether what was created from here is deleted after it is removed here."""
    dry_run: bool = False
    reservations: dict[str, Reservation] = {}


def parse(text: str | bytes) -> Declared:
    """Return the declaration. Raises DeclaredError."""
    try:
        return msgspec.json.decode(text, type=Declared)
    except msgspec.DecodeError as error:
        raise DeclaredError(f"{KEY}: {error}") from error


def faults(declared: Declared, live: Live) -> Iterator[str]:
    """Yield why nothing is applied: each with place, value and remedy."""
    kinds: tuple[tuple[str, Mapping[str, object]], ...] = (
        ("accounts", declared.accounts),
        ("users", declared.users),
        ("qos", declared.qos),
    )
    for kind, named in kinds:
        for name in named:
            if not _NAME.fullmatch(name):
                yield (
                    f"{kind}.{name}: a name has a-z, 0-9 and _.@- and begins with a letter, a "
                    "digit or `_`"
                )
    if ROOT in declared.accounts:
        yield (
            "accounts.root: slurmdbd manages this account; remove it here, and change it with "
            "sacctmgr"
        )
    accounts = frozenset({*declared.accounts, *live.accounts_here})
    qos = frozenset({*declared.qos, *live.qos})
    yield from _account_faults(declared, live, accounts, qos)
    yield from _cycles(declared, live)
    yield from _user_faults(declared, live, accounts, qos)
    yield from _qos_faults(declared, live, qos)


def _account_faults(
    declared: Declared, live: Live, known_accounts: AbstractSet[str], known_qos: AbstractSet[str]
) -> Iterator[str]:
    for name, account in declared.accounts.items():
        place = f"accounts.{name}"
        if account.parent is not None and account.parent not in known_accounts:
            yield (
                f"{place}.parent: no account `{account.parent}` exists; add it to accounts, or "
                "correct the name"
            )
        yield from _associated(place, account, known_qos, live)


def _user_faults(
    declared: Declared, live: Live, known_accounts: AbstractSet[str], known_qos: AbstractSet[str]
) -> Iterator[str]:
    for name, user in declared.users.items():
        place = f"users.{name}"
        if not user.accounts:
            yield f"{place}.accounts: a user needs an account; name one or more"
        for account_name in sorted(set(user.accounts) - known_accounts):
            yield (
                f"{place}.accounts: no account `{account_name}` exists; add it to accounts, or "
                "correct the name"
            )
        if len(set(user.accounts)) < len(user.accounts):
            yield f"{place}.accounts: an account is listed twice; remove one"
        if user.default_account is not None and user.default_account not in user.accounts:
            yield (
                f"{place}.defaultAccount: `{user.default_account}` is none of its accounts; add "
                "it to them"
            )
        yield from _associated(place, user, known_qos, live)


def _qos_faults(declared: Declared, live: Live, known_qos: AbstractSet[str]) -> Iterator[str]:
    for name, qos in declared.qos.items():
        place = f"qos.{name}"
        for preempted in sorted(set(qos.preempt or ()) - known_qos):
            yield (
                f"{place}.preempt: no QOS `{preempted}` exists; add it to qos, or correct the name"
            )
        if name in (qos.preempt or ()):
            yield f"{place}.preempt: a QOS can't preempt itself; remove `{name}`"
        if qos.preempt == [] and name in live.qos and live.qos[name].preempt:
            yield (
                f"{place}.preempt: only `sacctmgr modify qos {name} set preempt=''` empties this "
                "list; run it"
            )
        yield from _number(f"{place}.priority", qos.priority)
        yield from _number(f"{place}.graceTime", qos.grace_time)
        yield from _limits(place, qos.limits, slurm.QOS_LIMITS, slurm.QOS_TRES, live)


def _associated(
    place: str, declared: _Associated, known_qos: AbstractSet[str], live: Live
) -> Iterator[str]:
    for name in sorted(set(declared.qos or ()) - known_qos):
        yield f"{place}.qos: no QOS `{name}` exists; add it to qos, or correct the name"
    if declared.qos == []:
        yield f"{place}.qos: slurmdbd doesn't accept an empty list; name a QOS, or remove the field"
    if declared.default_qos is not None and declared.default_qos not in known_qos:
        yield (
            f"{place}.defaultQos: no QOS `{declared.default_qos}` exists; add it to qos, or "
            "correct the name"
        )
    elif declared.default_qos is not None and declared.default_qos not in (
        declared.qos or [declared.default_qos]
    ):
        yield (
            f"{place}.defaultQos: `{declared.default_qos}` is not in qos of the same entry; add "
            "it there"
        )
    yield from _number(f"{place}.fairshare", declared.fairshare)
    yield from _limits(
        place, declared.limits, slurm.ASSOCIATION_LIMITS, slurm.ASSOCIATION_TRES, live
    )


_LARGEST = 2**31 - 1


def _number(place: str, number: int | None) -> Iterator[str]:
    if number is not None and not 0 <= number <= _LARGEST:
        yield f"{place}: {number} is not a number from 0 to {_LARGEST}"


def _limits(
    place: str,
    limits: Mapping[str, Limit],
    numbers: Mapping[str, str],
    tres: Mapping[str, str],
    live: Live,
) -> Iterator[str]:
    for name, value in limits.items():
        at = f"{place}.limits.{name}"
        if name not in numbers and name not in tres:
            yield f"{at}: no such limit; use one of {', '.join(sorted({*numbers, *tres}))}"
        elif (name in tres) != isinstance(value, dict):
            wanted = (
                "a number for each TRES, for example `{cpu: 64}`" if name in tres else "a number"
            )
            yield f"{at}: should be {wanted}"
        elif isinstance(value, dict):
            for each, count in value.items():
                if each not in live.tres:
                    yield (
                        f"{at}.{each}: Slurm doesn't count this TRES; add it to "
                        "AccountingStorageTRES in slurm.conf"
                    )
                if not slurm.NO_LIMIT <= count < 2**63:
                    yield f"{at}.{each}: {count} is no limit; -1 removes it"
        elif not slurm.NO_LIMIT <= value <= _LARGEST:
            yield f"{at}: {value} is no limit from 0 to {_LARGEST}; -1 removes it"


def _cycles(declared: Declared, live: Live) -> Iterator[str]:
    """Accounts that would be below themselves."""
    parents = parents_of(declared, live)
    visited: set[str] = set()
    for name in sorted(declared.accounts):
        path: list[str] = []
        while name and name not in path and name not in visited:
            path.append(name)
            name = parents(name)  # noqa: PLW2901 - a walk upwards
        if name in path:
            circle = path[path.index(name) :]
            yield (
                f"accounts.{circle[0]}.parent: below itself ({' → '.join([*circle, circle[0]])}); "
                "change one parent"
            )
        visited.update(path)


def parents_of(declared: Declared, live: Live) -> Callable[[str], str]:
    """Return a function from the name of an account to the parent that it will have, "" for root
    and for what doesn't exist.
    """

    def parent(name: str) -> str:
        own, present = declared.accounts.get(name), live.accounts_here.get(name)
        if own is not None and own.parent is not None:
            return own.parent
        if present is not None:
            return present.parent_account
        return ROOT if own is not None else ""

    return parent
