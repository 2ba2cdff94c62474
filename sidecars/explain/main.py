"""`kubectl slurm`: the commands and their options."""

from __future__ import annotations

import argparse
import os
import re
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sidecars.commandline import COMPLETE, Parser
from sidecars.contract.text import LONGEST_LINE, printable
from sidecars.explain import bundle, showing, text
from sidecars.explain.commands import JOB_ID
from sidecars.explain.completion import NO_FILES, names
from sidecars.explain.core import cluster_health, config, job, node, nodeset, pod, queue
from sidecars.explain.core import top as of_top
from sidecars.explain.core.records import Level
from sidecars.explain.kubectl import Kubectl, KubectlError
from sidecars.explain.reading import Question, Reader, find_namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from sidecars.explain.core.records import Answer, Seen

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_EXPLAIN: dict[str, Callable[[Seen, str], Answer]] = {
    "job": job.explain,
    "queue": queue.explain,
    "pod": pod.explain,
    "node": node.explain,
    "nodeset": nodeset.explain,
    "config": config.explain,
    "doctor": cluster_health.explain,
}
COMPLETION = """#!/bin/sh
exec kubectl slurm {command} "$@"
"""
"""The file kubectl_complete-slurm, which kubectl's own completion starts."""


def main(
    arguments: Sequence[str] | None = None, *, sleep: Callable[[float], None] = time.sleep
) -> int:
    """Run the command. Return 0 if it is answered, and for `doctor` if nothing needs a remedy, 1 if
    the answer is unknown, or something does, and 2 if it, or for `doctor` a part, could not be
    read.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    if words[:1] == [COMPLETE]:
        print(*parser.candidates(words[1:], names), NO_FILES, sep="\n")
        return 0
    given = parser.parse_args(words)
    if given.command == "completion":
        print(COMPLETION.format(command=COMPLETE), end="")
        return 0
    name = getattr(given, "name", "") or ""
    subject = given.subject if given.command == "explain" else given.command
    if subject == "job" and not name:
        subject = "queue"
    fault = _fault(subject, name)
    if subject == "doctor" and given.what:
        fault = _no_subject(given.what)
    if given.watch and getattr(given, "bundle", None):
        fault = "--bundle writes one archive: omit --watch"
    if fault:
        parser.error(fault)
    return showing.repeat(given, lambda: _once(given, Question(subject, name)), sleep)


def _once(given: argparse.Namespace, question: Question) -> int:
    """Read and print the answer; return the exit status."""
    kubectl = Kubectl(tuple(_kubectl_options(given)))
    now = time.time()
    try:
        pod_name = question.name if question.subject == "pod" else ""
        namespace = find_namespace(kubectl, given.namespace, pod_name)
        seen = Reader(kubectl, namespace, now).read(question)
        if question.subject == "top":
            counts = of_top.top(seen)
            showing.show(
                text.top(counts), asdict(counts) if given.json else None, clears=given.watch
            )
            return 0
        answer = _EXPLAIN[question.subject](seen, question.name)
        as_json = text.as_json(answer) if given.json else None
        showing.show(text.lines(answer, now), as_json, clears=given.watch)
        if question.subject == "doctor":
            if given.bundle:
                bundle.write(given.bundle, kubectl, seen, answer)
                print(f"wrote {given.bundle}", file=sys.stderr)
            if any(it.level is Level.BLOCKS for it in answer.findings):
                return 1
            # What was not read is no proof of health.
            return 2 if answer.missing else 0
    except BrokenPipeError:
        # Who reads, such as head, has enough. Python would complain when it flushes at its end.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (KubectlError, OSError) as error:
        print(f"kubectl slurm: {printable(str(error), LONGEST_LINE)}", file=sys.stderr)
        return 2
    return 0 if answer.known else 1


def _kubectl_options(given: argparse.Namespace) -> Iterator[str]:
    for name in ("context", "kubeconfig"):
        if value := getattr(given, name):
            yield f"--{name}={value}"


def _options(**settings: Any) -> Parser:
    common = Parser(add_help=False, **settings)
    common.add_argument(
        "-n",
        "--namespace",
        help="of the Slurm cluster; default: that of the context, or the only one with one",
    )
    common.add_argument("--context", help="of the kubeconfig")
    common.add_argument("--kubeconfig", help="default: as for kubectl")
    showing.add_options(common, settings.get("argument_default", 5.0))
    return common


def _parser() -> Parser:
    about = "Explain a Slurm cluster on Kubernetes. Changes nothing."
    parser = Parser(prog="kubectl slurm", description=about, parents=[_options()])
    parser.add_version()
    # Options stand before or after the command. Without a default, one that isn't after it stays as
    # it is before it.
    common = _options(argument_default=argparse.SUPPRESS)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    explain = commands.add_parser(
        "explain", help="why something waits, and what happens next", parents=[common]
    )
    explain.add_argument("subject", choices=("job", "pod", "node", "nodeset", "config"))
    explain.add_argument(
        "name",
        nargs="?",
        help="the job's id, or the name; without a job's id: all pending jobs; for config: of the "
        "Controller if several exist",
    )
    doctor_ = commands.add_parser(
        "doctor", help="all that is wrong, the most important first", parents=[common]
    )
    doctor_.add_argument("what", nargs="?", help=argparse.SUPPRESS)
    doctor_.add_argument(
        "--bundle",
        type=Path,
        metavar="FILE",
        help="write what was read to this archive (.tar.gz), without secrets",
    )
    commands.add_parser(
        "top", help="nodes, queue, GPUs, NodeSets and drains at a glance", parents=[common]
    )
    commands.add_parser(
        "completion", help="print kubectl_complete-slurm, with which kubectl completes words"
    )
    return parser


def _no_subject(what: str) -> str:
    """Return what is wrong with a word after `doctor`."""
    if what == "gres":
        return (
            "`doctor gres` is a program in the operator's pod: kubectl -n slinky exec "
            "deploy/slurm-operator -- slurm-sidecars doctor gres"
        )
    return f"doctor examines the whole namespace: omit {what!r}, or use kubectl slurm explain"


def _fault(subject: str, name: str) -> str:
    """Return what is wrong with the name, "" for nothing."""
    if not name and subject in ("pod", "node", "nodeset"):
        return f"name the {subject}: kubectl slurm explain {subject} NAME"
    if subject == "job" and not JOB_ID.fullmatch(name):
        return (
            f"{name!r} is no job id: use 12, 12_3 for a task of an array, or 12+1 for a component"
        )
    if name and subject != "job" and not _NAME.fullmatch(name):
        return f"{name!r} can't be a name in Kubernetes or Slurm"
    return ""
