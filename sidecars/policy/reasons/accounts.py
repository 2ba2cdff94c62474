"""The reasons of the condition of declared accounts."""

from sidecars.policy.reasons.base import NOTHING, WAIT, Reason


class AccountsApplied(Reason):
    """Of a Controller with `declaredAccountsRef`: whether Slurm has the declared accounts, users,
    QOS and reservations ([Declare accounts, users and
    QOS](../accounting.md#declare-accounts-users-and-qos)).
    """

    APPLIED = (
        "Applied",
        (
            "slurmdbd has what is declared. The message also names what was declared before and "
            "remains."
        ),
        NOTHING,
        "True",
    )
    PLANNED = (
        "Planned",
        "`dryRun` is set. The message lists the changes that would be applied.",
        "Remove `dryRun` to apply them.",
        "False",
    )
    INVALID = (
        "Invalid",
        (
            "The declaration has a fault, and nothing of it was applied. The message names place, "
            "value and remedy."
        ),
        "Correct what the message names.",
        "False",
    )
    REFUSED = (
        "Refused",
        (
            "slurmdbd or slurmctld refuses changes. The message quotes it. All other changes were "
            "applied."
        ),
        (
            "Correct the declaration. A deletion is refused while jobs use the account, the user "
            "or the QOS: wait for them. The operator tries again once a minute."
        ),
        "False",
    )
    NOT_APPLIED = (
        "NotApplied",
        "slurmdbd answered as if it had applied the changes that the message lists, and has not.",
        "Apply them with sacctmgr, which shows the reason.",
        "False",
    )
    REFERENCE_MISSING = (
        "ReferenceMissing",
        "The ConfigMap of `declaredAccountsRef`, or its key, doesn't exist.",
        "Create it.",
        "False",
    )
    NO_ANSWER = (
        "NoAnswer",
        "slurmrestd or slurmdbd doesn't answer. The operator tries again.",
        f"{WAIT} If it lasts, see the conditions `SlurmReachable` and, of the Accounting, `Ready`.",
        "Unknown",
    )
    NO_REST_API = (
        "NoRestApi",
        "No RestApi refers to the Controller, so the operator can't reach slurmdbd.",
        "Create a RestApi, or set `restapi.enabled: true` in the chart's values.",
        "Unknown",
    )
