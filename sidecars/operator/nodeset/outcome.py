"""What has become of the actions of a decision, for the report and for the next pass."""

import logging
from dataclasses import dataclass, field, replace

from sidecars.kube import AlreadyExists, Forbidden, Invalid, KubeError
from sidecars.operator.runtime.errors import NotUsableError
from sidecars.policy.conditions import Condition
from sidecars.policy.nodeset.report import Progress
from sidecars.policy.reasons import Ready
from sidecars.slurm.errors import SlurmError

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Outcome:
    """What has become of the actions."""

    applied: bool = False
    """At least one was tried."""
    failure: Exception | None = None
    """The first failure of Kubernetes or of the NodeSet itself, for the queue's back-off."""
    slurm_failed: bool = False
    """Slurm failed to do something that the next pass decides on again."""
    look_again: float | None = None
    """Seconds until what was not done, or not yet, is due."""
    reservation: Condition | None = None
    """What became of the reservation, if not what was decided."""
    creating: bool = False
    """Creations of pods were tried."""
    removed_finalizers: set[str] = field(default_factory=set)
    """Those of the NodeSet that are to be removed, by one write after all actions."""
    released: bool = False
    """The finalizer was removed: the NodeSet is gone."""

    def hint(self, seconds: float | None) -> None:
        """Look again after so many seconds at the latest."""
        if seconds is not None:
            self.look_again = seconds if self.look_again is None else min(self.look_again, seconds)

    def failed(self, error: Exception) -> None:
        """Keep the first failure. Raises what no action is expected to fail with."""
        if not isinstance(error, KubeError | SlurmError | NotUsableError):
            raise error
        log.debug("an action failed: %s", error)
        self.failure = self.failure or error

    def progress(self, decided: Progress) -> Progress:
        """What the decision reports, with what has become of it."""
        return decided if self.reservation is None else replace(decided, reservation=self.reservation)

    @property
    def condition(self) -> Condition | None:
        """The failure as condition `Ready`."""
        error = self.failure
        if error is None:
            return None
        reason = Ready.REFUSED if isinstance(error, Forbidden | Invalid) else Ready.FAILED
        if isinstance(error, NotUsableError):
            reason = error.reason
        elif isinstance(error, AlreadyExists):
            reason = Ready.NAME_TAKEN
        return Condition("Ready", "False", reason, str(error))
