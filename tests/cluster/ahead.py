"""`python -m tests.cluster.ahead WHAT` builds what tests need, as far as the cache lacks it.

`clusters`: what the end-to-end tests need. Compiling it takes all cores for many minutes, so it
comes before these tests, whose time is limited. `processes`: the programs of the other tests, and
the kernel of the cgroup v2 node, for which a fixture would wait.
"""

import argparse
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.cluster import cache, debian, kernel
from tests.cluster.errors import ClusterError
from tests.cluster.images import build_images, trees
from tests.cluster.nodes import pause_archive
from tests.cluster.tools import tool

CLUSTERS = ("kube", "kubectl", "helm", "helm4", "deviceplugin", "push")
PROCESSES = ("helm-unittest", "ct", "kustomize", "versitygw", "jobset", "lws")
JUPYTER = ("login-jupyter", "slurmd-jupyter")
WORTH_A_LINE = 1.0
"""Seconds from which on a line reports what has been built."""

Steps = Mapping[str, Callable[[], object]]


def steps() -> Mapping[str, tuple[Steps, Steps]]:
    """Return by WHAT two rows of steps. Downloads, unpacking and links use one core, so the two go
    side by side.
    """
    images: Steps = {
        "programs of the distribution": debian.unpacked,
        "directory server": debian.directory,
        "pause image": pause_archive,
        "images": lambda: build_images(cache.root(), lambda _: None),
    }
    return {
        "clusters": ({name: partial(tool, name) for name in CLUSTERS}, images),
        "processes": (
            {name: partial(tool, name) for name in PROCESSES},
            {
                "kernel": kernel.kernel,
                **{f"image {name}": partial(trees, cache.root(), name) for name in JUPYTER},
            },
        ),
    }


def main(arguments: Sequence[str]) -> int:
    """Return the exit code. Prints what it has built, and what can't be built."""
    parser = argparse.ArgumentParser(prog="python -m tests.cluster.ahead")
    parser.add_argument("what", choices=list(steps()))
    rows = steps()[parser.parse_args(arguments).what]
    with ThreadPoolExecutor(len(rows)) as both:
        failures = [line for found in both.map(build, rows) for line in found]
    for line in failures:
        print(line, file=sys.stderr)
    return 1 if failures else 0


def build(row: Steps) -> Sequence[str]:
    """Do one step after the other. Returns a text for each that failed."""
    failures = []
    for name, step in row.items():
        began = time.monotonic()
        try:
            step()
        except ClusterError as error:
            failures.append(f"{name}: {error}")
        else:
            if (seconds := time.monotonic() - began) >= WORTH_A_LINE:
                print(f"built: {name} ({seconds:.0f} s)", flush=True)
    return failures


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
