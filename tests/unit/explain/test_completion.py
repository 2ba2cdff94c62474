"""Names that `kubectl slurm` completes."""

from pathlib import Path

import pytest

from sidecars.explain.completion import names
from sidecars.explain.core import objects
from tests.unit.explain.fake_kubectl import FakeKubectl, forbidden

NODESETS = "/apis/slinky.slurm.net/v1beta1/namespaces/slurm/nodesets?limit=500"
PODS = "/api/v1/namespaces/slurm/pods?limit=500"
WORKERS = "/api/v1/namespaces/slurm/pods?labelSelector=app.kubernetes.io%2Fname%3Dslurmd&limit=500"


@pytest.fixture
def fake(tmp_path: Path) -> FakeKubectl:
    return FakeKubectl(tmp_path / "fake", other=forbidden("list", "secrets"))


def named(name: str, **labels: str) -> dict[str, object]:
    return {"metadata": {"name": name, "labels": labels}}


def test_names_are_those_of_the_subject_in_the_namespace_of_the_context(fake: FakeKubectl) -> None:
    fake.lists(NODESETS, "NodeSet", named("slurm-worker-cpu"))
    fake.lists(PODS, "Pod", named("slurm-controller-0"))
    fake.lists(WORKERS, "Pod", named("w-0", **{objects.POD_HOSTNAME: "cpu-0"}), named("w-1"))
    assert list(names(["explain", "nodeset"], fake.kubectl())) == ["slurm-worker-cpu"]
    assert list(names(["explain", "pod"], fake.kubectl())) == ["slurm-controller-0"]
    assert list(names(["explain", "node"], fake.kubectl())) == ["cpu-0"]


@pytest.mark.parametrize("before", [[], ["top"], ["explain", "job"], ["explain", "pod", "a"]])
def test_other_words_have_no_names_and_ask_nothing(fake: FakeKubectl, before: list[str]) -> None:
    assert list(names(before, fake.kubectl())) == []
    assert fake.asked() == []


def test_without_the_right_to_list_nothing_is_offered(fake: FakeKubectl) -> None:
    assert list(names(["explain", "nodeset"], fake.kubectl())) == []


def test_a_name_that_would_control_a_terminal_is_not_offered(fake: FakeKubectl) -> None:
    fake.lists(PODS, "Pod", named("a\x1b]0;title\x07"), named("b"))
    assert list(names(["explain", "pod"], fake.kubectl())) == ["b"]
