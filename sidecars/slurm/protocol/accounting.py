"""slurmdbd by way of slurmrestd: accounts, users, associations and QOS.

Observed with Slurm 26.05:
- slurmdbd down: 502 with number 7000 (ServerFault).
- an unknown name: 200 with an empty list when read, 304 when deleted. Nothing new to add: 304.
- `POST associations/` answers 200 for an association that it can't create. One that it creates for
  an account has no parent, which breaks the tree of shares. It is therefore used for existing
  associations only; new ones are created with their account (`add_accounts`) or their user
  (`add_users`).
- `POST associations/` removes each TRES limit that it doesn't name, and `POST qos/` removes the
  flags and the preempt mode. These requests therefore repeat what the record has.
- `POST associations/` answers 200 without an effect for a parent that doesn't exist or is below the
  account, and both answer 200 for a limit of a TRES that Slurm doesn't count. Read again what was
  written.
- `POST qos/` can't empty a list of preempted QOS: an empty list changes nothing.
- no right to write: 422 with number 2002. An unknown parent account: 422 with 2046; an unknown QOS:
  422 with 2066; an unknown cluster: 500 with 7104; a default QOS that isn't allowed: 422 with 7011.
- deleting what jobs use that are pending or running: 422 with 7001. Deleting the association with a
  user's default account while the user has others: 422 with 7009. Deleting an account deletes it on
  all clusters, with all below it.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sidecars.slurm.protocol.fields import Fields
from sidecars.slurm.protocol.limits import (
    ASSOCIATION_LIMITS,
    ASSOCIATION_TRES,
    INHERITED,
    NO_LIMITS,
    QOS_LIMITS,
    QOS_TRES,
    Limits,
    Tres,
    put_limits,
    put_tres,
    read_limits,
    read_tres,
    tres_name,
)
from sidecars.slurm.protocol.request import Request, nothing, segment

_SERVICE = "slurmdb"


@dataclass(frozen=True, slots=True)
class Account:
    """An account of slurmdbd."""

    name: str
    description: str = ""
    organization: str = ""


@dataclass(frozen=True, slots=True)
class User:
    """A user of slurmdbd."""

    name: str
    admin_levels: frozenset[str] = frozenset()
    """For example {"None"}, {"Operator"} or {"Administrator"}."""


@dataclass(frozen=True, slots=True)
class Association:
    """An account, or a user in an account, on a cluster."""

    account: str
    cluster: str
    user: str = ""
    """"" for the account itself."""
    partition: str = ""
    parent_account: str = ""
    is_default: bool = False
    """Whether this is the user's default account."""
    shares: int = 0
    """The fair share."""
    qos: tuple[str, ...] = ()
    """Names of the QOS that it can use, its own or its parent's."""
    default_qos: str = ""
    limits: Mapping[str, int] = field(default_factory=dict)
    """Its own and its parents', by the names of `ASSOCIATION_LIMITS`; those without a limit are
    missing.
    """
    tres: Tres = field(default_factory=dict)
    """Likewise, by the names of `ASSOCIATION_TRES`."""


@dataclass(frozen=True, slots=True)
class Qos:
    """A quality of service of slurmdbd."""

    name: str
    description: str = ""
    priority: int = 0
    flags: frozenset[str] = frozenset()
    preempt: frozenset[str] = frozenset()
    """Names of the QOS whose jobs it can preempt."""
    preempt_mode: str = "DISABLED"
    """`DISABLED`: that of the cluster."""
    grace_time: int = 0
    """Seconds."""
    limits: Mapping[str, int] = field(default_factory=dict)
    """By the names of `QOS_LIMITS`; those without a limit are missing."""
    tres: Tres = field(default_factory=dict)
    """By the names of `QOS_TRES`."""


def get_accounts() -> Request[tuple[Account, ...]]:
    """Return all accounts."""
    return Request("GET", "accounts/", read=_accounts, service=_SERVICE)


def get_users() -> Request[tuple[User, ...]]:
    """Return all users that slurmdbd knows."""
    return Request("GET", "users/", read=_users, service=_SERVICE)


def get_qos() -> Request[tuple[Qos, ...]]:
    """Return all qualities of service."""
    return Request("GET", "qos/", read=_all_qos, service=_SERVICE)


