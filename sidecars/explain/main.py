"""`kubectl slurm`: the commands and their options."""

from __future__ import annotations

import argparse
import json
import re
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from sidecars.contract.text import LONGEST_LINE, printable
from sidecars.explain import bundle, text
from sidecars.explain.commands import JOB_ID
from sidecars.explain.kubectl import Kubectl, KubectlError
from sidecars.explain.reading import Question, Reader, find_namespace
from sidecars.policy.explain import config, doctor, job, node, nodeset, pod
from sidecars.policy.explain import top as of_top
from sidecars.policy.explain.records import Level

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sidecars.policy.explain.records import Answer, Seen

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")
_EXPLAIN: dict[str, Callable[[Seen, str], Answer]] = {
    "job": job.explain,
    "pod": pod.explain,
    "node": node.explain,
    "nodeset": nodeset.explain,
    "config": config.explain,
    "doctor": doctor.explain,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """0: answered, and for `doctor` nothing needs a remedy; 1: unknown, or something does; 2: it could not be read."""
    parser = _parser()
    given = parser.parse_args(arguments)
    subject = given.subject if given.command == "explain" else given.command
    name = getattr(given, "name", "") or ""
    fault = _fault(subject, name)
    if fault:
        parser.error(fault)
    options = [f"--{name}={value}" for name in ("context", "kubeconfig") if (value := getattr(given, name))]
    kubectl = Kubectl(tuple(options))
    now = time.time()
    try:
        namespace = find_namespace(kubectl, given.namespace, name if subject == "pod" else "")
        seen = Reader(kubectl, namespace, now).read(Question(subject, name))
        if subject == "top":
            counts = of_top.top(seen)
            print(json.dumps(asdict(counts), indent=2) if given.json else "\n".join(text.top(counts)))
            return 0
        answer = _EXPLAIN[subject](seen, name)
        print(json.dumps(text.as_json(answer), indent=2) if given.json else "\n".join(text.lines(answer, now)))
        if subject == "doctor":
            if given.bundle:
                bundle.write(given.bundle, kubectl, seen, answer)
                print(f"wrote {given.bundle}", file=sys.stderr)
            return int(any(it.level is Level.BLOCKS for it in answer.findings))
    except (KubectlError, OSError) as error:
        print(f"kubectl slurm: {printable(str(error), LONGEST_LINE)}", file=sys.stderr)
        return 2
    return 0 if answer.known else 1


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "-n", "--namespace", help="of the Slurm cluster; default: that of the context, or the only one with one"
    )
    common.add_argument("--context", help="of the kubeconfig")
    common.add_argument("--kubeconfig", help="default: as for kubectl")
    common.add_argument("--json", action="store_true", help="print JSON")
    about = "Explain a Slurm cluster on Kubernetes. Changes nothing."
    parser = argparse.ArgumentParser(prog="kubectl slurm", description=about)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    explain = commands.add_parser("explain", help="why something waits, and what happens next", parents=[common])
    explain.add_argument("subject", choices=("job", "pod", "node", "nodeset", "config"))
    explain.add_argument(
        "name", nargs="?", help="the job's id, or the name; for config: of the Controller if several exist"
    )
    doctor_ = commands.add_parser("doctor", help="all that is wrong, the most important first", parents=[common])
    doctor_.add_argument(
        "--bundle", type=Path, metavar="FILE", help="write what was read to this archive (.tar.gz), without secrets"
    )
    commands.add_parser("top", help="nodes, queue, GPUs, NodeSets and drains at a glance", parents=[common])
    return parser


def _fault(subject: str, name: str) -> str:
    """What is wrong with the name; "" for nothing."""
    if not name and subject in ("job", "pod", "node", "nodeset"):
        return f"name the {subject}: kubectl slurm explain {subject} NAME"
    if subject == "job" and not JOB_ID.fullmatch(name):
        return f"{name!r} is no job id: use 12, 12_3 for a task of an array, or 12+1 for a component"
    if name and subject != "job" and not _NAME.fullmatch(name):
        return f"{name!r} can't be a name in Kubernetes or Slurm"
    return ""
