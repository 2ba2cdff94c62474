"""The condition `UsersApplied` of a Controller."""

from collections.abc import Sequence

from sidecars.policy.conditions import Condition
from sidecars.policy.reasons import UsersApplied
from sidecars.policy.users.declared import Declared

TYPE = "UsersApplied"
_MOST = 20


def missing(name: str, key: str, *, exists: bool) -> Condition:
    """The Secret, or its key, is missing: pods keep the users that they have."""
    what = f"has no key {key!r}" if exists else "doesn't exist"
    message = f"spec.usersRef: Secret {name!r} {what}; create it. Until then, pods keep the users that they have"
    return Condition(TYPE, "False", UsersApplied.REFERENCE_MISSING, message)


def invalid(name: str, key: str, faults: Sequence[str]) -> Condition:
    """Pods keep the users that they have."""
    more = [f"and {len(faults) - _MOST} more"] if len(faults) > _MOST else []
    message = f"Secret {name!r}, {key}: {'; '.join([*faults[:_MOST], *more])}"
    return Condition(TYPE, "False", UsersApplied.INVALID, message)


def unread(message: str) -> Condition:
    """The Secret can't be read."""
    return Condition(TYPE, "Unknown", UsersApplied.REFERENCE_UNREAD, message)


def applied(declared: Declared, *, settled: bool) -> Condition:
    """The pods have these users. Not `settled`: they get them within seconds, if they run already."""
    counts = f"{len(declared.users)} users, {len(declared.groups)} groups"
    if settled:
        return Condition(TYPE, "True", UsersApplied.APPLIED, counts)
    return Condition(TYPE, "False", UsersApplied.DISTRIBUTING, f"{counts}; running pods get them within seconds")
