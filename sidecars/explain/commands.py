"""Slurm's own commands, run by a shell in a Slurm pod: one `kubectl exec` for all of them, and what
they print.

The shell prints a line with a record separator and a name before each command, on both outputs, and
one with the exit status after it. Nothing of the user's input is part of the script: it is passed
as parameters.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, TypeVar

from sidecars.explain.core.records import Ending, Missing, Qos, Slurm, Waiting
from sidecars.slurm.errors import NotFound, SlurmError
from sidecars.slurm.protocol.decoding import decode
from sidecars.slurm.protocol.details import get_job_details, get_partition_details
from sidecars.slurm.protocol.nodes import get_nodes
from sidecars.slurm.protocol.reservations import get_reservations
from sidecars.slurm.protocol.usage import get_licenses

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sidecars.slurm.protocol.request import Request

T = TypeVar("T")

_MARK = "\x1e"
_COLUMNS = 8
"""Of the queue. All jobs are read once, because squeue always gets all of them from slurmctld."""
JOB_ID = re.compile(r"[0-9]+(?:[_+][0-9]+)?")

_BEGIN = r"""
export LC_ALL=C SLURM_TIME_FORMAT=%s
run() {
  name=$1; shift
  printf '\036%s\n' "$name"; printf '\036%s\n' "$name" >&2
  timeout 8 "$@"; printf '\n\036= %s\n' $?
}
answer=$(timeout 5 scontrol ping 2>&1)
printf '\036ping\n%s\n\036= 0\n' "$answer"
case $answer in *" is UP"*) ;; *) exit 0 ;; esac
run nodes scontrol show nodes --json
run partitions scontrol show partitions --json
run reservations scontrol show reservations --json
run config scontrol show config
"""
_JOB = r"""
run job scontrol show job "$1" --json
run licenses scontrol show licenses --json
account=$(timeout 8 squeue -h -j "$1" -o %a 2>/dev/null | head -n 1)
if [ -n "$account" ]; then
  above=$(timeout 8 scontrol -o show assoc_mgr accounts="$account" flags=assoc 2>/dev/null |
    sed -n 's|.* UserName= .* Lineage=/\([^ ]*\)/ .*|\1|p' | head -n 1 | tr / ,)
  run limits scontrol -o show assoc_mgr accounts="${above:-$account},root" flags=assoc,qos
  run queue squeue -h -t PD,R,CG,S --sort=-p -o '%t|%Q|%i|%u|%r|%e|%N|%P'
fi
"""
_QUEUE = r"""
run licenses scontrol show licenses --json
run queue squeue -h -t PD,R,CG,S --sort=-p -o '%t|%Q|%i|%u|%r|%e|%N|%P'
run qos sacctmgr -n -P show qos format=name,preemptmode,gracetime
"""


def script(subject: str, parameter: str = "") -> tuple[str, ...]:
    """Return the command for a question: `job` with the job's id, `queue`, or another for what all
    questions need.
    """
    more = {"job": _JOB, "queue": _QUEUE}.get(subject, "")
    return ("sh", "-c", _BEGIN + more, "sh", parameter)


@dataclass(frozen=True, slots=True)
class Section:
    """What one command printed."""

    out: str
    err: str
    status: int


def sections(out: str, err: str) -> dict[str, Section]:
    """Return the outputs of the commands that ended, by their names."""
    errors = dict(part.partition("\n")[::2] for part in err.split(_MARK)[1:])
    found: dict[str, Section] = {}
    name, text = "", ""
    for part in out.split(_MARK)[1:]:
        head, _, body = part.partition("\n")
        if head.startswith("= ") and name:
            found[name] = Section(
                text, errors.get(name, "").strip(), int(head[2:]) if head[2:].isdecimal() else 1
            )
            name = ""
        else:
            name, text = head, body
    return found


def read(found: dict[str, Section], subject: str) -> tuple[Slurm, tuple[Missing, ...]]:
    """Read what Slurm reported, and what it didn't."""
    reader = _Reader(found)
    ping = found.get("ping")
    if ping is None or " is UP" not in ping.out:
        answer = (
            " ".join((ping.out if ping is not None else "").split()) or "no answer within 5 seconds"
        )
        return Slurm(), (
            Missing(
                "everything that Slurm knows",
                f"slurmctld does not answer: {answer}",
                "See the pods of slurmctld.",
            ),
        )
    nodes = reader.decoded("nodes", get_nodes())
    slurm = Slurm(
        nodes=None if nodes is None else nodes.nodes,
        partitions=reader.decoded("partitions", get_partition_details()),
        reservations=reader.decoded("reservations", get_reservations()),
        config=None if (config := reader.text("config")) is None else _config(config),
    )
    if subject not in ("job", "queue"):
        return slurm, tuple(reader.missing)
    queue, qos = found.get("queue"), found.get("qos")
    rows = (
        None if queue is None or queue.status else [it.split("|") for it in queue.out.splitlines()]
    )
    slurm = replace(
        slurm,
        licenses=reader.decoded("licenses", get_licenses()),
        qos=None if qos is None or qos.status else _qos(qos.out),
        waiting=None if rows is None else _waiting(rows),
        running=None if rows is None else _running(rows),
    )
    if subject == "job":
        limits = found.get("limits")
        slurm = replace(
            slurm,
            jobs=reader.decoded("job", get_job_details("0"), missing=()),
            limits=limits.out if limits is not None and limits.status == 0 else None,
        )
    return slurm, tuple(reader.missing)


class _Reader:
    def __init__(self, found: dict[str, Section]) -> None:
        self._found = found
        self.missing: list[Missing] = []

    def text(self, name: str) -> str | None:
        section = self._found.get(name)
        if section is not None and section.status == 0:
            return section.out
        why = (
            "the command did not end"
            if section is None
            else section.err or f"exit status {section.status}"
        )
        self.missing.append(Missing(f"Slurm's {name}", " ".join(why.split())))
        return None

    def decoded(self, name: str, request: Request[T], missing: T | None = None) -> T | None:
        """Decode the answer. Return `missing` where Slurm reports that no such record exists."""
        section = self._found.get(name)
        if (
            section is not None
            and missing is not None
            and "Invalid job id" in section.out + section.err
        ):
            return missing
        text = self.text(name)
        if text is None:
            return None
        try:
            return decode(request, 200, text.encode())
        except NotFound:
            if missing is not None:
                return missing
            self.missing.append(Missing(f"Slurm's {name}", "not found"))
        except SlurmError as error:
            self.missing.append(Missing(f"Slurm's {name}", str(error)))
        return None


def _config(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {key.strip().lower(): value.strip() for key, _, value in pairs}


def _qos(text: str) -> tuple[Qos, ...]:
    rows = (line.split("|") for line in text.splitlines())
    return tuple(Qos(*row) for row in rows if len(row) == len(fields(Qos)))


def _waiting(rows: Sequence[Sequence[str]]) -> tuple[Waiting, ...]:
    pending = (it for it in rows if len(it) == _COLUMNS and it[0] == "PD" and it[1].isdecimal())
    return tuple(
        Waiting(it[2], int(it[1]), it[3], it[4], tuple(it[7].split(","))) for it in pending
    )


def _running(rows: Sequence[Sequence[str]]) -> tuple[Ending, ...]:
    """Return the first to end first."""
    found = [
        Ending(it[2], float(it[5]) if it[5].isdecimal() else None, it[3], it[6], it[7])
        for it in rows
        if len(it) == _COLUMNS and it[0] != "PD"
    ]
    return tuple(sorted(found, key=lambda it: (it.at is None, it.at or 0.0)))
