"""Another release of Slurm for the end-to-end tests, and what a watch of pods shows of the way
there.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import pairwise, product
from typing import Any

from sidecars.workloads.names import POD_CORDON
from tests.cluster.commands import run
from tests.cluster.local import existing, named_by
from tests.support.real.harness import Kubernetes, PodWatch, Slurm, condition

RELEASE, NEXT = "26.05", "26.11"
IMAGES = {
    "slurmdbd": "accounting.slurmdbd.image",
    "slurmctld": "controller.slurmctld.image",
    "slurmrestd": "restapi.slurmrestd.image",
    "login": "loginsetDefaults.login.image",
    "slurmd": "nodesetDefaults.slurmd.image",
}
"""Where the chart's values name the image of a daemon."""

ORDER = (("slurmdbd",), ("slurmctld",), ("slurmrestd", "login"), ("slurmd",))
PODS = f"app.kubernetes.io/name in ({','.join(IMAGES)})"


def reference(daemon: str, release: str) -> str:
    """Our image of a daemon."""
    return f"registry.invalid/slurm-charts/{daemon}:{release}"


@contextmanager
def next_release(kubernetes: Kubernetes) -> Iterator[None]:
    """While the block runs, the nodes have images of NEXT. They are those of RELEASE: the operator
    is known by the tag.
    """
    with other_names(
        kubernetes, {reference(daemon, NEXT): reference(daemon, RELEASE) for daemon in IMAGES}
    ):
        yield


@contextmanager
def other_names(kubernetes: Kubernetes, names: Mapping[str, str]) -> Iterator[None]:
    """While the block runs, the nodes have images under further names: each with the image that it
    names.
    """
    nodes = existing(named_by(str(kubernetes.kubeconfig)) or "").nodes
    for node in nodes:
        for name, image in names.items():
            run([*node.ctr(), "images", "tag", "--force", image, name])
    try:
        yield
    finally:
        # A node keeps its images for the next cluster, and would keep these for good.
        for node in nodes:
            run([*node.ctr(), "images", "remove", *names])


def uids(slurm: Slurm) -> dict[str, str]:
    """Image by uid of the pods that are ready and not about to go."""
    return {
        pod["metadata"]["uid"]: _image(pod)
        for pod in slurm.kubernetes.items("-n", slurm.namespace, "pods", "-l", PODS)
        if "deletionTimestamp" not in pod["metadata"] and _ready(pod)
    }


def assert_in_order(watch: PodWatch) -> None:
    """Nobody began with NEXT before those that go before it in ORDER were ready with it.

    A daemon has begun when a pod of NEXT appears, or one of before is about to go or is drained.
    """
    begun: dict[str, int] = {}
    ready: dict[str, int] = {}
    for place, pod in enumerate(watch.history):
        metadata, daemon = pod["metadata"], _daemon(pod)
        new = _image(pod) == reference(daemon, NEXT)
        if new or "deletionTimestamp" in metadata or POD_CORDON in metadata.get("annotations", {}):
            begun.setdefault(daemon, place)
        if new and _ready(pod):
            ready.setdefault(daemon, place)
    assert set(begun) == set(ready) == set(IMAGES)
    for before, after in pairwise(ORDER):
        for one, other in product(before, after):
            assert ready[one] < begun[other], (
                f"{other} began before {one} was ready: {begun}, {ready}"
            )


def _daemon(pod: dict[str, Any]) -> str:
    return str(pod["metadata"]["labels"]["app.kubernetes.io/name"])


def _image(pod: dict[str, Any]) -> str:
    return next(str(it["image"]) for it in pod["spec"]["containers"] if it["name"] == _daemon(pod))


def _ready(pod: dict[str, Any]) -> bool:
    return condition(pod, "Ready").get("status") == "True"
