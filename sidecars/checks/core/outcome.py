"""What the end of a check's job means.

The script's exit status and first line of output come back in the job's comment, which the job's
user can change (sidecars/checks/core/script.py). The states and the exit status that Slurm
reports count more.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from sidecars.policy.checks.declared import Check
from sidecars.policy.checks.measures import NAME, fault
from sidecars.policy.checks.results import Kind
from sidecars.slurm.checks import CheckJob

PASSED, SKIPPED, TIMED_OUT = 0, 77, 124
"""Exit statuses of a script. 77: the node lacks what the check tests. Any other one is a failure.
"""
MOST_TEXT = 120
"""Characters of a result's text."""

_COMMENT = re.compile(r"check (\d{1,4}) ([-A-Za-z0-9_=.,%/]*) ?\| ?(.*)", re.DOTALL)
_INTERRUPTED = frozenset(
    {"CANCELLED", "PREEMPTED", "DEADLINE", "REVOKED", "REQUEUED", "REQUEUE_HOLD", "SPECIAL_EXIT"}
)
_FAILED = {
    "NODE_FAIL": "the node failed during the check",
    "BOOT_FAIL": "the node did not start the check",
    "LAUNCH_FAILED": "the node did not start the check",
    "OUT_OF_MEMORY": "the check ran out of memory",
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a job of a check ended."""

    kind: Kind
    text: str = ""
    measured: Mapping[str, str] = field(default_factory=dict)


def outcome(check: Check, job: CheckJob | None) -> Outcome | None:
    """Return how the job ended, None while it waits or runs. `job` is None when Slurm has no record
    of it.
    """
    if job is None:
        return Outcome(Kind.INTERRUPTED, "Slurm has no record of the job")
    if job.restarts:
        # Its comment may be that of the execution before, and a second result would count twice.
        return Outcome(Kind.INTERRUPTED, "the job was requeued")
    if not job.ended:
        return None
    found = _COMMENT.fullmatch(job.comment)
    if found is not None and found[1] != "0":
        found = None
    measured = _measured(found[2]) if found is not None else {}
    text = found[3].strip()[:MOST_TEXT] if found is not None else ""
    if "TIMEOUT" in job.states or job.exit_status == TIMED_OUT:
        return Outcome(Kind.HUNG, f"did not end within {check.timeout} s", measured)
    if job.states & _INTERRUPTED:
        return Outcome(Kind.INTERRUPTED, f"the job is {'+'.join(sorted(job.states))}")
    for state, why in _FAILED.items():
        if state in job.states:
            return Outcome(Kind.FAILED, why, measured)
    if "COMPLETED" in job.states and found is None and check.limits:
        # The script always sets the comment: slurmctld was restarted, for example.
        return Outcome(Kind.INTERRUPTED, "its values did not reach slurmctld")
    if "COMPLETED" in job.states:
        why = fault(check.limits, measured)
        return (
            Outcome(Kind.FAILED, why[:MOST_TEXT], measured)
            if why
            else Outcome(Kind.PASSED, text, measured)
        )
    if "FAILED" in job.states and job.exit_status == SKIPPED:
        return Outcome(Kind.SKIPPED, text or "the node lacks what the check tests", measured)
    if "FAILED" in job.states:
        return Outcome(Kind.FAILED, text or f"exit status {job.exit_status}", measured)
    return Outcome(Kind.INTERRUPTED, f"the job is {'+'.join(sorted(job.states))}")


def _measured(text: str) -> dict[str, str]:
    pairs = (it.partition("=") for it in text.split(",") if "=" in it)
    return {name: value for name, _, value in pairs if NAME.fullmatch(name) and value}
