"""Which volumes the local cluster's provisioner creates and removes."""

from pathlib import Path
from typing import Any

from tests.cluster.provisioner import PROVISIONER, to_create, to_delete, volume

ROOT = Path("/volumes")


def claim(**spec: Any) -> dict[str, Any]:
    annotations = {"volume.kubernetes.io/storage-provisioner": PROVISIONER}
    metadata = {"name": "state", "namespace": "slurm", "uid": "u1", "annotations": annotations}
    wanted = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": metadata, "spec": {**wanted, "storageClassName": "standard", **spec}}


def released(phase: str = "Released", **spec: Any) -> dict[str, Any]:
    made = volume(claim(), ROOT)
    return {**made, "spec": {**made["spec"], **spec}, "status": {"phase": phase}}


def test_a_waiting_claim_gets_a_volume_of_its_own_size_and_modes() -> None:
    (made,) = to_create([claim(accessModes=["ReadWriteMany"])], [], ROOT)
    assert made["spec"]["claimRef"]["uid"] == "u1"
    assert made["spec"]["accessModes"] == ["ReadWriteMany"]
    assert made["spec"]["capacity"] == {"storage": "1Gi"}
    assert made["spec"]["local"] == {"path": "/volumes/pvc-u1"}


def test_a_claim_that_has_its_volume_gets_no_second_one() -> None:
    assert to_create([claim()], [volume(claim(), ROOT)], ROOT) == []
    assert to_create([claim(volumeName="pvc-u1")], [], ROOT) == []


def test_a_claim_of_another_provisioner_is_left_alone() -> None:
    other = claim()
    other["metadata"]["annotations"] = {"volume.kubernetes.io/storage-provisioner": "someone/else"}
    assert to_create([other], [], ROOT) == []


def test_a_claim_that_is_being_deleted_gets_nothing() -> None:
    going = claim()
    going["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert to_create([going], [], ROOT) == []


def test_a_volume_goes_once_its_claim_is_gone() -> None:
    assert [each["metadata"]["name"] for each in to_delete([released()])] == ["pvc-u1"]


def test_a_bound_a_kept_or_a_foreign_volume_stays() -> None:
    foreign = released()
    foreign["metadata"]["annotations"] = {}
    assert (
        to_delete([released("Bound"), released(persistentVolumeReclaimPolicy="Retain"), foreign])
        == []
    )
