"""`kubectl slurm`: the commands and their options."""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING

from sidecars.explain import text
from sidecars.explain.commands import JOB_ID
from sidecars.explain.kubectl import Kubectl, KubectlError
from sidecars.explain.reading import Question, Reader, find_namespace
from sidecars.policy.explain import job, node, pod

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from sidecars.policy.explain.records import Answer, Seen

_EXPLAIN: dict[str, Callable[[Seen, str], Answer]] = {
    "job": job.explain,
    "pod": pod.explain,
    "node": node.explain,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """0: answered; 1: it does not exist or is unknown; 2: a wrong argument, or no API server."""
    parser = _parser()
    given = parser.parse_args(arguments)
    fault = _fault(given.subject, given.name)
    if fault:
        parser.error(fault)
    options = [f"--{name}={value}" for name in ("context", "kubeconfig") if (value := getattr(given, name))]
    kubectl = Kubectl(tuple(options))
    now = time.time()
    try:
        namespace = find_namespace(kubectl, given.namespace)
        seen = Reader(kubectl, namespace, now).read(Question(given.subject, given.name))
    except KubectlError as error:
        print(f"kubectl slurm: {error}", file=sys.stderr)
        return 2
    answer = _EXPLAIN[given.subject](seen, given.name)
    print(json.dumps(text.as_json(answer), indent=2) if given.json else "\n".join(text.lines(answer, now)))
    return 0 if answer.known else 1


def _parser() -> argparse.ArgumentParser:
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument(
        "-n", "--namespace", help="of the Slurm cluster; default: that of the context, or the only one with one"
    )
    common.add_argument("--context", help="of the kubeconfig")
    common.add_argument("--kubeconfig", help="default: as for kubectl")
    common.add_argument("--json", action="store_true", help="print JSON")
    parser = argparse.ArgumentParser(
        prog="kubectl slurm", description="Explain a Slurm cluster on Kubernetes. Changes nothing."
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    explain = commands.add_parser(
        "explain", help="why a job waits, or what is wrong with a pod or node", parents=[common]
    )
    explain.add_argument("subject", choices=sorted(_EXPLAIN))
    explain.add_argument("name", help="the job's id, or the name")
    return parser


def _fault(subject: str, name: str) -> str:
    """What is wrong with the name; "" for nothing."""
    if subject == "job" and not JOB_ID.fullmatch(name):
        return f"{name!r} is no job id: use 12, 12_3 for a task of an array, or 12+1 for a component"
    return ""
