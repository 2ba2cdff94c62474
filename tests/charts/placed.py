"""Which images a chart renders outside `global.imageRepository`, with everything of the chart
enabled.
"""

import json
import re
from collections.abc import Collection
from typing import Any

from sidecars.contract.project import REGISTRY

PLACE = "registry.example:5000/team"
"""The value of `global.imageRepository`."""

SITE = frozenset({"jail", "initContainers", "extraObjects"})
"""Keys of values under which all images are the user's."""


def without_images(values: Any) -> Any:
    """Values that leave all images of this project to the defaults."""
    if isinstance(values, dict):
        return {
            key: value if key in SITE else without_images(value)
            for key, value in values.items()
            if key not in {"image", "images"}
        }
    return [without_images(value) for value in values] if isinstance(values, list) else values


def problems(objects: list[Any], defaults: Collection[str], others: Collection[str]) -> list[str]:
    """What is wrong in objects that were rendered with `global.imageRepository`: PLACE.

    `defaults` are all images of this project that the chart has, by their default names. `others`
    are those of others.
    """
    expected = {f"{PLACE}{image.removeprefix(REGISTRY)}" for image in defaults}
    names = "|".join(re.escape(image.rpartition(":")[0].rpartition("/")[2]) for image in defaults)
    # Anywhere: an environment variable or a file of a ConfigMap can name an image too.
    found = {
        match[0]
        for match in re.finditer(rf"[\w./:-]*/(?:{names})[:@][\w.:@-]+", json.dumps(objects))
    }
    found |= _images(objects) - set(others)
    return [
        *(
            f"the image {image} isn't below global.imageRepository"
            for image in sorted(found - expected)
        ),
        *(f"no object has the image {image}" for image in sorted(expected - found)),
    ]


def of_the_site(values: Any) -> set[str]:
    """The images in the parts of values in which all images are the user's."""
    if isinstance(values, dict):
        own = [_images(value) for key, value in values.items() if key in SITE]
        return set().union(*own, *map(of_the_site, values.values()))
    return set().union(*map(of_the_site, values)) if isinstance(values, list) else set()


def _images(value: Any) -> set[str]:
    if isinstance(value, dict):
        own = {str(item) for key, item in value.items() if key == "image"}
        return own.union(*map(_images, value.values()))
    return set().union(*map(_images, value)) if isinstance(value, list) else set()
