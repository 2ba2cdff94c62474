"""The facts in the messages of the Slurm Bridge that `kubectl slurm explain` reads.

Each sentence is one template, with which the bridge writes and `explain` reads. So a better wording
can't part the two. `explain` quotes the messages of a bridge with other wordings as they are.
"""

import re
from typing import Final

_FIELDS = {
    "namespace": r"[a-z0-9.-]+",
    "name": r"[a-z0-9.-]+",
    "node": r"[a-z0-9.-]+",
    "job": r"[0-9]+",
    "jobs": r"[0-9]+(?:, [0-9]+)*",
    "device": r"\S+",
    "reason": r"[A-Za-z0-9_]+(?=$|\.)",
    "error": r".+",
    "command": r".+",
}
"""The text that each field of a template may have."""


class Sentence:
    """A sentence with `{fields}`, of those in `_FIELDS`."""

    __slots__ = ("_pattern", "_template")

    def __init__(self, template: str) -> None:
        self._template = template
        literals = re.split(r"\{(\w+)\}", template)
        self._pattern = re.compile(
            "".join(
                f"(?P<{part}>{_FIELDS[part]})" if number % 2 else re.escape(part)
                for number, part in enumerate(literals)
            ),
            re.DOTALL,
        )

    def write(self, **fields: object) -> str:
        """Write the sentence with these fields."""
        return self._template.format(**fields)

    def read(self, message: str) -> dict[str, str] | None:
        """Find the sentence in a message, and return its fields; None without the sentence."""
        found = self._pattern.search(message)
        return found.groupdict() if found is not None else None


WAITS: Final = Sentence("Slurm job {job} waits: {reason}")
"""`reason` is Slurm's. The message continues after it with its explanation."""

ENDED_POD: Final = Sentence("pod {namespace}/{name} of an ended job is still")
SUSPENDED_POD: Final = Sentence("pod {namespace}/{name} of a suspended job is")
MISPLACED_POD: Final = Sentence("pod {namespace}/{name}, whose job has no place there, is")
BLOCKERS: Final = (ENDED_POD, SUSPENDED_POD, MISPLACED_POD)
"""A pod on the job's node uses what the job was given. ` on node NODE` follows."""

TOO_MANY_CPUS: Final = Sentence("jobs {jobs} have more CPUs than it has")
BUSY_DEVICE: Final = Sentence(
    "device {device} of node {node} is still allocated to another ResourceClaim"
)
CORDONED: Final = Sentence("Kubernetes node {node} is cordoned")
NOT_READY: Final = Sentence("Kubernetes node {node} isn't ready")
NO_KUBE_NODE: Final = Sentence("Kubernetes has no node {node}")
UNKNOWN_RECORD: Final = Sentence("Slurm's record of Kubernetes node {node} is not known yet")

NO_USER: Final = Sentence("namespace {namespace} has no Slurm user")
REFUSED_JOB: Final = Sentence("Slurm refuses the job: {error}")
NO_RIGHTS: Final = Sentence(
    "the Slurm Bridge may not change the pods of namespace {namespace}: {command}"
)
"""In an Event. `command` creates the missing RoleBinding."""
