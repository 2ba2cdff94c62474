"""The condition `UsersApplied` of a Controller."""

from collections.abc import Sequence

import msgspec

from sidecars.contract.text import LONGEST, printable
from sidecars.policy.conditions import Condition
from sidecars.policy.reasons import UsersApplied
from sidecars.policy.users.declared import Declared

TYPE = "UsersApplied"
LEFT_OUT = "left-out.json"
"""Key of the Secret beside the users: `LeftOut` as JSON. Who writes users of another source gives
it.
"""
_MOST = 20


class LeftOut(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Entries of another source that the users don't contain."""

    entries: list[str]
    """With the reason and the remedy."""
    more: int = 0
    """The number of others."""


def left_out(entries: Sequence[str]) -> bytes | None:
    """Return the content of `LEFT_OUT`, a bounded number of entries, None for no entry: the key
    isn't needed.
    """
    if not entries:
        return None
    found = LeftOut([printable(it) for it in entries[:_MOST]], max(0, len(entries) - _MOST))
    return msgspec.json.encode(found)


def missing(name: str, key: str, *, exists: bool) -> Condition:
    """Report that the Secret, or its key, is missing: pods keep the users that they have."""
    what = f"has no key {key!r}" if exists else "doesn't exist"
    message = (
        f"spec.usersRef: Secret {name!r} {what}; create it. Until then, pods keep the users that "
        "they have"
    )
    return Condition(TYPE, "False", UsersApplied.REFERENCE_MISSING, message)


def invalid(name: str, key: str, faults: Sequence[str]) -> Condition:
    """Report that the users are invalid: pods keep the users that they have."""
    more = [f"and {len(faults) - _MOST} more"] if len(faults) > _MOST else []
    message = f"Secret {name!r}, {key}: {'; '.join([*faults[:_MOST], *more])}"
    return Condition(TYPE, "False", UsersApplied.INVALID, message)


def unread(message: str) -> Condition:
    """Report that the Secret can't be read."""
    return Condition(TYPE, "Unknown", UsersApplied.REFERENCE_UNREAD, message)


def applied(declared: Declared, without: bytes | None, *, settled: bool) -> Condition:
    """Report that the pods have these users. Not `settled`: they get them within seconds, if they
    run already.

    `without`: the content of `LEFT_OUT`. What another program wrote there in another form is
    ignored.
    """
    counts = f"{len(declared.users)} users, {len(declared.groups)} groups"
    if not settled:
        return Condition(
            TYPE,
            "False",
            UsersApplied.DISTRIBUTING,
            f"{counts}; running pods get them within seconds",
        )
    try:
        found = msgspec.json.decode(without or b"null", type=LeftOut | None)
    except msgspec.DecodeError:
        found = None
    if found is None:
        return Condition(TYPE, "True", UsersApplied.APPLIED, counts)
    entries = [printable(it, LONGEST) for it in found.entries[:_MOST]]
    more = [f"and {found.more} more"] if found.more > 0 else []
    return Condition(
        TYPE, "True", UsersApplied.APPLIED, f"{counts}. Left out: {'. '.join([*entries, *more])}"
    )
