"""A HorizontalPodAutoscaler as docs/autoscaling.md has it: a NodeSet follows the queue with the
exporter alone.

From one worker, the page's minimum, to none, and from there with the queue and back.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from tests.charts.examples import examples
from tests.support.real.following import (
    EXPORTER as RELEASE,
)
from tests.support.real.following import (
    MOST,
    REST,
    TARGET,
    Way,
    autoscaled,
    follow_to_two_and_back,
    has_no_number,
    until_none,
)
from tests.support.real.harness import NODESET, REPOSITORY, Slurm, condition, until

EXPORTER = ("slurm", RELEASE)


def recipe() -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of the exporter and the autoscaler, for the cluster's NodeSet instead of `cpu`."""
    page = REPOSITORY / "docs" / "autoscaling.md"
    documents = [
        json.loads(json.dumps(document).replace("cpu", "slinky"))
        for example in examples(page.name, page.read_text(encoding="utf-8"))
        for document in example.documents
    ]
    autoscaler = next(
        at for at, it in enumerate(documents) if it.get("kind") == "HorizontalPodAutoscaler"
    )
    return documents[autoscaler - 1][RELEASE], documents[autoscaler]


@pytest.fixture(scope="module", name="autoscaled")
def _autoscaled(slurm: Slurm) -> Iterator[Slurm]:
    """The cluster with one worker, the autoscaler's minimum."""
    slurm.until_idle(2)
    try:
        with autoscaled(slurm.kubernetes, *recipe()):
            slurm.until_idle(1)
            yield slurm
    finally:
        slurm.login("scancel", "--user=root")
        # The worker that is left has the ordinal of the job that ended last; other tests know
        # slinky-0 and slinky-1.
        slurm.scale(0)
        until("no worker to be left", lambda: not slurm.pods() and not slurm.nodes())
        slurm.scale(2)
        slurm.until_idle(2)


def test_a_nodeset_with_autoscaling_leaves_its_size_to_the_autoscaler_and_names_it(
    autoscaled: Slurm,
) -> None:
    kubernetes = autoscaled.kubernetes
    patch = ("patch", *TARGET, "--type=merge", "-p")
    kubernetes.kubectl(*patch, json.dumps({"spec": {"autoscaling": {"max": 3, "min": 2}}}))
    try:

        def reported() -> dict[str, Any]:
            found = condition(kubernetes.get(*TARGET), "Autoscaled")
            return found if found.get("reason") == "OtherOwner" else {}

        found = until("the other owner to be named", reported)
        assert found["status"] == "False"
        assert "HorizontalPodAutoscaler" in found["message"]
        assert kubernetes.get(*TARGET)["spec"]["replicas"] == 1
    finally:
        kubernetes.kubectl(*patch, json.dumps({"spec": {"autoscaling": None}}))


@pytest.fixture
def from_zero(autoscaled: Slurm) -> Way:
    """Without workers: the API server has the feature gate HPAScaleToZero, and the exporter has
    seen a worker.
    """
    kubernetes = autoscaled.kubernetes
    limits = json.dumps({"spec": {"minReplicas": 0, "maxReplicas": MOST}})
    kubernetes.kubectl("-n", "slurm", "patch", "hpa", NODESET, "--type=merge", "-p", limits)
    until_none(autoscaled)
    return Way(REST, lambda: has_no_number(kubernetes), forgetful=EXPORTER)


def test_the_documented_autoscaler_follows_the_queue_and_keeps_its_size_without_data(
    autoscaled: Slurm, from_zero: Way
) -> None:
    follow_to_two_and_back(autoscaled, from_zero)
