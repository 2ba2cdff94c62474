"""Objects to which SchedMD's operator writes after this one has taken them over: both run, and must
not take turns.
"""

from collections.abc import Callable
from dataclasses import dataclass

from sidecars.kube import Manifest
from sidecars.operator.runtime import managed_fields
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.policy.conditions import timestamp
from sidecars.policy.reasons import Ready

FIRST_SECONDS, LONGEST_SECONDS = 300.0, 3600.0
"""How long such an object is left as it is: doubled each time."""


class TwoOperatorsError(NotUsableError):
    """Another operator has changed the object back. No event shows that it has ended."""

    retried = True

    def __init__(self, desired: Manifest, until: float) -> None:
        metadata = desired["metadata"]
        super().__init__(
            Ready.TWO_OPERATORS,
            f"{desired['kind']} {metadata['namespace']}/{metadata['name']} was taken over, and a "
            f"client with the field manager {managed_fields.FORMER_MANAGER!r}, which is that of "
            "SchedMD's operator, has written to it since. It stays as it is, so that two "
            "operators don't replace Slurm's pods in turn. End SchedMD's operator. This object "
            f"is taken over again at {timestamp(until)}, or when this operator is restarted",
        )


@dataclass(frozen=True, slots=True)
class _Contest:
    until: float
    wait: float


class Contests:
    """When each of these objects may be taken over again. `now`: seconds since the epoch."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._found: dict[tuple[str, str, str], _Contest] = {}

    def check(self, key: tuple[str, str, str], desired: Manifest) -> None:
        """Take in that the other operator has just been found to have written to the object. Raises
        TwoOperatorsError while it must stay as it is.
        """
        now, known = self._now(), self._found.get(key)
        if known is not None and now >= known.until:
            wait = min(2 * known.wait, LONGEST_SECONDS)
            self._found[key] = _Contest(now + wait, wait)
            return
        if known is None:
            known = self._found[key] = _Contest(now + FIRST_SECONDS, FIRST_SECONDS)
        raise TwoOperatorsError(desired, known.until)

    def forget(self, key: tuple[str, str, str]) -> None:
        """Forget an object that is gone."""
        self._found.pop(key, None)
