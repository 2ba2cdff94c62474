"""slurmctld pods as the gate's policy takes them."""

from typing import Any

import msgspec
import pytest

from sidecars import objects
from sidecars.operator.controller.pods import NUDGE, carries_label, pod_view

RUNNING = {"name": "reconfigure", "state": {"running": {}}}


def pod(metadata: Any = None, **status: Any) -> objects.Pod:
    meta = {"name": "c-0", "uid": "u", "annotations": {NUDGE: "7"}} | (metadata or {})
    return msgspec.convert(
        {"metadata": meta, "status": {"podIP": "10.0.0.1"} | status}, objects.Pod
    )


@pytest.mark.parametrize(
    ("metadata", "status", "want"),
    [
        ({}, {"initContainerStatuses": [RUNNING]}, True),
        ({}, {"initContainerStatuses": [RUNNING], "podIP": ""}, False),
        ({}, {"initContainerStatuses": [{"name": "reconfigure", "state": {"waiting": {}}}]}, False),
        ({}, {}, False),
        (
            {"deletionTimestamp": "2026-01-01T00:00:00Z"},
            {"initContainerStatuses": [RUNNING]},
            False,
        ),
    ],
)
def test_a_pod_is_asked_only_when_its_reconfigure_runs_and_it_has_an_address(
    metadata: Any, status: Any, want: bool
) -> None:
    view = pod_view(pod(metadata, **status))
    assert (view.name, view.nudge, view.askable) == ("c-0", "7", want)


def test_a_restarted_container_is_another_life_of_the_pod() -> None:
    again = RUNNING | {"restartCount": 1}
    lives = {pod_view(pod(initContainerStatuses=[it])).life for it in (RUNNING, RUNNING, again)}
    assert len(lives) == 2


def test_only_the_value_true_labels_the_primary() -> None:
    label = "controller.slinky.slurm.net/active"
    assert [
        carries_label(pod({"labels": labels})) for labels in ({label: "true"}, {label: "false"}, {})
    ] == [
        True,
        False,
        False,
    ]
