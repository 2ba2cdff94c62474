"""What Slurm's commands print in a pod, as the script of `sidecars.explain.commands` marks it."""

import json
from pathlib import Path
from typing import Any

FIXTURES = Path(__file__).parents[1] / "slurm" / "fixtures"
"""Answers that a real slurmrestd gave."""


def section(name: str, text: str, status: int = 0) -> str:
    """The output of one command."""
    return f"\x1e{name}\n{text}\n\x1e= {status}\n"


def recorded(name: str) -> Any:
    """A recorded answer, or the record of one."""
    found = json.loads((FIXTURES / f"v0.0.45-{name}.json").read_text())
    return found.get("body", found)


def pending_job(**changes: Any) -> dict[str, Any]:
    """A job that a real slurmctld reported as pending."""
    found: dict[str, Any] = recorded("job_pending") | changes
    return found


def output(**sections: Any) -> str:
    """All commands of a healthy Slurm, but for those given: a text, an object as JSON, or None for
    none.
    """
    texts: dict[str, Any] = {
        "ping": "Slurmctld(primary) at slurm-controller-0 is UP",
        "nodes": recorded("nodes"),
        "partitions": recorded("partitions"),
        "reservations": {"reservations": [], "errors": []},
        "config": "Configuration data\nSelectTypeParameters    = CR_CORE_MEMORY\n",
        "job": {"jobs": [pending_job()], "errors": []},
        "licenses": {"licenses": [], "errors": []},
        "limits": "Current Association Manager state\n",
        "queue": "R|950|8|bob|None|N/A|cpu-1|cpu\nPD|900|5|bob|Resources|N/A||cpu,gpu\n"
        "CG|1|7|bob|None|1790000000|cpu-0|cpu\n",
    } | sections
    return "".join(
        section(name, text if isinstance(text, str) else json.dumps(text))
        for name, text in texts.items()
        if text is not None
    )
