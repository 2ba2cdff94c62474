"""The images of a release: all that the charts pull with their default values, and with each of
their options.

docs/reference/images.txt lists them, one a line, for a site that copies them into a registry of its
own.
"""

import re
from pathlib import Path

from schemas import image_digests

_LITERAL = re.compile(r"^[ \t]*image: (?P<image>[\w.:-]+(?:/[\w.-]+)+:[\w.-]+)$", re.MULTILINE)
"""An image that a template names, and no value."""


def of_chart(chart: Path) -> dict[str, str]:
    """Return the images of one chart by their names, which are the last part of the repository.
    Raises LockError.
    """
    images = [str(image) for image in image_digests.chart_images(chart).values()]
    for template in sorted(chart.glob("templates/**/*")):
        if template.is_file():
            images += _LITERAL.findall(template.read_text(encoding="utf-8"))
    return {image.rpartition(":")[0].rpartition("/")[2]: image for image in dict.fromkeys(images)}


def text(root: Path) -> str:
    """Return the list of all charts. `root` contains the folder `charts`."""
    images = {
        image
        for path in root.glob("charts/*/Chart.yaml")
        for image in of_chart(path.parent).values()
    }
    return "".join(f"{image}\n" for image in sorted(images))
