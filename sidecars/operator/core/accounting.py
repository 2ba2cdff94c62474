"""What a Controller waits for before its configuration names slurmdbd.

A slurmctld that never received from slurmdbd what can be accounted for ends at once when slurmdbd
does not answer. So the configuration names slurmdbd only when it is up. Once it is named, slurmctld
runs without an answer.
"""

from dataclasses import dataclass
from typing import Any

from sidecars.policy import conditions
from sidecars.policy.reasons import Ready

DEADLINE_SECONDS = 120.0
"""How long a Controller waits for an Accounting that exists but isn't ready, from the Accounting's
creation.
"""


@dataclass(frozen=True, slots=True)
class Wait:
    """Why the configuration can't be composed yet."""

    reason: Ready
    message: str
    seconds: float | None
    """When the wait ends at the latest; None if only the Accounting's appearance ends it."""


def wait(
    namespace: str, name: str, accounting: dict[str, Any] | None, *, in_use: bool, now: float
) -> Wait | None:
    """Return what is to be waited for, None for nothing.

    `accounting`: the custom resource that the Controller names, None if it doesn't exist. `in_use`:
    the configuration that is published names slurmdbd. `now`: seconds since the epoch.
    """
    if accounting is None:
        message = (
            f"spec.accountingRef: no Accounting {name!r} in {namespace!r} exists; "
            "the operator uses it as soon as you create it"
        )
        return Wait(Ready.ACCOUNTING_MISSING, message, None)
    if accounting["spec"].get("external") or conditions.is_true(accounting, "Ready") or in_use:
        return None
    created = conditions.seconds(accounting["metadata"].get("creationTimestamp")) or 0.0
    left = created + DEADLINE_SECONDS - now
    if left <= 0:
        return None
    message = (
        f"Accounting {name!r} isn't ready, and slurmctld can't start without it the first time; "
        f"it starts nevertheless {DEADLINE_SECONDS:.0f} s after the Accounting was created. "
        f"See `kubectl -n {namespace} get accountings {name} -o wide`"
    )
    return Wait(Ready.WAITING_FOR_ACCOUNTING, message, left)
