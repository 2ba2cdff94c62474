"""What `make up` adds to the values on a cluster of KUBECONFIG, and which images it must find there."""

from typing import Any

import pytest
import yaml

from tests.cluster import images
from tests.cluster.__main__ import disk_remedy, main
from tests.cluster.elsewhere import add_architecture, default_images
from tests.cluster.install import CHARTS


def selectors(values: Any) -> list[dict[str, str]]:
    """Each `nodeSelector` in values."""
    if not isinstance(values, dict):
        return []
    own = [value for key, value in values.items() if key == "nodeSelector" and value]
    return own + [found for value in values.values() for found in selectors(value)]


@pytest.mark.parametrize("chart", ["slurm", "slurm-operator"])
def test_among_nodes_of_several_architectures_each_pod_gets_that_of_the_images(chart: str) -> None:
    defaults = yaml.safe_load((CHARTS / chart / "values.yaml").read_text())
    values: dict[str, Any] = {}
    add_architecture(values, defaults, "arm64")
    assert selectors(values) == [{"kubernetes.io/arch": "arm64"}] * len(selectors(defaults))


def test_an_architecture_changes_no_value_that_is_set() -> None:
    values: dict[str, Any] = {"operator": {"image": {"tag": "1"}}}
    defaults = {"operator": {"image": {"tag": ""}, "nodeSelector": {"kubernetes.io/os": "linux"}}, "other": {"a": {}}}
    add_architecture(values, defaults, "arm64")
    assert values == {"operator": {"image": {"tag": "1"}, "nodeSelector": {"kubernetes.io/arch": "arm64"}}}


def test_the_default_images_are_found_in_all_objects_and_others_are_not_looked_at() -> None:
    objects: list[dict[str, Any]] = [
        {"spec": {"slurmctld": {"image": f"{images.REGISTRY}/slurmctld:26.05"}}},
        {"spec": {"containers": [{"image": f"{images.REGISTRY}/sidecars:0.1.0"}, {"image": "registry.example/a:1"}]}},
        {"spec": {"slurmctld": {"image": f"{images.REGISTRY}/slurmctld:26.05"}}},
    ]
    assert default_images(objects) == [f"{images.REGISTRY}/sidecars:0.1.0", f"{images.REGISTRY}/slurmctld:26.05"]


@pytest.mark.parametrize("message", ["tar: x: Cannot write: No space left on device", "write: Disk quota exceeded"])
def test_a_full_disk_has_a_remedy(message: str) -> None:
    assert "SLURM_CHARTS_CACHE" in disk_remedy(message)
    assert disk_remedy("connection refused") == ""


def test_a_registry_without_a_cluster_that_pulls_from_it_is_refused(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("REGISTRY", "registry.example/team")
    assert main(["up"]) == 1
    assert "set KUBECONFIG" in capsys.readouterr().err
