"""What keeps a bound pod from its start."""

from typing import Any

import msgspec
import pytest

from sidecars.bridge.core.manifests import Pod
from sidecars.bridge.core.starting import STARTED, Starting, starting_of

CREATING = {"waiting": {"reason": "ContainerCreating"}}
NO_IMAGE = {"waiting": {"reason": "ImagePullBackOff", "message": "not found"}}
RUNS = {"running": {"startedAt": "2026-01-01T00:00:00Z"}}
ENDED = {"terminated": {"exitCode": 0}}


def pod(*states: Any, init: tuple[Any, ...] = (), phase: str = "Pending", node: str = "k1") -> Pod:
    def statuses(prefix: str, its: tuple[Any, ...]) -> list[Any]:
        return [
            {"name": f"{prefix}{index}", **(it if "state" in it else {"state": it})}
            for index, it in enumerate(its)
        ]

    return msgspec.convert(
        {
            "metadata": {"name": "p", "namespace": "team", "uid": "u"},
            "spec": {"nodeName": node},
            "status": {
                "phase": phase,
                "containerStatuses": statuses("c", states),
                "initContainerStatuses": statuses("i", init),
            },
        },
        Pod,
    )


@pytest.mark.parametrize("found", [pod(), pod(CREATING), pod(CREATING, init=(CREATING,))])
def test_a_pod_none_of_whose_containers_has_run_is_starting(found: Pod) -> None:
    assert starting_of(found) == Starting()


@pytest.mark.parametrize(
    "reason",
    [
        "ErrImagePull",
        "ImagePullBackOff",
        "InvalidImageName",
        "ErrImageNeverPull",
        "CreateContainerConfigError",
        "CreateContainerError",
        "RunContainerError",
    ],
)
def test_a_pod_one_of_whose_containers_can_not_start_shows_why(reason: str) -> None:
    fails = {"waiting": {"reason": reason}}
    assert starting_of(pod(CREATING, fails)) == Starting(f"container c1: {reason}")


def test_the_image_of_an_init_container_and_that_of_the_next_container_count() -> None:
    assert starting_of(pod(CREATING, init=(NO_IMAGE,))) == Starting(
        "container i0: ImagePullBackOff"
    )
    assert starting_of(pod(NO_IMAGE, init=(ENDED,))) == Starting("container c0: ImagePullBackOff")


@pytest.mark.parametrize(
    "found",
    [
        pod(RUNS),
        pod(ENDED, NO_IMAGE),
        pod(NO_IMAGE, RUNS),
        pod(CREATING, phase="Running"),
        pod(CREATING, phase="Failed"),
        pod(CREATING, init=(RUNS,)),
        pod(CREATING, init=(ENDED, CREATING)),
        pod({"state": {"waiting": {"reason": "CrashLoopBackOff"}}, "lastState": ENDED}),
        # A container that has run may fail to run again.
        pod({"state": {"waiting": {"reason": "RunContainerError"}}, "lastState": ENDED}),
        pod(CREATING, node=""),
    ],
)
def test_a_pod_that_has_run_or_that_works_on_its_start_has_started(found: Pod) -> None:
    assert starting_of(found) is STARTED
