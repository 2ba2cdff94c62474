"""What is printed while Slurm is not Ready yet, and which releases count as up to date."""

from pathlib import Path
from typing import Any

import pytest

from tests.cluster import local
from tests.cluster.errors import ClusterError
from tests.cluster.install import (
    FIRST_JOB,
    LOCAL_VALUES,
    Release,
    chosen_values,
    pod_troubles,
    unready,
)


def resource(*conditions: dict[str, Any], generation: int = 1) -> dict[str, Any]:
    return {
        "kind": "NodeSet",
        "metadata": {"name": "n", "generation": generation},
        "status": {"conditions": conditions},
    }


def pod(**status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "p"}, "status": status}


def test_a_resource_without_conditions_was_not_looked_at() -> None:
    assert unready(resource()) == "the operator has not looked at it yet"
    assert unready({"metadata": {}}) == "the operator has not looked at it yet"


def test_a_ready_resource_has_nothing_to_report() -> None:
    assert unready(resource({"type": "Ready", "status": "True", "observedGeneration": 1})) is None


def test_an_unready_resource_reports_its_own_reason() -> None:
    condition = {"type": "Ready", "status": "False", "reason": "PodsNotReady", "message": "1 of 2"}
    assert unready(resource(condition)) == "PodsNotReady: 1 of 2"


def test_ready_of_an_older_generation_is_not_ready() -> None:
    stale = resource({"type": "Ready", "status": "True", "observedGeneration": 1}, generation=2)
    assert unready(stale) == "the operator has not seen the last change yet"


def test_a_pod_that_can_not_be_placed_reports_why() -> None:
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": "0/3 nodes",
    }
    assert pod_troubles(pod(conditions=[condition])) == ["pod p: Unschedulable: 0/3 nodes"]


def test_a_container_without_its_image_reports_it() -> None:
    waiting = {
        "name": "slurmd",
        "state": {"waiting": {"reason": "ErrImagePull", "message": "not found"}},
    }
    assert pod_troubles(pod(containerStatuses=[waiting])) == [
        "pod p, slurmd: ErrImagePull: not found"
    ]


def test_a_crashing_container_shows_its_exit_code() -> None:
    ended = {"terminated": {"exitCode": 1, "reason": "Error", "message": "fatal\n"}}
    crashing = {
        "name": "slurmctld",
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
        "lastState": ended,
    }
    assert "pod p, slurmctld: ended with 1 (Error): fatal" in pod_troubles(
        pod(containerStatuses=[crashing])
    )


def test_a_finished_init_container_is_no_trouble() -> None:
    done = {
        "name": "register",
        "ready": True,
        "state": {"terminated": {"exitCode": 0, "reason": "Completed"}},
    }
    running = {"name": "slurmd", "ready": True, "state": {"running": {}}}
    assert pod_troubles(pod(initContainerStatuses=[done], containerStatuses=[running])) == []


def test_the_digest_of_a_release_changes_with_values_and_images(tmp_path: Path) -> None:
    values = tmp_path / "values.yaml"
    values.write_text("a: 1")
    release = Release("slurm", "slurm", (values,))
    before = release.digest("images")
    assert release.digest("images") == before
    assert release.digest("other images") != before
    values.write_text("a: 2")
    assert release.digest("images") != before


def test_the_users_values_lie_over_those_of_the_local_cluster(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own = tmp_path / "own.yaml"
    own.write_text("{}")
    monkeypatch.setenv("VALUES", str(own))
    assert chosen_values(local=True) == (LOCAL_VALUES, own)
    assert chosen_values(local=False) == (own,)
    monkeypatch.delenv("VALUES")
    assert chosen_values(local=True) == (LOCAL_VALUES,)


def test_several_values_files_are_read_in_their_order_and_without_any_there_is_a_first_job(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    first, second = (tmp_path / name for name in ("first.yaml", "second.yaml"))
    for path in (first, second):
        path.write_text("{}")
    monkeypatch.setenv("VALUES", f"{first}:{second}")
    assert chosen_values(local=False) == (first, second)
    monkeypatch.setenv("VALUES", "")
    assert chosen_values(local=False) == (FIRST_JOB,)


def test_a_values_file_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VALUES", "/nowhere.yaml")
    with pytest.raises(ClusterError, match=r"VALUES=/nowhere\.yaml"):
        chosen_values(local=True)


def test_the_kubeconfig_of_a_local_cluster_is_known_as_such(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SLURM_CHARTS_CACHE", str(tmp_path))
    assert local.named_by(str(tmp_path / "clusters" / "slurm" / "state" / "kubeconfig")) == "slurm"
    assert local.named_by(str(tmp_path / "clusters" / "slurm" / "kubeconfig")) is None
    assert local.named_by("/root/.kube/config") is None
