"""A simulated slurmdbd, and how slurmrestd answers for it, as observed with Slurm 26.05."""

from collections.abc import Iterator, Mapping
from typing import Any

from sidecars.simulate.answers import (
    BAD_CLUSTER,
    BAD_DEFAULT_QOS,
    BAD_PARENT,
    BAD_QOS,
    DEFAULT_ACCOUNT,
    DENIED,
    JOBS_ACTIVE,
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
from sidecars.simulate.records import Call, Json, Reply, SimAccount, SimAssociation, SimJob, SimQos
from sidecars.slurm.job_states import has_ended
from sidecars.slurm.protocol.limits import (
    ASSOCIATION_LIMITS,
    ASSOCIATION_TRES,
    INHERITED,
    NO_LIMIT,
    QOS_LIMITS,
    QOS_TRES,
)

TRES = ("cpu", "mem", "energy", "node", "billing", "fs/disk", "vmem", "pages", "gres/gpu")
"""What is counted with AccountingStorageTRES=gres/gpu."""


class Accounting:
    """slurmdbd with one cluster, root and QOS `normal`. While `up` is false nothing reaches it.

    `add_cluster` adds another cluster.
    """

    def __init__(self, cluster: str = "slurm") -> None:
        self.up = True
        self.clusters: set[str] = set()
        self.accounts = {"root": SimAccount("root", "default root account", "root")}
        self.users = {"root": "Administrator"}
        self.qos = {"normal": SimQos("normal", "Normal QOS default")}
        self.associations: list[SimAssociation] = []
        self.add_cluster(cluster)
        self.with_jobs: set[tuple[str, str]] = set()
        """Account and user of jobs that are pending or running."""
        self.jobs: dict[int, SimJob] = {}
        """The jobs, also those that slurmctld has forgotten."""

    def add_cluster(self, name: str) -> None:
        """Register a cluster, which gets its account root."""
        self.clusters.add(name)
        self.associations.append(SimAssociation("root", name, qos=["normal"]))
        self.associations.append(SimAssociation("root", name, "root", is_default=True))

    def answer(self, call: Call, *, trusted: bool) -> Reply:
        """Answer a call below `slurmdb/`. `trusted`: the token's user may write."""
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
                users = [
                    (user, level)
                    for user, level in sorted(self.users.items())
                    if name in ("", user)
                ]
                return ok(
                    {
                        "users": [
                            {"name": user, "administrator_level": [level]} for user, level in users
                        ]
                    }
                )
            case "qos":
                return ok(
                    {"qos": [_qos(qos) for qos in self.qos.values() if name in ("", qos.name)]}
                )
            case "associations" | "association":
                return ok(
                    {
                        "associations": [
                            self._shown(a) for a in self.associations if _meets(a, query)
                        ]
                    }
                )
            case "job":
                return ok(
                    {"jobs": [_job(job) for job in self.jobs.values() if str(job.job_id) == name]}
                )
            case "tres":
                return ok({"TRES": [_tres(each) for each in TRES]})
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
            preempting = wanted.get("preempt", {})
            if set(preempting.get("list", ())) - self.qos.keys():
                return refusal(422, BAD_QOS)
            qos = self.qos.setdefault(wanted["name"], SimQos(wanted["name"]))
            qos.description = wanted.get("description", qos.description)
            qos.priority = wanted.get("priority", {}).get("number", qos.priority)
            # What isn't named is removed, and an empty list can't be set.
            qos.flags = wanted.get("flags", [])
            qos.preempt_mode = next(iter(preempting.get("mode", ())), "DISABLED")
            qos.preempt = preempting.get("list") or qos.preempt
            qos.grace_time = wanted.get("limits", {}).get("grace_time", qos.grace_time)
            _take_limits(qos.limits, wanted, QOS_LIMITS)
            for name, counts in _counts(wanted, QOS_TRES):
                qos.tres[name] = _without_none({**qos.tres.get(name, {}), **(counts or {})})
        return ok({})

    def _save_associations(self, body: Json) -> Reply:
        wanted = body.get("associations", ())
        if any(set(change.get("qos", ())) - self.qos.keys() for change in wanted):
            return refusal(422, BAD_QOS)
        for change in wanted:
            key = [change.get(it, "") for it in ("account", "cluster", "user", "partition")]
            association = self._find(*key)
            if association is None:
                continue  # Slurm answers 200 and creates none, or a broken one.
            default = change.get("default", {}).get("qos")
            if default and default not in (change.get("qos") or self._qos_of(association)):
                return refusal(422, BAD_DEFAULT_QOS)
            association.shares = change.get("shares_raw", association.shares)
            association.qos = change.get("qos") or association.qos
            association.default_qos = default if default is not None else association.default_qos
            self._move(association, change.get("parent_account"))
            if change.get("is_default"):
                for other in self.associations:
                    if (other.user, other.cluster) == (association.user, association.cluster):
                        other.is_default = other is association
            _take_limits(association.limits, change, ASSOCIATION_LIMITS)
            for name, counts in _counts(change, ASSOCIATION_TRES):
                # What isn't named is removed.
                association.tres[name] = _without_none(counts or {})
        return ok({})

    def _move(self, association: SimAssociation, parent: str | None) -> None:
        """Below another account; without an effect if that doesn't exist or is below this one."""
        above = parent
        while above:
            if above == association.account or not self._has(above, association.cluster):
                return
            above = self._parent(above, association.cluster)
        association.parent = parent or association.parent

    def _parent(self, account: str, cluster: str) -> str:
        found = self._find(account, cluster)
        return found.parent if found is not None else ""

    def _above(self, association: SimAssociation) -> SimAssociation | None:
        return self._find(
            association.account if association.user else association.parent, association.cluster
        )

    def _line(self, association: SimAssociation) -> Iterator[SimAssociation]:
        """Yield the association and all that it inherits from, the nearest first."""
        found: SimAssociation | None = association
        while found is not None:
            yield found
            found = self._above(found)

    def _qos_of(self, association: SimAssociation) -> list[str]:
        return next((it.qos for it in self._line(association) if it.qos is not None), [])

    def _shown(self, association: SimAssociation) -> Json:
        limits, tres = (
            dict(association.limits),
            {name: dict(it) for name, it in association.tres.items()},
        )
        for above in list(self._line(association))[1:]:
            limits = {name: it for name, it in above.limits.items() if name in INHERITED} | limits
            for name, counts in above.tres.items():
                if name in INHERITED:
                    tres[name] = counts | tres.get(name, {})
        default = next(
            (it.default_qos for it in self._line(association) if it.default_qos is not None), ""
        )
        shown: Json = {
            "account": association.account,
            "cluster": association.cluster,
            "user": association.user,
            "partition": association.partition,
            "parent_account": association.parent,
            "is_default": association.is_default,
            "shares_raw": association.shares,
            "qos": self._qos_of(association),
            "default": {"qos": default},
        }
        return _with_limits(shown, limits, ASSOCIATION_LIMITS, tres, ASSOCIATION_TRES)

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
                self.accounts[name] = SimAccount(
                    name, texts.get("description", ""), texts.get("organization", "")
                )
                added.append(name)
            for cluster in clusters:
                if not self._has(name, cluster):
                    shares = association.get("fairshare", 1)
                    self.associations.append(
                        SimAssociation(name, cluster, parent=parent, shares=shares)
                    )
                    added.append(name)
        return (
            ok({"added_accounts": f" Adding Account(s)\n  {' '.join(added)}\n"})
            if added
            else UNCHANGED
        )

    def _add_users(self, body: Json) -> Reply:
        condition = body.get("association_condition", {})
        shares = condition.get("association", {}).get("fairshare", 1)
        added = []
        for user in condition.get("users", ()):
            for account in condition.get("accounts", ()):
                for cluster in condition.get("clusters", ()):
                    if not self._has(account, cluster) or self._has(account, cluster, user):
                        continue
                    first = not any(
                        a.user == user and a.cluster == cluster for a in self.associations
                    )
                    self.associations.append(
                        SimAssociation(account, cluster, user, is_default=first, shares=shares)
                    )
                    added.append(user)
                    self.users.setdefault(user, "None")
        return (
            ok({"added_users": f" Adding User(s)\n  {' '.join(added)}\n"}) if added else UNCHANGED
        )

    def _delete(self, kind: str, name: str, query: dict[str, str]) -> Reply:
        if kind == "association":
            gone = [a for a in self.associations if _meets(a, query) and a.user]
            for it in gone:
                if (
                    it.is_default
                    and sum((a.user, a.cluster) == (it.user, it.cluster) for a in self.associations)
                    > 1
                ):
                    return refusal(422, DEFAULT_ACCOUNT)
        elif kind == "user":
            gone = [a for a in self.associations if a.user == name]
        elif kind == "account":
            gone = [a for a in self.associations if any(it.account == name for it in self._line(a))]
        else:
            gone = []
        if any((a.account, a.user) in self.with_jobs for a in gone):
            return refusal(422, JOBS_ACTIVE)
        known: dict[str, dict[str, Any]] = {
            "account": self.accounts,
            "user": self.users,
            "qos": self.qos,
        }
        if (kind == "association" and not gone) or (
            kind in known and known[kind].pop(name, None) is None
        ):
            return UNCHANGED
        self.associations = [a for a in self.associations if not any(a is other for other in gone)]
        if kind == "qos":
            self._forget_qos(name)
        key = {"account": "removed_accounts", "user": "removed_users", "qos": "removed_qos"}.get(
            kind
        )
        return ok(
            {key: [name]}
            if key
            else {"removed_associations": [f"{a.account} {a.user}" for a in gone]}
        )

    def _forget_qos(self, name: str) -> None:
        for association in self.associations:
            if association.qos is not None:
                association.qos = [qos for qos in association.qos if qos != name]
        for qos in self.qos.values():
            qos.preempt = [each for each in qos.preempt if each != name]

    def _has(self, account: str, cluster: str, user: str = "") -> bool:
        return self._find(account, cluster, user) is not None

    def _find(
        self, account: str, cluster: str, user: str = "", partition: str = ""
    ) -> SimAssociation | None:
        return next(
            (a for a in self.associations if a.key == (account, cluster, user, partition)), None
        )


def _meets(association: SimAssociation, query: dict[str, str]) -> bool:
    return all(
        getattr(association, key) in query[key].split(",")
        for key in ("account", "cluster", "user")
        if query.get(key)
    )


def _account(account: SimAccount) -> Json:
    return {
        "name": account.name,
        "description": account.description,
        "organization": account.organization,
    }


def _qos(qos: SimQos) -> Json:
    shown: Json = {
        "name": qos.name,
        "description": qos.description,
        "priority": number(qos.priority),
        "flags": qos.flags,
        "preempt": {"list": qos.preempt, "mode": [qos.preempt_mode]},
        "limits": {"grace_time": qos.grace_time},
    }
    return _with_limits(shown, qos.limits, QOS_LIMITS, qos.tres, QOS_TRES)


def _job(job: SimJob) -> Json:
    # slurmctld reports it with the end.
    admin_comment = job.admin_comment if has_ended(job.states) else ""
    return {
        "job_id": job.job_id,
        "state": {"current": sorted(job.states - {"COMPLETING"}), "reason": "None"},
        "comment": {"administrator": admin_comment, "job": "", "system": ""},
        "user": job.user,
        "partition": job.partition,
        "stdout": job.output if job.guard else "",
        "het": {"job_id": job.het_id, "job_offset": number(job.het_offset)},
        "time": {"submission": job.submit_time, "start": job.start_time},
    }


def _tres(name: str) -> Json:
    kind, _, label = name.partition("/")
    return {"type": kind, "name": label}


def _with_limits(
    shown: Json,
    limits: Mapping[str, int],
    limit_places: Mapping[str, str],
    tres: Mapping[str, Mapping[str, int]],
    tres_places: Mapping[str, str],
) -> Json:
    values: dict[str, object] = {
        place: limit(limits.get(name)) for name, place in limit_places.items()
    }
    for name, place in tres_places.items():
        values[place] = [
            {**_tres(each), "count": count} for each, count in tres.get(name, {}).items()
        ]
    for place, value in values.items():
        *path, last = place.split(".")
        holder = shown
        for part in path:
            holder = holder.setdefault(part, {})
        holder[last] = value
    return shown


def _at(body: Json, place: str) -> Any:
    found: Any = body
    for part in place.split("."):
        found = found.get(part) if isinstance(found, dict) else None
    return found


def _take_limits(limits: dict[str, int], body: Json, places: Mapping[str, str]) -> None:
    for name, place in places.items():
        value = _at(body, place)
        if value is None:
            continue
        if value.get("set"):
            limits[name] = value["number"]
        else:
            limits.pop(name, None)


def _counts(body: Json, places: Mapping[str, str]) -> Iterator[tuple[str, dict[str, int] | None]]:
    """Yield the counts that the body gives for TRES that Slurm counts, for each limit. None stands
    for a limit that it doesn't name.
    """
    for name, place in places.items():
        listed = _at(body, place)
        if listed is None:
            yield name, None
            continue
        counts = {
            "/".join(filter(None, (it["type"], it.get("name")))): it["count"] for it in listed
        }
        yield name, {each: count for each, count in counts.items() if each in TRES}


def _without_none(counts: dict[str, int]) -> dict[str, int]:
    return {each: count for each, count in counts.items() if count != NO_LIMIT}
