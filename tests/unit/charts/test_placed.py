"""Which images count as outside `global.imageRepository`."""

from typing import Any

from sidecars.contract.project import REGISTRY
from tests.charts.placed import PLACE, of_the_site, problems, without_images

DEFAULTS = [f"{REGISTRY}/slurmd:26.05", f"{REGISTRY}/sidecars:0.1.0"]


def objects(slurmd: str, sidecars: str, other: str) -> list[Any]:
    """A pod with two images, and an operator that has one in its environment."""
    pod = {"containers": [{"image": slurmd}, {"image": other}]}
    return [{"spec": pod}, {"env": [{"name": "SIDECARS_IMAGE", "value": sidecars}]}]


def test_all_images_below_the_path_are_well_and_those_of_others_may_be_anywhere() -> None:
    given = objects(f"{PLACE}/slurmd:26.05", f"{PLACE}/sidecars:0.1.0", "registry.example/wait:1")
    assert problems(given, DEFAULTS, {"registry.example/wait:1"}) == []


def test_an_image_elsewhere_is_found_also_in_an_environment_variable() -> None:
    given = objects(
        f"{PLACE}/slurmd:26.05", f"{REGISTRY}/sidecars:0.1.0", "registry.example/wait:1"
    )
    assert problems(given, DEFAULTS, {"registry.example/wait:1"}) == [
        f"the image {REGISTRY}/sidecars:0.1.0 isn't below global.imageRepository",
        f"no object has the image {PLACE}/sidecars:0.1.0",
    ]


def test_an_image_that_nothing_explains_is_found() -> None:
    given = objects(f"{PLACE}/slurmd:26.05", f"{PLACE}/sidecars:0.1.0", "registry.example/new:1")
    assert problems(given, DEFAULTS, set()) == [
        "the image registry.example/new:1 isn't below global.imageRepository"
    ]


def test_values_without_images_keep_those_of_the_site() -> None:
    values = {
        "images": {"repository": "a"},
        "jail": {"enabled": True, "image": "registry.example/jail:1"},
        "nodesets": {
            "a": {
                "slurmd": {"image": "b", "args": ["-v"]},
                "initContainers": [{"image": "c/wait:1"}],
            }
        },
    }
    assert without_images(values) == {
        "jail": {"enabled": True, "image": "registry.example/jail:1"},
        "nodesets": {"a": {"slurmd": {"args": ["-v"]}, "initContainers": [{"image": "c/wait:1"}]}},
    }
    assert of_the_site(values) == {"registry.example/jail:1", "c/wait:1"}