def get_tres() -> Request[frozenset[str]]:
    """Request the names of what Slurm counts, for example `cpu` and `gres/gpu`."""
    return Request(
        "GET",
        "tres/",
        read=lambda answer: frozenset(map(tres_name, answer.items("TRES"))),
        service=_SERVICE,
    )


def get_associations(
    *, account: str = "", user: str = "", cluster: str = ""
) -> Request[tuple[Association, ...]]:
    """Request the associations, those of one account, user or cluster alone when it is named. The
    answer is () for none.
    """
    wanted = (("account", account), ("user", user), ("cluster", cluster))
    query = tuple((key, value) for key, value in wanted if value)
    return Request("GET", "associations/", query, read=_associations, service=_SERVICE)


def add_accounts(
    names: Sequence[str],
    *,
    clusters: Sequence[str],
    parent: str = "root",
    description: str = "",
    organization: str = "",
    shares: int | None = None,
) -> Request[bool]:
    """Create these accounts below `parent` on these clusters; False when all of them existed.

    Description and organization default to the account's name, as sacctmgr has it. Rejected for an
    unknown parent or cluster.
    """
    association: dict[str, Any] = {"parent": parent}
    if shares is not None:
        association["fairshare"] = shares
    condition = {"accounts": list(names), "clusters": list(clusters), "association": association}
    account = {"description": description or names[0], "organization": organization or names[0]}
    return _adding(
        "accounts_association/", {"association_condition": condition, "account": account}
    )


def add_users(
    names: Sequence[str],
    *,
    accounts: Sequence[str],
    clusters: Sequence[str],
    shares: int | None = None,
) -> Request[bool]:
    """Put these users into these accounts on these clusters; the first account that a user ever
    gets is the default.

    False when nothing was new, and also when the accounts have no association on these clusters.
    """
    association: dict[str, Any] = {} if shares is None else {"fairshare": shares}
    condition = {
        "users": list(names),
        "accounts": list(accounts),
        "clusters": list(clusters),
        "association": association,
    }
    return _adding(
        "users_association/", {"association_condition": condition, "user": {"adminlevel": ["None"]}}
    )


def update_association(
    record: Association,
    *,
    inherited: Tres | None = None,
    shares: int | None = None,
    qos: Iterable[str] | None = None,
    default_qos: str | None = None,
    parent: str | None = None,
    is_default: bool = False,
    limits: Limits = NO_LIMITS,
) -> Request[None]:
    """Change an existing association, whose `record` was just read; None doesn't change a field.

    `inherited`: the limits of the parent's record, which are not repeated. Rejected for an unknown
    QOS. Don't call it for an association that may not exist: see above.
    """
    change: dict[str, Any] = {
        "account": record.account,
        "cluster": record.cluster,
        "user": record.user,
    }
    if record.partition:
        change["partition"] = record.partition
    fields = {
        "shares_raw": shares,
        "qos": None if qos is None else list(qos),
        "parent_account": parent,
    }
    change.update((key, value) for key, value in fields.items() if value is not None)
    if default_qos is not None:
        change["default"] = {"qos": default_qos}
    if is_default:
        change["is_default"] = True
    put_limits(change, ASSOCIATION_LIMITS, limits.numbers)
    whole = {
        name: {**own_counts(name, record, inherited or {}), **limits.tres.get(name, {})}
        for name in ASSOCIATION_TRES
    }
    put_tres(change, ASSOCIATION_TRES, whole)
    return _writing("associations/", {"associations": [change]})


def update_account(name: str, *, description: str, organization: str) -> Request[None]:
    """Change an account's texts, or create the account without any association."""
    return _writing(
        "accounts/",
        {"accounts": [{"name": name, "description": description, "organization": organization}]},
    )


def update_user(name: str, *, admin_level: str) -> Request[None]:
    """Set a user's level: None, Operator or Administrator; creates the user if it doesn't exist."""
    return _writing("users/", {"users": [{"name": name, "administrator_level": [admin_level]}]})


def own_counts(name: str, record: Association, inherited: Tres) -> dict[str, int]:
    """Return the TRES of one limit that the association has itself. `inherited` has the limits of
    its parent's record.
    """
    above = inherited.get(name, {}) if name in INHERITED else {}
    return {
        tres: count for tres, count in record.tres.get(name, {}).items() if above.get(tres) != count
    }


