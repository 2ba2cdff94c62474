"""`slurm-explain` and `slurm-top` on login nodes: the answers of `kubectl slurm`, for whoever
submits jobs.

They read Slurm by its own commands, with the identity of their user, and nothing of Kubernetes. So
they show what Slurm shows this user: no job of others where PrivateData has them hidden.
"""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING

from sidecars.commandline import COMPLETE, Parser
from sidecars.explain import commands, showing, text
from sidecars.explain.commands import JOB_ID
from sidecars.explain.core import job, queue
from sidecars.explain.core import top as of_top
from sidecars.explain.core.records import Missing, Seen

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterator, Sequence

    from sidecars.explain.core.records import Answer, Finding

TOP = "slurm-top"
EXPLAIN = "slurm-explain"
SECONDS = 45.0
MOST_JOBS = 100
"""Of the user's jobs that completion offers."""
TOKEN = "SLURM_JWT"  # noqa: S105
"""The environment variable by which Slurm's commands take a token in place of the user's identity.
"""
_EXPIRED = Missing(
    "everything that Slurm knows",
    f"the token in the environment variable {TOKEN} has expired. Run: unset {TOKEN}",
    "For a new token, run then: export $(scontrol token)",
)
_PERHAPS_TOKEN = f"If others get an answer, Slurm refuses your token. Run: unset {TOKEN}"
_FOR_ADMINISTRATORS = ("scontrol update nodename", "scontrol update partition")
_ASK = "An administrator can do that."


def main(
    arguments: Sequence[str] | None = None,
    *,
    program: str | None = None,
    sleep: Callable[[float], None] = time.sleep,
) -> int:
    """Run the program of this name. Return 0 if it is answered, 1 if Slurm doesn't know the job,
    and 2 for wrong arguments.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    name = TOP if Path(program or sys.argv[0]).name == TOP else EXPLAIN
    parser = _parser(name)
    if words[:1] == [COMPLETE]:
        print(*parser.candidates(words[1:], lambda _: own_jobs()), sep="\n")
        return 0
    given = parser.parse_args(words)
    asked = getattr(given, "job", None) or ""
    if asked and not JOB_ID.fullmatch(asked):
        parser.error(
            f"{asked!r} is no job id: use 12, 12_3 for a task of an array, or 12+1 for a component"
        )
    return showing.repeat(given, lambda: _once(name, asked, given), sleep)


def _parser(name: str) -> Parser:
    about = {
        EXPLAIN: "Explain why a job waits, and what happens next. Changes nothing.",
        TOP: "Show nodes, GPUs, queue and drains at a glance. Changes nothing.",
    }
    parser = Parser(prog=name, description=about[name])
    parser.add_version()
    if name == EXPLAIN:
        parser.add_argument("job", nargs="?", help="the job's id; without one: all pending jobs")
    showing.add_options(parser)
    return parser


def _once(name: str, asked: str, given: argparse.Namespace) -> int:
    now = time.time()
    seen = read("job" if asked else "queue", asked, now)
    if name == TOP:
        counts = of_top.top(seen)
        showing.show(text.top(counts), asdict(counts) if given.json else None, clears=given.watch)
        return 0
    answer = job.explain(seen, asked) if asked else queue.explain(seen, command=EXPLAIN)
    if os.getuid() != 0:
        answer = _for_user(answer)
    showing.show(
        text.lines(answer, now), text.as_json(answer) if given.json else None, clears=given.watch
    )
    return 0 if answer.known else 1


def read(subject: str, name: str, now: float) -> Seen:
    """Read what Slurm reports to this user. With an expired token, nothing is asked: Slurm's
    commands would report that slurmctld is down.
    """
    token = os.environ.get(TOKEN, "")
    if has_expired(token, now):
        return Seen(now, "", missing=(_EXPIRED,))
    try:
        done = subprocess.run(
            commands.script(subject, name),
            capture_output=True,
            timeout=SECONDS,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        out, err = (it.decode(errors="replace") for it in (done.stdout, done.stderr))
    except subprocess.TimeoutExpired:
        out = err = ""
    slurm, missing = commands.read(commands.sections(out, err), subject)
    if token and slurm.nodes is None:
        missing = tuple(
            replace(it, remedy=f"{it.remedy} {_PERHAPS_TOKEN}".strip()) for it in missing
        )
    return Seen(now, "", slurm, missing=missing)


def has_expired(token: str, now: float) -> bool:
    """Return whether the time of a JSON Web Token is over; False for any other text, which
    Slurm judges.
    """
    body = token.split(".")[1] if token.count(".") == 2 else ""
    try:
        claims = json.loads(base64.urlsafe_b64decode(body + "=" * (-len(body) % 4)))
    except (ValueError, RecursionError):
        return False
    end = claims.get("exp") if isinstance(claims, dict) else None
    return isinstance(end, int | float) and not isinstance(end, bool) and end <= now


def own_jobs() -> Iterator[str]:
    """Yield the ids of the user's jobs, for completion; none while Slurm doesn't answer."""
    try:
        done = subprocess.run(
            ["squeue", "--me", "--noheader", "--format=%i"],
            capture_output=True,
            timeout=3,
            check=False,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired):
        return
    ids = done.stdout.decode(errors="replace").split()
    yield from (it for it in ids[:MOST_JOBS] if JOB_ID.fullmatch(it))


def _for_user(answer: Answer) -> Answer:
    """Return the answer without commands that only an administrator can run."""
    return replace(answer, findings=tuple(map(_without_rights, answer.findings)))


def _without_rights(it: Finding) -> Finding:
    if not any(command.startswith(_FOR_ADMINISTRATORS) for command in it.commands):
        return it
    return replace(it, commands=(), remedy=f"{it.remedy} {_ASK}".strip())
