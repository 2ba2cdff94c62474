"""Benchmark `postrender`: how long the post-renderer takes, as Helm starts it: a process of its own
from its folder.

A stream of 5,000 lines with no matching step; a Slurm cluster of 20 NodeSets, checked, and checked
and expanded. Beside them `cat`, which only copies a stream, and kubectl, which reads and writes the
same stream in Go without a cluster.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from postrender import writing
from release import postrender
from tests.bench.figures import Figure, figure
from tests.cluster.tools import tool

ROOT = Path(__file__).parents[2]
LINES, NODESETS, RUNS, SECONDS = 5_000, 20, 15, 60
NO_MATCH = "steps:\n- labels: {set: {a: b}, select: [{kind: Nothing, name: none}]}\n"
CHECK = "steps:\n- check: {}\n"
EXPAND = f"{CHECK}- expand: {{secrets: [k]}}\n"


def bench() -> list[Figure]:
    """The figures."""
    with tempfile.TemporaryDirectory() as name:
        target = Path(name)
        folder = postrender.folder(ROOT, target, postrender.installed(target / "packages"))
        (target / "python3").symlink_to(sys.executable)
        for file, text in (
            ("no-match.yaml", NO_MATCH),
            ("check.yaml", CHECK),
            ("expand.yaml", EXPAND),
        ):
            (target / file).write_text(text, encoding="utf-8")
        program, long, cluster = str(folder / postrender.NAME), stream(), nodesets()
        cat, _ = _run(["cat"], long, target)
        kubectl, kubectl_cpu = _run(
            [str(tool("kubectl")), "label", "--local", "-f", "-", "-o", "yaml", "a=b"], long, target
        )
        wall, cpu = _run([program, str(target / "no-match.yaml")], long, target)
        check, check_cpu = _run(
            [program, str(target / "check.yaml"), "--namespace=slurm"], cluster, target
        )
        both, both_cpu = _run(
            [program, str(target / "expand.yaml"), "--namespace=slurm"], cluster, target
        )
        return [
            figure(f"cat: {LINES} lines", cat, "s"),
            figure(f"kubectl label --local: {LINES} lines", kubectl, "s"),
            figure(
                f"{LINES} lines, no matching step: wall",
                wall,
                "s",
                against=("kubectl", kubectl),
                most=0.15,
            ),
            figure(
                f"{LINES} lines, no matching step: CPU", cpu, "s", against=("kubectl", kubectl_cpu)
            ),
            figure(
                f"check of {NODESETS} NodeSets: wall", check, "s", against=("cat", cat), most=0.6
            ),
            figure(f"check of {NODESETS} NodeSets: CPU", check_cpu, "s"),
            figure(
                f"check and expand of {NODESETS} NodeSets: wall",
                both,
                "s",
                against=("check", check),
                most=0.6,
            ),
            figure(
                f"check and expand of {NODESETS} NodeSets: CPU",
                both_cpu,
                "s",
                against=("check", check_cpu),
            ),
        ]


def stream() -> str:
    """Objects as charts write them, of at least LINES lines."""
    parts: list[str] = []
    number = lines = 0
    while lines < LINES:
        number += 1
        value = {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {
                "name": f"d{number}",
                "labels": {f"example.com/l{i}": "x" for i in range(10)},
            },
            "spec": {
                "template": {
                    "spec": {
                        "containers": [{"name": f"c{i}", "image": f"a/b:{i}"} for i in range(10)]
                    }
                },
                "script": "#!/bin/sh\n" + "echo hello world\n" * 30,
            },
        }
        parts.append(f"---\n# Source: bench/templates/{number}.yaml\n{writing.document(value)}")
        lines += parts[-1].count("\n")
    return "".join(parts)


def nodesets() -> str:
    """A Slurm cluster."""
    version = {"apiVersion": "slinky.slurm.net/v1beta1"}
    keys = {
        "slurmKeyRef": {"name": "k", "key": "slurm.key"},
        "jwtKeyRef": {"name": "k", "key": "jwt.key"},
    }
    image = {"image": "registry.invalid/slurm-charts/slurmctld:26.05"}
    objects: list[dict[str, Any]] = [
        {
            **version,
            "kind": "Controller",
            "metadata": {"name": "slurm"},
            "spec": {**keys, "slurmctld": image},
        }
    ]
    for number in range(NODESETS):
        spec = {
            "controllerRef": {"name": "slurm"},
            "replicas": 4,
            "slurmd": {
                "image": "registry.invalid/slurm-charts/slurmd:26.05",
                "resources": {"limits": {"cpu": 4, "memory": "8Gi"}},
            },
            "partition": {"enabled": True},
        }
        objects.append(
            {**version, "kind": "NodeSet", "metadata": {"name": f"worker-{number}"}, "spec": spec}
        )
    return "".join(
        f"---\n# Source: slurm/templates/x.yaml\n{writing.document(it)}" for it in objects
    )


def _run(words: Sequence[str], text: str, folder: Path) -> tuple[float, float]:
    """Median wall time and CPU time of the program with this stdin, in seconds. The first run
    doesn't count.
    """
    env = os.environ | {
        "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}",
        "SLURM_POSTRENDER_REPORT": str(folder / "report"),
    }
    walls: list[float] = []
    cpus: list[float] = []
    for _ in range(RUNS + 1):
        before, started = os.times(), time.perf_counter()
        done = subprocess.run(
            words, input=text.encode(), env=env, capture_output=True, timeout=SECONDS, check=False
        )
        walls.append(time.perf_counter() - started)
        after = os.times()
        cpus.append(
            after.children_user
            + after.children_system
            - before.children_user
            - before.children_system
        )
        if done.returncode:
            raise RuntimeError(f"{words[0]}: {done.stderr.decode(errors='replace')}")
    return statistics.median(walls[1:]), statistics.median(cpus[1:])
