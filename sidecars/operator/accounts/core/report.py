"""The condition `AccountsApplied` of a Controller."""

from collections.abc import Sequence

from sidecars.operator.accounts.core.declared import KEY, Declared
from sidecars.policy.conditions import Condition
from sidecars.policy.reasons import AccountsApplied

TYPE = "AccountsApplied"
_MOST = 50


def listed(texts: Sequence[str], most: int = _MOST) -> str:
    """Return the first texts, and the number of the others."""
    more = [f"and {len(texts) - most} more"] if len(texts) > most else []
    return "; ".join([*texts[:most], *more])


def missing(name: str, *, exists: bool) -> Condition:
    """Report that the ConfigMap, or its key, is missing."""
    what = f"has no key {KEY!r}" if exists else "doesn't exist"
    message = (
        f"spec.declaredAccountsRef: ConfigMap {name!r} {what}; create it, and the operator "
        "continues"
    )
    return Condition(TYPE, "False", AccountsApplied.REFERENCE_MISSING, message)


def no_rest_api() -> Condition:
    """Report that Slurm can't be asked."""
    message = "no RestApi refers to this Controller: create one with this controllerRef"
    return Condition(TYPE, "Unknown", AccountsApplied.NO_REST_API, message)


def invalid(faults: Sequence[str]) -> Condition:
    """Report that nothing is applied."""
    return Condition(TYPE, "False", AccountsApplied.INVALID, listed(faults))


def planned(changes: Sequence[str], left: Sequence[str]) -> Condition:
    """Report a dry run."""
    return Condition(TYPE, "False", AccountsApplied.PLANNED, listed([*changes, *left]))


def applied(declared: Declared, left: Sequence[str]) -> Condition:
    """slurmdbd has all of it."""
    counts = (
        f"{len(declared.accounts)} accounts, {len(declared.users)} users, {len(declared.qos)} QOS"
    )
    if declared.reservations:
        counts += f", {len(declared.reservations)} reservations"
    return Condition(TYPE, "True", AccountsApplied.APPLIED, listed([counts, *left]))


def not_applied(changes: Sequence[str], refused: Sequence[str]) -> Condition:
    """slurmdbd doesn't have what it was sent."""
    if refused:
        return Condition(TYPE, "False", AccountsApplied.REFUSED, listed(refused))
    return Condition(TYPE, "False", AccountsApplied.NOT_APPLIED, listed(changes))
