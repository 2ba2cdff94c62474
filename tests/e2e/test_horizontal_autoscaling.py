"""A HorizontalPodAutoscaler as docs/autoscaling.md has it: a NodeSet follows the queue with the exporter alone."""

import json
from collections.abc import Callable, Iterator
from itertools import pairwise
from typing import Any

import pytest

from tests.charts.examples import examples
from tests.support.real.harness import CHARTS, NODESET, REPOSITORY, Kubernetes, Slurm, condition, until

pytestmark = pytest.mark.timeout(900)

RELEASE = "slurm-exporter"
TARGET = ("-n", "slurm", "nodesets.slinky.slurm.net", NODESET)
SCRIPT = '#!/bin/sh\nuntil [ -e "/tmp/end-$SLURM_JOB_ID" ]; do sleep 1; done\n'
"""Ends when the test says so."""


def recipe() -> tuple[dict[str, Any], dict[str, Any]]:
    """The values of the exporter and the autoscaler, for the cluster's NodeSet instead of `cpu`."""
    page = REPOSITORY / "docs" / "autoscaling.md"
    documents = [
        json.loads(json.dumps(document).replace("cpu", "slinky"))
        for example in examples(page.name, page.read_text(encoding="utf-8"))
        for document in example.documents
    ]
    autoscaler = next(at for at, it in enumerate(documents) if it.get("kind") == "HorizontalPodAutoscaler")
    return documents[autoscaler - 1][RELEASE], documents[autoscaler]


@pytest.fixture(scope="module")
def autoscaled(slurm: Slurm) -> Iterator[Slurm]:
    """The cluster with one worker, the autoscaler's minimum."""
    kubernetes, (values, autoscaler) = slurm.kubernetes, recipe()
    autoscaler["spec"]["behavior"]["scaleDown"]["stabilizationWindowSeconds"] = 0
    quick = ("--set=exporter.cacheFrequency=1s", "--set=exporter.autoscaling.nodeSets.slinky.idleSeconds=5")
    install = ("install", RELEASE, str(CHARTS / RELEASE), "-n", "slurm", "--wait", "--timeout=3m", "-f", "-", *quick)
    slurm.until_idle(2)
    try:
        kubernetes.helm(*install, stdin=json.dumps(values))
        kubernetes.kubectl("apply", "-f", "-", stdin=json.dumps(autoscaler))
        slurm.until_idle(1, 240)
        yield slurm
    finally:
        kubernetes.kubectl("-n", "slurm", "delete", "hpa", NODESET, "--ignore-not-found")
        kubernetes.helm("uninstall", RELEASE, "-n", "slurm", "--ignore-not-found")
        slurm.login("scancel", "--user=root")
        # The worker that is left has the ordinal of the job that ended last; other tests know slinky-0 and slinky-1.
        slurm.scale(0)
        until("no worker to be left", lambda: not slurm.pods() and not slurm.nodes(), 240)
        slurm.scale(2)
        slurm.until_idle(2, 240)


def failures(kubernetes: Kubernetes) -> int:
    """How often the autoscaler got no number."""
    chosen = f"involvedObject.name={NODESET},reason=FailedGetExternalMetric"
    return sum(it.get("count") or 1 for it in kubernetes.items("-n", "slurm", "events", "--field-selector", chosen))


def end(slurm: Slurm, number: int, node: str) -> None:
    """Let a job end by itself."""
    slurm.worker(f"slurm-worker-{node}", "touch", f"/tmp/end-{number}")  # noqa: S108
    until(f"job {number} to complete", lambda: slurm.job(number)["JobState"] == "COMPLETED", 60)


def test_the_documented_autoscaler_follows_the_queue_and_holds_its_size_without_data(autoscaled: Slurm) -> None:
    slurm, kubernetes = autoscaled, autoscaled.kubernetes
    sizes: list[int] = []

    def until_seen(what: str, look: Callable[[], object]) -> None:
        def observed() -> bool:
            sizes.append(kubernetes.get(*TARGET)["spec"]["replicas"])
            return bool(look())

        until(what, observed, 240)

    jobs = [slurm.submit(SCRIPT, "-N1", "--exclusive") for _ in range(3)]
    until_seen("all jobs to run", lambda: all(slurm.job(it)["JobState"] == "RUNNING" for it in jobs))
    places = {slurm.job(it)["NodeList"]: it for it in jobs}
    assert set(places) == {"slinky-0", "slinky-1", "slinky-2"}
    assert sizes[-1] == 3

    scale = ("-n", "slurm", "patch", "restapis.slinky.slurm.net", "slurm", "--type=merge", "-p")
    kubernetes.kubectl(*scale, '{"spec":{"replicas":0}}')
    try:
        before = failures(kubernetes)
        until_seen("the autoscaler to have no number", lambda: failures(kubernetes) > before)
        exporter = ("-l", f"app.kubernetes.io/name={RELEASE}")
        kubernetes.kubectl("-n", "slurm", "delete", "pod", *exporter, "--force", "--grace-period=0")
        end(slurm, places["slinky-0"], "slinky-0")
        end(slurm, places["slinky-1"], "slinky-1")
        before, unknown = failures(kubernetes), len(sizes)
        until_seen("the autoscaler to try again", lambda: failures(kubernetes) >= before + 2)
        assert set(sizes[unknown:]) == {3}
    finally:
        kubernetes.kubectl(*scale, '{"spec":{"replicas":1}}')

    until_seen("the minimum to be wanted", lambda: sizes[-1] == 1)
    assert slurm.job(places["slinky-2"])["JobState"] == "RUNNING"
    end(slurm, places["slinky-2"], "slinky-2")
    until_seen("one worker to be left", lambda: len(slurm.pods()) == 1 and set(slurm.nodes().values()) == {"idle"})
    assert [slurm.job(it)["Restarts"] for it in jobs] == ["0", "0", "0"]
    rises = [after > one for one, after in pairwise(sizes) if after != one]
    assert rises == sorted(rises, reverse=True)


def test_a_nodeset_with_autoscaling_leaves_its_size_to_the_autoscaler_and_names_it(autoscaled: Slurm) -> None:
    kubernetes = autoscaled.kubernetes
    patch = ("patch", *TARGET, "--type=merge", "-p")
    kubernetes.kubectl(*patch, json.dumps({"spec": {"autoscaling": {"max": 3, "min": 2}}}))
    try:

        def reported() -> dict[str, Any]:
            found = condition(kubernetes.get(*TARGET), "Autoscaled")
            return found if found.get("reason") == "OtherOwner" else {}

        found = until("the other owner to be named", reported, 120)
        assert found["status"] == "False"
        assert "HorizontalPodAutoscaler" in found["message"]
        assert kubernetes.get(*TARGET)["spec"]["replicas"] == 1
    finally:
        kubernetes.kubectl(*patch, json.dumps({"spec": {"autoscaling": None}}))
