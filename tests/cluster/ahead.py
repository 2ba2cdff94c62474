"""`python -m tests.cluster.ahead` builds what tests need, as far as the cache lacks it: programs,
images, and the kernel of the cgroup v2 node.

Compiling takes all cores for many minutes, so it comes before the tests, whose time is limited.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.cluster import cache, debian, kernel
from tests.cluster.errors import ClusterError
from tests.cluster.images import build_images
from tests.cluster.nodes import pause_archive
from tests.cluster.tools import tool

PROGRAMS = (
    "kube",
    "kubectl",
    "helm",
    "helm4",
    "helm-unittest",
    "ct",
    "kustomize",
    "versitygw",
    "deviceplugin",
    "push",
    "prometheus-adapter",
    "jobset",
    "lws",
)
WORTH_A_LINE = 1.0
"""Seconds from which on a line reports what has been built."""

Steps = Mapping[str, Callable[[], object]]


def main() -> int:
    """The exit code. Prints what it has built, and what can't be built."""
    programs: Steps = {name: partial(tool, name) for name in PROGRAMS}
    images: Steps = {
        "programs of the distribution": debian.unpacked,
        "directory server": debian.directory,
        "pause image": pause_archive,
        "images": lambda: build_images(cache.root(), lambda _: None),
        "kernel": kernel.kernel,
    }
    # Downloads, unpacking and links use one core, so the two go side by side.
    with ThreadPoolExecutor(2) as both:
        failures = [line for found in both.map(build, (programs, images)) for line in found]
    for line in failures:
        print(line, file=sys.stderr)
    return 1 if failures else 0


def build(steps: Steps) -> Sequence[str]:
    """Do one step after the other. Returns a text for each that failed."""
    failures = []
    for name, step in steps.items():
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
    sys.exit(main())
