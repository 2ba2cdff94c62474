"""The version of this project, its repository, and the registry of its images and charts.

In the tree, the last two are names that nobody can own. `make release-fill` replaces them with
those of the repository that publishes a release.
"""

from collections.abc import Iterable
from typing import Final

VERSION: Final = "0.1.0"
"""The version of all parts: programs, charts and pod structure."""

REGISTRY: Final = "registry.invalid/slurm-charts"
"""Registry and path of the images in the charts' default values. The charts are below it too."""

HOME: Final = "https://github.invalid/slurm-charts/slurm-charts"
"""The repository."""


def published() -> bool:
    """Return whether this is a part of a release, whose images can be pulled."""
    return not is_placeholder(REGISTRY)


def is_placeholder(image: str) -> bool:
    """Return whether an image is in a registry of the tree, from which nothing can be pulled."""
    host, separator, _ = image.partition("/")
    return bool(separator) and host.partition(":")[0].endswith(".invalid")


def remedy(images: Iterable[str]) -> str:
    """Describe how to get images for the first of these that is in a registry of the tree. Return
    "" without such an image.
    """
    host = next((image.partition("/")[0] for image in images if is_placeholder(image)), "")
    return host and (
        f"{host} can't exist: push the images with `REGISTRY=registry.example.com/team make up`, "
        "or set `global.imageRepository` to a registry that has them, such as a release's"
    )
