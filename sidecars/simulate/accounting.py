"""A simulated slurmdbd: its records, and how slurmrestd answers for it, as observed with Slurm 26.05."""

from dataclasses import dataclass, field
from typing import Any

from sidecars.simulate.answers import (
    BAD_CLUSTER,
    BAD_PARENT,
    BAD_QOS,
    DENIED,
    NO_ENDPOINT,
    NO_SLURMDBD,
    TEXT,
    UNCHANGED,
    limit,
    number,
    ok,
    ping,
    refusal,
)
from sidecars.simulate.records import Call, Json, Reply


@dataclass(slots=True)
class SimAccount:
    """An account."""

    name: str
    description: str = ""
    organization: str = ""


@dataclass(slots=True)
class SimAssociation:
    """What an account (`user` is "") or a user in it has on a cluster."""

    account: str
    cluster: str
    user: str = ""
    parent: str = ""
    is_default: bool = False
    shares: int = 1
    max_jobs: int | None = None
    qos: list[str] = field(default_factory=lambda: ["normal"])


@dataclass(slots=True)
class SimQos:
    """A quality of service."""

    name: str
    description: str = ""
    priority: int = 0
    flags: list[str] = field(default_factory=list)


class Accounting:
    """slurmdbd with one cluster, root and QOS `normal`. While `up` is false nothing reaches it."""

    def __init__(self, cluster: str = "slurm") -> None:
        self.up = True
        self.clusters = {cluster}
        self.accounts = {"root": SimAccount("root", "default root account", "root")}
        self.users = {"root": "Administrator"}
        self.qos = {"normal": SimQos("normal", "Normal QOS default")}
        self.associations = [
            SimAssociation("root", cluster),
            SimAssociation("root", cluster, "root", is_default=True),
        ]

    def answer(self, call: Call, *, trusted: bool) -> Reply:
        """The reply to a call below `slurmdb/`; `trusted`: the token's user may write."""
        if not self.up:
            return refusal(502, NO_SLURMDBD)
        kind, _, name = call.path.removeprefix("slurmdb/").partition("/")
        if call.method == "GET":
            return self._get(kind, name, call.query)
        if not trusted:
            return refusal(422, DENIED)
        body = call.body or {}
        match call.method, kind:
            case "POST", "accounts":
                return self._save_accounts(body)
            case "POST", "users":
                return self._save_users(body)
            case "POST", "qos":
                return self._save_qos(body)
            case "POST", "associations":
                return self._save_associations(body)
            case "POST", "accounts_association":
                return self._add_accounts(body)
            case "POST", "users_association":
                return self._add_users(body)
            case "DELETE", "association" | "account" | "user" | "qos":
                return self._delete(kind, name, call.query)
        return NO_ENDPOINT

    def _get(self, kind: str, name: str, query: dict[str, str]) -> Reply:
        match kind:
            case "ping":
                return ping(TEXT[0])
            case "accounts" | "account":
                accounts = [a for a in self.accounts.values() if name in ("", a.name)]
                return ok({"accounts": [_account(account) for account in accounts]})
            case "users" | "user":
                users = [(user, level) for user, level in sorted(self.users.items()) if name in ("", user)]
                return ok({"users": [{"name": user, "administrator_level": [level]} for user, level in users]})
            case "qos":
                return ok({"qos": [_qos(qos) for qos in self.qos.values() if name in ("", qos.name)]})
            case "associations" | "association":
                return ok({"associations": [_association(a) for a in self.associations if _meets(a, query)]})
        return NO_ENDPOINT

    def _save_accounts(self, body: Json) -> Reply:
        for account in body.get("accounts", ()):
            if not {"description", "organization"} <= account.keys():
                return refusal(422, 9200)
            self.accounts[account["name"]] = SimAccount(
                account["name"], account["description"], account["organization"]
            )
        return ok({})

    def _save_users(self, body: Json) -> Reply:
        for user in body.get("users", ()):
            if not user.get("name"):
                return refusal(500, -1)
            self.users[user["name"]] = next(iter(user.get("administrator_level", ())), "None")
        return ok({})

    def _save_qos(self, body: Json) -> Reply:
        for wanted in body.get("qos", ()):
            qos = self.qos.setdefault(wanted["name"], SimQos(wanted["name"]))
            qos.description = wanted.get("description", qos.description)
            qos.priority = wanted.get("priority", {}).get("number", qos.priority)
            qos.flags = wanted.get("flags", qos.flags)
        return ok({})

    def _save_associations(self, body: Json) -> Reply:
        wanted = body.get("associations", ())
        if any(set(change.get("qos", ())) - self.qos.keys() for change in wanted):
            return refusal(422, BAD_QOS)
        for change in wanted:
            # One that doesn't exist: Slurm answers 200 and creates none, or a broken one.
            for association in self.associations:
                key = association.account, association.cluster, association.user
                if key == (change.get("account"), change.get("cluster"), change.get("user", "")):
                    association.shares = change.get("shares_raw", association.shares)
                    association.qos = change.get("qos", association.qos)
                    active = change.get("max", {}).get("jobs", {}).get("active", {})
                    association.max_jobs = active.get("number", association.max_jobs)
        return ok({})

    def _add_accounts(self, body: Json) -> Reply:
        condition, texts = body.get("association_condition", {}), body.get("account", {})
        association = condition.get("association", {})
        parent, clusters = association.get("parent") or "root", condition.get("clusters", ())
        if set(clusters) - self.clusters:
            return refusal(500, BAD_CLUSTER)
        if not all(self._has(parent, cluster) for cluster in clusters):
            return refusal(422, BAD_PARENT)
        added = []
        for name in condition.get("accounts", ()):
            if name not in self.accounts:
                self.accounts[name] = SimAccount(name, texts.get("description", ""), texts.get("organization", ""))
                added.append(name)
            for cluster in clusters:
                if not self._has(name, cluster):
                    shares = association.get("fairshare", 1)
                    self.associations.append(SimAssociation(name, cluster, parent=parent, shares=shares))
                    added.append(name)
        return ok({"added_accounts": f" Adding Account(s)\n  {' '.join(added)}\n"}) if added else UNCHANGED

    def _add_users(self, body: Json) -> Reply:
        condition = body.get("association_condition", {})
        shares = condition.get("association", {}).get("fairshare", 1)
        added = []
        for user in condition.get("users", ()):
            for account in condition.get("accounts", ()):
                for cluster in condition.get("clusters", ()):
                    if not self._has(account, cluster) or self._has(account, cluster, user):
                        continue
                    first = not any(a.user == user and a.cluster == cluster for a in self.associations)
                    self.associations.append(SimAssociation(account, cluster, user, is_default=first, shares=shares))
                    added.append(user)
                    self.users.setdefault(user, "None")
        return ok({"added_users": f" Adding User(s)\n  {' '.join(added)}\n"}) if added else UNCHANGED

    def _delete(self, kind: str, name: str, query: dict[str, str]) -> Reply:
        if kind == "association":
            gone = [a for a in self.associations if _meets(a, query) and a.user]
        elif kind in ("account", "user"):
            gone = [a for a in self.associations if getattr(a, kind) == name]
            known: dict[str, Any] = self.accounts if kind == "account" else self.users
            if known.pop(name, None) is None:
                return UNCHANGED
        elif self.qos.pop(name, None) is None:
            return UNCHANGED
        else:
            gone = []
            for association in self.associations:
                association.qos = [qos for qos in association.qos if qos != name]
        self.associations = [a for a in self.associations if not any(a is other for other in gone)]
        if kind == "association" and not gone:
            return UNCHANGED
        key = {"account": "removed_accounts", "user": "removed_users", "qos": "removed_qos"}.get(kind)
        return ok({key: [name]} if key else {"removed_associations": [f"{a.account} {a.user}" for a in gone]})

    def _has(self, account: str, cluster: str, user: str = "") -> bool:
        return any((a.account, a.cluster, a.user) == (account, cluster, user) for a in self.associations)


def _meets(association: SimAssociation, query: dict[str, str]) -> bool:
    return all(
        getattr(association, key) in query[key].split(",") for key in ("account", "cluster", "user") if query.get(key)
    )


def _account(account: SimAccount) -> Json:
    return {"name": account.name, "description": account.description, "organization": account.organization}


def _qos(qos: SimQos) -> Json:
    return {
        "name": qos.name,
        "description": qos.description,
        "priority": number(qos.priority),
        "flags": qos.flags,
    }


def _association(association: SimAssociation) -> Json:
    return {
        "account": association.account,
        "cluster": association.cluster,
        "user": association.user,
        "partition": "",
        "parent_account": association.parent,
        "is_default": association.is_default,
        "shares_raw": association.shares,
        "max": {"jobs": {"active": limit(association.max_jobs)}},
        "qos": association.qos,
        "default": {"qos": ""},
    }
