"""Claims of worker pods."""

import pytest

from sidecars.workloads import nodeset as render
from sidecars.workloads.resources import ResourceError
from tests.support.builders import nodeset, volume
from tests.unit.workloads.nodeset.making import CLAIM, pod


def test_a_pod_has_a_claim_of_its_own_from_each_template() -> None:
    of = nodeset(
        volumeClaimTemplates=[CLAIM],
        template={"spec": {"volumes": [{"name": "data", "emptyDir": {}}]}},
        ordinalPadding=2,
    )
    assert render.claims(of, 3) == [
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": "data-slurm-worker-slinky-03",
                "namespace": "slurm",
                "labels": {
                    "a": "b",
                    "app.kubernetes.io/name": "slurmd",
                    "app.kubernetes.io/instance": "slurm-worker-slinky",
                },
            },
            "spec": {"accessModes": ["ReadWriteOnce"]},
        }
    ]
    found = volume(pod(of, 3), "data")
    assert found == {
        "name": "data",
        "persistentVolumeClaim": {"claimName": "data-slurm-worker-slinky-03"},
    }


def test_a_claim_template_without_a_name_is_refused() -> None:
    with pytest.raises(ResourceError, match=r"^spec\.volumeClaimTemplates\[1\]\.metadata\.name: "):
        render.claims(nodeset(volumeClaimTemplates=[CLAIM, {"spec": {}}]), 0)
