"""Why a job waits, in words. Pure."""

from sidecars.policy.bridge.records import Job, Phase
from sidecars.policy.conditions import timestamp
from sidecars.policy.explain.words import UNKNOWN, words

NO_NODE_FITS = "BadConstraints"
"""Slurm's reason of a job that it has blocked, because no node fitted it, and that it doesn't look at again.

A job that someone has blocked by hand has other reasons.
"""

NOT_STARTED = frozenset({"", "None", "JobHeldUser", "JobHeldAdmin"})
"""Slurm's reasons of a job that the bridge has not started, or that Slurm has not looked at since."""

START_ROUNDING = 600
"""Seconds to which the expected start of a job is rounded."""


def waiting_words(job: Job) -> str:
    """Why the job waits, with Slurm's reason in words, and when Slurm expects it to start.

    The time is rounded up, because each new text is a write.
    """
    if job.phase is Phase.STARTING:
        return f"Slurm job {job.job_id} is starting"
    if job.phase is Phase.STOPPED:
        return f"Slurm job {job.job_id} is suspended"
    text = f"Slurm job {job.job_id} waits: "
    if job.reason in ("", "None"):
        text += "Slurm has not looked at it yet"
    else:
        known = words(job.reason)
        text += job.reason if known is UNKNOWN else f"{job.reason}. {known.cause.rstrip('.')}"
    if job.start_time:
        by = timestamp(-(-job.start_time // START_ROUNDING) * START_ROUNDING)
        text += f". Slurm expects it to start by {by}"
    return text
