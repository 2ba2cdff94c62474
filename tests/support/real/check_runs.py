"""Runs of the checks of a chart, from their CronJobs."""

import json
from typing import Any

from tests.support.real.harness import WILL_COME, Slurm, until


def begin(slurm: Slurm, check: str, job: str) -> None:
    """Run the check now, as this Job."""
    slurm.kubernetes.kubectl(
        "-n", slurm.namespace, "create", "job", job, f"--from=cronjob/slurm-check-{check}"
    )


def ended(slurm: Slurm, job: str, seconds: float = WILL_COME) -> str:
    """The condition with which the Job ended: Complete or Failed."""

    def look() -> str | None:
        status = slurm.kubernetes.get("-n", slurm.namespace, "job", job).get("status", {})
        return next(
            (
                it["type"]
                for it in status.get("conditions", [])
                if it["type"] in ("Complete", "Failed")
            ),
            None,
        )

    return until(f"Job {job} to end", look, seconds)


def log_of(slurm: Slurm, job: str) -> str:
    """What the Job has printed."""
    return slurm.kubernetes.kubectl("-n", slurm.namespace, "logs", f"job/{job}")


def result(slurm: Slurm, check: str) -> dict[str, Any]:
    """The stored results of the check's last run, by node."""
    data = slurm.kubernetes.get("-n", slurm.namespace, "configmap", "slurm-check-results")["data"]
    found: dict[str, Any] = json.loads(data[check])["nodes"]
    return found
