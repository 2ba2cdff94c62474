"""What images that are built again contain in other versions than those of a release.

Both sides are folders of software bills of materials, NAME-ARCHITECTURE.spdx.json, as a release
page offers them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from tests.cluster.errors import ClusterError

SUFFIX = ".spdx.json"
ABSENT = "-"
"""Instead of a version: the image doesn't contain the package."""

Versions = Mapping[str, str]
"""The version of each package."""


class _Package(msgspec.Struct):
    SPDXID: str
    name: str
    versionInfo: str = ""  # noqa: N815, the name in SPDX


class _Document(msgspec.Struct):
    packages: list[_Package]


@dataclass(frozen=True, order=True)
class Change:
    """A package that has another version in some images."""

    package: str
    former: str
    """The version in the release, or `ABSENT`."""

    now: str
    """The version in the images that are built again, or `ABSENT`."""

    images: tuple[str, ...] = ()
    """NAME-ARCHITECTURE of the images, sorted."""


def read(folder: Path) -> dict[str, Versions]:
    """Return the packages of each image NAME-ARCHITECTURE in the folder. An error names a file that
    can't be read.
    """
    found: dict[str, Versions] = {}
    for path in sorted(folder.glob(f"*{SUFFIX}")):
        try:
            document = msgspec.json.decode(path.read_bytes(), type=_Document)
        except msgspec.MsgspecError as error:
            raise ClusterError(f"{path}: not a software bill of materials: {error}") from None
        # The first package of a document is the image itself.
        found[path.name.removesuffix(SUFFIX)] = {
            package.name: package.versionInfo
            for package in document.packages
            if package.SPDXID != "SPDXRef-image"
        }
    if not found:
        raise ClusterError(f"{folder}: contains no NAME-ARCHITECTURE{SUFFIX}")
    return found


def changes(former: Mapping[str, Versions], now: Mapping[str, Versions]) -> list[Change]:
    """Return the packages that differ in an image of both sides, sorted. An image that one side
    lacks isn't compared.
    """
    images: dict[tuple[str, str, str], list[str]] = {}
    for image in sorted(former.keys() & now.keys()):
        before, after = former[image], now[image]
        for package in before.keys() | after.keys():
            versions = before.get(package, ABSENT), after.get(package, ABSENT)
            if versions[0] != versions[1]:
                images.setdefault((package, *versions), []).append(image)
    return sorted(Change(*key, tuple(where)) for key, where in images.items())


def as_markdown(found: list[Change]) -> str:
    """Return a table of the changes. No change: an empty text."""
    if not found:
        return ""
    rows = [f"| {it.package} | {it.former} | {it.now} | {', '.join(it.images)} |" for it in found]
    return "\n".join(["| package | released | now | images |", "|---|---|---|---|", *rows, ""])