def save_qos(
    record: Qos,
    *,
    description: str | None = None,
    priority: int | None = None,
    flags: Iterable[str] | None = None,
    preempt: Iterable[str] | None = None,
    preempt_mode: str | None = None,
    grace_time: int | None = None,
    limits: Limits = NO_LIMITS,
) -> Request[None]:
    """Change the QOS whose `record` was just read; None doesn't change a field.

    A record with a name alone creates a QOS. Rejected for an unknown QOS in `preempt`.
    """
    qos: dict[str, Any] = {
        "name": record.name,
        "flags": sorted(record.flags if flags is None else flags),
    }
    preempting: dict[str, Any] = {
        "mode": [record.preempt_mode if preempt_mode is None else preempt_mode]
    }
    if preempt is not None:
        preempting["list"] = sorted(preempt)
    qos["preempt"] = preempting
    if description is not None:
        qos["description"] = description
    if priority is not None:
        qos["priority"] = {"set": True, "number": priority}
    if grace_time is not None:
        qos["limits"] = {"grace_time": grace_time}
    put_limits(qos, QOS_LIMITS, limits.numbers)
    put_tres(qos, QOS_TRES, limits.tres)
    return _writing("qos/", {"qos": [qos]})


def delete_account(name: str) -> Request[bool]:
    """Delete an account with its associations; False if it didn't exist."""
    return _deleting(f"account/{segment(name)}")


def delete_user(name: str) -> Request[bool]:
    """Delete a user with the user's associations; False if it didn't exist."""
    return _deleting(f"user/{segment(name)}")


def delete_qos(name: str) -> Request[bool]:
    """Delete a QOS; False if it didn't exist."""
    return _deleting(f"qos/{segment(name)}")


def delete_association(account: str, cluster: str, user: str) -> Request[bool]:
    """Take a user out of an account; False when the user wasn't in it."""
    if not (account and cluster and user):
        raise ValueError(
            "an association to delete needs its account, cluster and user: anything less means many"
        )
    query = (("account", account), ("cluster", cluster), ("user", user))
    return Request(
        "DELETE", "association/", query, read=_done, unchanged=_not_done, service=_SERVICE
    )


def _writing(path: str, body: dict[str, Any]) -> Request[None]:
    return Request("POST", path, body=body, read=nothing, service=_SERVICE)


def _adding(path: str, body: dict[str, Any]) -> Request[bool]:
    return Request("POST", path, body=body, read=_done, unchanged=_not_done, service=_SERVICE)


def _deleting(path: str) -> Request[bool]:
    return Request("DELETE", path, read=_done, unchanged=_not_done, service=_SERVICE)


def _accounts(answer: Fields) -> tuple[Account, ...]:
    return tuple(
        Account(
            item.text("name", required=True), item.text("description"), item.text("organization")
        )
        for item in answer.items("accounts")
    )


def _users(answer: Fields) -> tuple[User, ...]:
    return tuple(
        User(item.text("name", required=True), frozenset(item.words("administrator_level")))
        for item in answer.items("users")
    )


def _associations(answer: Fields) -> tuple[Association, ...]:
    return tuple(map(_association, answer.items("associations")))


def _association(item: Fields) -> Association:
    return Association(
        account=item.text("account", required=True),
        cluster=item.text("cluster", required=True),
        user=item.text("user"),
        partition=item.text("partition"),
        parent_account=item.text("parent_account"),
        is_default=item.flag("is_default"),
        shares=item.number("shares_raw"),
        qos=item.words("qos"),
        default_qos=item.nested("default").text("qos"),
        limits=read_limits(item, ASSOCIATION_LIMITS),
        tres=read_tres(item, ASSOCIATION_TRES),
    )


def _all_qos(answer: Fields) -> tuple[Qos, ...]:
    return tuple(map(_qos, answer.items("qos")))


def _qos(item: Fields) -> Qos:
    preempting = item.nested("preempt")
    return Qos(
        item.text("name", required=True),
        item.text("description"),
        item.number("priority"),
        frozenset(item.words("flags")),
        preempt=frozenset(preempting.words("list")),
        preempt_mode=next(iter(preempting.words("mode")), "DISABLED"),
        grace_time=item.nested("limits").number("grace_time"),
        limits=read_limits(item, QOS_LIMITS),
        tres=read_tres(item, QOS_TRES),
    )


def _done(answer: Fields) -> bool:
    return True


def _not_done() -> bool:
    return False
