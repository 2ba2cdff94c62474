"""What a preview reports of volumes."""

from typing import Any

import pytest

from postrender.expand.standalone import expand
from postrender.preview.report import preview
from postrender.preview.state import State
from postrender.preview.volumes import Volumes
from sidecars.workloads.resources import Manifest
from tests.unit.postrender.expand import streams

NOW = 1_800_000_000.0
CLASSES = {"grows": True, "fixed": False}
CLAIM = "statesave-slurm-controller-0"
RECREATED = "it is created again without its pods, which keep running"


def cluster(storage: str = "4Gi", **persistence: Any) -> list[Manifest]:
    """A Controller with a volume of this size."""
    spec = {"persistence": {"resources": {"requests": {"storage": storage}}, **persistence}}
    return [*streams.keys(), streams.controller(**spec)]


def claim(
    storage: str, storage_class: str | None = "grows", name: str = CLAIM, **status: Any
) -> Manifest:
    """As the API server has it."""
    spec: Manifest = {"resources": {"requests": {"storage": storage}}}
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": "slurm"},
        "spec": spec | ({"storageClassName": storage_class} if storage_class else {}),
        "status": {"phase": "Bound", "capacity": {"storage": storage}} | status,
    }


def state(*claims: Manifest, classes: dict[str, bool] | None = CLASSES) -> State:
    """A live cluster."""
    return State(NOW, live=True, claims=claims, storage_classes=classes)


def previewed(before: list[Manifest], after: list[Manifest], known: State) -> tuple[Volumes, ...]:
    return preview(before, after, streams.SITE, known, "slurm").volumes


def test_a_size_that_stays_is_not_shown() -> None:
    assert previewed(cluster(), cluster(), state(claim("4Gi"))) == ()
    assert previewed([claim("4Gi")], [claim("4096Mi")], state()) == ()


def test_a_claim_of_slurmctld_grows_and_its_pod_stays() -> None:
    [found] = previewed(cluster(), cluster("8Gi"), state(claim("4Gi")))
    assert found == Volumes(
        "StatefulSet",
        "slurm",
        "slurm-controller",
        RECREATED,
        (f"claim {CLAIM} grows from 4Gi to 8Gi",),
    )
    assert preview(cluster(), cluster("8Gi"), streams.SITE, state(claim("4Gi")), "slurm").pods == ()


@pytest.mark.parametrize(
    "known", [State(NOW), state(claim("4Gi"), classes=None)], ids=["offline", "no right"]
)
def test_where_the_storage_class_is_unknown_that_is_a_condition(known: State) -> None:
    [found] = previewed(cluster(), cluster("8Gi"), known)
    assert found.outcome == RECREATED
    assert found.details == (f"claim {CLAIM} grows from 4Gi to 8Gi, if its StorageClass allows it",)


def test_what_will_not_be_applied_is_named_as_by_the_operator() -> None:
    [refused] = previewed(cluster(), cluster("8Gi"), state(claim("4Gi", "fixed")))
    [smaller] = previewed(cluster(), cluster("2Gi"), state(claim("4Gi")))
    assert (refused.outcome, smaller.outcome) == ("it stays", "it stays")
    assert "4Gi → 8Gi is not applied" in refused.details[0]
    assert "StorageClass 'fixed' doesn't allow it" in refused.details[0]
    assert "4Gi → 2Gi is not applied: a volume can't shrink" in smaller.details[0]


def test_an_enlargement_that_the_storage_never_completed_is_taken_back() -> None:
    live = claim("100Ti", capacity={"storage": "4Gi"})
    [found] = previewed(cluster("100Ti"), cluster("8Gi"), state(live))
    assert found.details == (f"claim {CLAIM} is resized from 100Ti to 8Gi",)


@pytest.mark.parametrize(
    ("live", "asked", "outcome"),
    [
        (claim("1Gi"), "2Gi", "it grows from 1Gi to 2Gi"),
        (claim("1Gi", None), "2Gi", "it grows from 1Gi to 2Gi"),
        (
            claim("1Gi", "fixed"),
            "2Gi",
            "it can't grow from 1Gi to 2Gi, because StorageClass 'fixed' doesn't allow it",
        ),
        (claim("4Gi"), "2Gi", "a volume can't shrink from 4Gi to 2Gi"),
        (claim("4Gi", capacity={"storage": "1Gi"}), "2Gi", "it is resized from 4Gi to 2Gi"),
    ],
)
def test_a_claim_of_the_release_grows_or_ends_the_upgrade(
    live: Manifest, asked: str, outcome: str
) -> None:
    [found] = previewed([live], [claim(asked)], state())
    assert (found.kind, found.name) == ("PersistentVolumeClaim", CLAIM)
    assert found.outcome.endswith(outcome)
    assert ("with it the upgrade" in found.outcome) == ("can't" in outcome)


def test_a_claim_without_a_readable_size_is_left_out() -> None:
    assert previewed([claim("many")], [claim("8Gi")], state()) == ()


def test_without_an_operator_the_upgrade_would_fail_and_the_remedy_is_shown() -> None:
    def expanded(storage: str) -> list[Manifest]:
        found = expand(streams.cluster(*cluster(storage)), streams.SITE)
        return [it for items in found.values() for it in items]

    [found] = previewed(expanded("4Gi"), expanded("8Gi"), State(NOW))
    assert (found.kind, found.name) == ("StatefulSet", "slurm-controller")
    assert found.outcome.endswith("with it the upgrade: spec.volumeClaimTemplates can't be changed")
    [remedy] = found.details
    assert "kubectl -n slurm delete statefulset slurm-controller --cascade=orphan" in remedy
