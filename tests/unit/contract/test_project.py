"""The names of the tree, which nobody can own."""

import pytest

from sidecars.contract import project


@pytest.mark.parametrize(
    "image",
    [
        f"{project.REGISTRY}/slurmd:26.05",
        "registry.invalid/a",
        "registry.invalid:5000/a@sha256:00",
        "x.invalid/a",
    ],
)
def test_nothing_can_be_pulled_from_a_registry_of_the_tree(image: str) -> None:
    assert project.is_placeholder(image)


@pytest.mark.parametrize(
    "image",
    ["", "slurmd:26.05", "ghcr.io/acme/slurmd:1", "registry.example/a.invalid/b", "a.invalid"],
)
def test_images_elsewhere_may_exist(image: str) -> None:
    assert not project.is_placeholder(image)


def test_an_image_of_the_tree_has_both_ways_to_get_images_as_remedy_and_others_have_none() -> None:
    found = project.remedy([f"{project.REGISTRY}/slurmd:26.05", "registry.example/a:1"])
    assert found.startswith("registry.invalid can't exist")
    assert "REGISTRY=registry.example.com/team make up" in found
    assert "global.imageRepository" in found
    assert project.remedy(["registry.example/a:1"]) == project.remedy([]) == ""


def test_the_tree_is_no_release() -> None:
    assert not project.published()
