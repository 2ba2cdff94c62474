"""slurmdbd by way of slurmrestd: accounts, users, associations and QOS as requests of `sidecars.slurm.protocol`.

No role of the product sends them. The scenarios send them to the simulator and to real Slurm.

Observed with Slurm 26.05:
- slurmdbd down: 502 with number 7000 (ServerFault).
- an unknown name: 200 with an empty list when read, 304 when deleted. Nothing new to add: 304.
- `POST associations/` answers 200 for an association that it can't create. One that it creates for an account has no
  parent, which breaks the tree of shares. It is therefore used for existing associations only; new ones are created
  with their account (`add_accounts`) or their user (`add_users`).
- no right to write: 422 with number 2002. An unknown parent account: 422 with 2046; an unknown QOS: 422 with 2066; an
  unknown cluster: 500 with 7104.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sidecars.slurm.protocol import Fields, Request
from sidecars.slurm.protocol.request import nothing, segment

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
    max_jobs: int | None = None
    """Number of jobs that can run at the same time; None for no limit."""
    qos: tuple[str, ...] = ()
    """Names of the QOS that it can use."""
    default_qos: str = ""


@dataclass(frozen=True, slots=True)
class Qos:
    """A quality of service of slurmdbd."""

    name: str
    description: str = ""
    priority: int = 0
    flags: frozenset[str] = frozenset()


def get_accounts() -> Request[tuple[Account, ...]]:
    """All accounts."""
    return Request("GET", "accounts/", read=_accounts, service=_SERVICE)


def get_users() -> Request[tuple[User, ...]]:
    """All users that slurmdbd knows."""
    return Request("GET", "users/", read=_users, service=_SERVICE)


def get_qos() -> Request[tuple[Qos, ...]]:
    """All qualities of service."""
    return Request("GET", "qos/", read=_all_qos, service=_SERVICE)


def get_associations(*, account: str = "", user: str = "", cluster: str = "") -> Request[tuple[Association, ...]]:
    """The associations, those of one account, user or cluster alone when it is named; () for none."""
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

    Description and organization default to the account's name, as sacctmgr has it. Rejected for an unknown parent or
    cluster.
    """
    association: dict[str, Any] = {"parent": parent}
    if shares is not None:
        association["fairshare"] = shares
    condition = {"accounts": list(names), "clusters": list(clusters), "association": association}
    account = {"description": description or names[0], "organization": organization or names[0]}
    return _adding("accounts_association/", {"association_condition": condition, "account": account})


def add_users(
    names: Sequence[str],
    *,
    accounts: Sequence[str],
    clusters: Sequence[str],
    shares: int | None = None,
) -> Request[bool]:
    """Put these users into these accounts on these clusters; the first account that a user ever gets is the default.

    False when nothing was new, and also when the accounts have no association on these clusters.
    """
    association: dict[str, Any] = {} if shares is None else {"fairshare": shares}
    condition = {
        "users": list(names),
        "accounts": list(accounts),
        "clusters": list(clusters),
        "association": association,
    }
    return _adding("users_association/", {"association_condition": condition, "user": {"adminlevel": ["None"]}})


def update_association(
    account: str,
    cluster: str,
    *,
    user: str = "",
    shares: int | None = None,
    max_jobs: int | None = None,
    qos: Iterable[str] | None = None,
) -> Request[None]:
    """Change an existing association; None doesn't change a field. Rejected for an unknown QOS.

    Don't call it for one that may not exist: see above.
    """
    change: dict[str, Any] = {"account": account, "cluster": cluster, "user": user}
    if shares is not None:
        change["shares_raw"] = shares
    if max_jobs is not None:
        change["max"] = {"jobs": {"active": {"set": True, "number": max_jobs}}}
    if qos is not None:
        change["qos"] = list(qos)
    return _writing("associations/", {"associations": [change]})


def update_account(name: str, *, description: str, organization: str) -> Request[None]:
    """Change an account's texts, or create the account without any association."""
    return _writing(
        "accounts/", {"accounts": [{"name": name, "description": description, "organization": organization}]}
    )


def update_user(name: str, *, admin_level: str) -> Request[None]:
    """Set a user's level: None, Operator or Administrator; creates the user if it doesn't exist."""
    return _writing("users/", {"users": [{"name": name, "administrator_level": [admin_level]}]})


def save_qos(
    name: str, *, description: str | None = None, priority: int | None = None, flags: Sequence[str] | None = None
) -> Request[None]:
    """Create the QOS of that name, or change it if it exists; None doesn't change a field."""
    qos: dict[str, Any] = {"name": name}
    if description is not None:
        qos["description"] = description
    if priority is not None:
        qos["priority"] = {"set": True, "number": priority}
    if flags is not None:
        qos["flags"] = list(flags)
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
        raise ValueError("an association to delete needs its account, cluster and user: anything less means many")
    query = (("account", account), ("cluster", cluster), ("user", user))
    return Request("DELETE", "association/", query, read=_done, unchanged=_not_done, service=_SERVICE)


def _writing(path: str, body: dict[str, Any]) -> Request[None]:
    return Request("POST", path, body=body, read=nothing, service=_SERVICE)


def _adding(path: str, body: dict[str, Any]) -> Request[bool]:
    return Request("POST", path, body=body, read=_done, unchanged=_not_done, service=_SERVICE)


def _deleting(path: str) -> Request[bool]:
    return Request("DELETE", path, read=_done, unchanged=_not_done, service=_SERVICE)


def _accounts(answer: Fields) -> tuple[Account, ...]:
    return tuple(
        Account(item.text("name", required=True), item.text("description"), item.text("organization"))
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
        max_jobs=item.nested("max").nested("jobs").number_or_none("active"),
        qos=item.words("qos"),
        default_qos=item.nested("default").text("qos"),
    )


def _all_qos(answer: Fields) -> tuple[Qos, ...]:
    return tuple(
        Qos(
            item.text("name", required=True),
            item.text("description"),
            item.number("priority"),
            frozenset(item.words("flags")),
        )
        for item in answer.items("qos")
    )


def _done(answer: Fields) -> bool:
    return True


def _not_done() -> bool:
    return False
