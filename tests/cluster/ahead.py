"""`python -m tests.cluster.ahead COMMAND…` runs a command, and beside it builds what its later parts need.

Programs, images and the kernel of the cgroup v2 node are built in the order in which `make test` needs them, with the
time that other processes leave. Whoever needs one that is being built waits for it.
"""

import contextlib
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence

from tests.cluster import cache, debian
from tests.cluster.commands import beside
from tests.cluster.errors import ClusterError
from tests.cluster.images import build_images
from tests.cluster.kernel import kernel
from tests.cluster.nodes import pause_archive
from tests.cluster.tools import tool

PROGRAMS = (
    "helm",
    "helm4",
    "helm-unittest",
    "kubectl",
    "ct",
    "kube",
    "kustomize",
    "versitygw",
    "deviceplugin",
    "prometheus-adapter",
    "jobset",
    "lws",
)


def build() -> None:
    """Build everything. What can't be built is left to those who need it: they report why."""
    steps: list[Callable[[], object]] = [
        *(lambda name=name: tool(name) for name in PROGRAMS),
        debian.unpacked,
        debian.directory,
        pause_archive,
        lambda: build_images(cache.root(), lambda _: None),
        kernel,
    ]
    for step in steps:
        with contextlib.suppress(ClusterError):
            step()


def main(command: Sequence[str]) -> int:
    """The command's exit code."""
    with beside("tests.cluster.ahead"):
        # An interrupt reaches the command as well, which then cleans up before it ends.
        signal.signal(signal.SIGINT, lambda *_: None)
        return subprocess.Popen(command).wait()


if __name__ == "__main__":
    if sys.argv[1:]:
        sys.exit(main(sys.argv[1:]))
    build()
