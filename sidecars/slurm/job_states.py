"""The states of a Slurm job: one base state and any number of flags (slurm.h, enum job_states and
JOB_STATE_FLAGS; squeue, JOB STATE CODES).

Words are upper case, as the REST API spells them. Words that a newer Slurm adds are kept and change
no answer here.
"""

from collections.abc import Set as AbstractSet

_ENDED = frozenset(
    {
        "BOOT_FAIL", "CANCELLED", "COMPLETED", "DEADLINE", "FAILED", "NODE_FAIL", "OUT_OF_MEMORY",
        "PREEMPTED", "TIMEOUT",
    }
)  # fmt: skip

BASE_STATES = _ENDED | {"PENDING", "RUNNING", "SUSPENDED"}

FLAGS = frozenset(
    {
        "COMPLETING", "CONFIGURING", "EXPEDITING", "LAUNCH_FAILED", "POWER_UP_NODE",
        "RECONFIG_FAIL", "REQUEUED", "REQUEUE_FED", "REQUEUE_HOLD", "RESIZING", "RESV_DEL_HOLD",
        "REVOKED", "SIGNALING", "SPECIAL_EXIT", "STAGE_OUT", "STOPPED",
    }
)  # fmt: skip

ENDED = _ENDED | {"REVOKED"}
"""A job has ended if it has one of these. REVOKED is the flag of a job that another cluster of the
federation has started. LAUNCH_FAILED is none of them: a job that is queued again has it, too.
"""


def has_ended(states: AbstractSet[str]) -> bool:
    """Return whether the job has ended.

    Until COMPLETING is gone, its processes and Epilogs may still run. An external job uses nothing
    from its end on. A guard retains what it had on each of its nodes until the Epilog there has
    ended.
    """
    return not states.isdisjoint(ENDED)
