"""The reasons of the condition of declared users."""

from sidecars.policy.reasons.base import NOTHING, WAIT, Reason


class UsersApplied(Reason):
    """Of a Controller with `usersRef`: whether the pods have the declared users and groups
    ([Declare users](../users.md#declare-users))."""

    APPLIED = (
        "Applied",
        (
            "The pods have the declared users and groups. The message also names entries of a "
            "directory (`ldap`) that are left out, each with the reason and the remedy."
        ),
        NOTHING,
        "True",
    )
    DISTRIBUTING = (
        "Distributing",
        "The users have changed, and running pods get them within seconds.",
        WAIT,
        "False",
    )
    INVALID = (
        "Invalid",
        (
            "The declaration has a fault. Nothing of it was applied, and pods keep the users "
            "that they have. The message names place, value and remedy."
        ),
        "Correct what the message names.",
        "False",
    )
    REFERENCE_MISSING = (
        "ReferenceMissing",
        "The Secret of `usersRef`, or its key, doesn't exist. Pods keep the users that they have.",
        "Create it.",
        "False",
    )
    REFERENCE_UNREAD = (
        "ReferenceUnread",
        "The Secret of `usersRef` can't be read. The operator tries again.",
        f"{WAIT} If it lasts, give the operator the right to read this Secret.",
        "Unknown",
    )
