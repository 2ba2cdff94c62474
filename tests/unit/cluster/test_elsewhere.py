"""What `make up` adds to the values on a cluster of KUBECONFIG, and which images it must find
there.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from sidecars.contract.project import REGISTRY
from tests.cluster.__main__ import disk_remedy, main
from tests.cluster.elsewhere import add_architecture, default_images, demand_one_registry
from tests.cluster.errors import ClusterError
from tests.cluster.install import CHARTS
from tests.cluster.registry import Registry


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
    defaults = {
        "operator": {"image": {"tag": ""}, "nodeSelector": {"kubernetes.io/os": "linux"}},
        "other": {"a": {}},
    }
    add_architecture(values, defaults, "arm64")
    assert values == {
        "operator": {"image": {"tag": "1"}, "nodeSelector": {"kubernetes.io/arch": "arm64"}}
    }


def test_the_default_images_are_found_in_all_objects_and_others_are_not_looked_at() -> None:
    objects: list[dict[str, Any]] = [
        {"spec": {"slurmctld": {"image": f"{REGISTRY}/slurmctld:26.05"}}},
        {
            "spec": {
                "containers": [
                    {"image": f"{REGISTRY}/sidecars:0.1.0"},
                    {"image": "registry.example/a:1"},
                ]
            }
        },
        {"spec": {"slurmctld": {"image": f"{REGISTRY}/slurmctld:26.05"}}},
    ]
    assert default_images(objects) == [f"{REGISTRY}/sidecars:0.1.0", f"{REGISTRY}/slurmctld:26.05"]


@pytest.mark.parametrize(
    "values",
    ["", "global: null", "global: {imageRepository: registry.example/team/}", "images: {tag: '1'}"],
)
def test_values_may_name_the_registry_of_the_images_or_none(tmp_path: Path, values: str) -> None:
    path = tmp_path / "values.yaml"
    path.write_text(values)
    demand_one_registry(Registry("registry.example", "team"), [path])


def test_values_that_name_another_registry_than_the_one_of_the_images_are_refused(
    tmp_path: Path,
) -> None:
    path = tmp_path / "values.yaml"
    path.write_text("global: {imageRepository: registry.example.com/team}")
    with pytest.raises(ClusterError) as error:
        demand_one_registry(Registry("registry.example", "team"), [path])
    assert "remove global.imageRepository from the file" in str(error.value)
    assert "values.yaml sets global.imageRepository to registry.example.com/team" in str(
        error.value
    )


@pytest.mark.parametrize(
    "message", ["tar: x: Cannot write: No space left on device", "write: Disk quota exceeded"]
)
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
