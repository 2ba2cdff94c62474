"""`python -m tests.cluster.ahead` builds what the later parts of `make test` need, beside its first
ones.

Programs, images and the kernel of the cgroup v2 node. What the local clusters begin with comes
last: the lanes build it themselves, not at the lowest priority. Whoever needs one that is being
built waits for it.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from tests.cluster import cache, debian
from tests.cluster.errors import ClusterError
from tests.cluster.images import build_images
from tests.cluster.kernel import kernel
from tests.cluster.nodes import pause_archive
from tests.cluster.tools import tool

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAMS = (
    "helm",
    "helm4",
    "helm-unittest",
    "kubectl",
    "ct",
    "kustomize",
    "versitygw",
    "deviceplugin",
    "push",
    "prometheus-adapter",
    "jobset",
    "lws",
    "kube",
)


def build() -> None:
    """Build everything. What can't be built is left to those who need it: they report why."""
    steps: list[Callable[[], object]] = [
        debian.unpacked,
        debian.directory,
        *(lambda name=name: tool(name) for name in PROGRAMS),
        kernel,
        pause_archive,
        lambda: build_images(cache.root(), lambda _: None),
    ]
    for step in steps:
        with contextlib.suppress(ClusterError):
            step()


if __name__ == "__main__":
    build()
