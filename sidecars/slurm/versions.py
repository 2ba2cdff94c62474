"""Slurm's releases, and which one a container image has. https://slurm.schedmd.com/upgrades.html#release_cycle"""

import re

Version = tuple[int, int]
"""A major release: (26, 5) is 26.05. Within one, daemons and stored state are compatible."""

Release = tuple[int, int, int]
"""One release: (26, 5, 3) is 26.05.3."""

POWER_SAVING: Release = (26, 5, 3)
"""The first release whose slurmctld does what NodeSets with power saving need."""

BRIDGE: Release = (26, 5, 3)
"""The first release with the external jobs that the Slurm Bridge needs."""

NEWEST: Version = (26, 5)
"""The newest release that this product is tested with (docs/support-matrix.md)."""

_EXACT = re.compile(r"(\d\d)\.(0[1-9]|1[0-2])\.(\d{1,3})(?![0-9])", re.ASCII)

_RELEASE = re.compile(r"v?(\d\d)\.(0[1-9]|1[0-2])(?![0-9])", re.ASCII)


def parse(text: str) -> Version | None:
    """Return the release that a version begins with, such as `26.05.2` or `26.05-ubuntu24.04`, or
    None without one.
    """
    found = _RELEASE.match(text)
    return (int(found[1]), int(found[2])) if found else None


def exact(text: str) -> Release | None:
    """Return the release that a server reports, such as `26.05.3` or `26.05.0-0rc1`, or None for
    any other text.
    """
    found = _EXACT.match(text)
    return (int(found[1]), int(found[2]), int(found[3])) if found else None


def too_old(release: Release | None, needed: Release, what: str) -> str:
    """Return why a server can't be used for `what`, with the remedy, or "" if it can. One whose
    release isn't known is not refused.
    """
    if release is None or release >= needed:
        return ""
    here, there = (f"{it[0]:02}.{it[1]:02}.{it[2]}" for it in (release, needed))
    return f"{what} needs Slurm {there} or newer, and slurmrestd reports {here}: update Slurm"


def of_image(image: str) -> Version | None:
    """Return the release that the image's tag begins with, or None without a tag, and for a tag
    such as `latest`.

    Of `registry.example:5000/slurm/slurmctld:26.05@sha256:…` neither the port nor the digest
    counts.
    """
    name = image.partition("@")[0].rpartition("/")[2]
    return parse(name.partition(":")[2])


def text(version: Version | None) -> str:
    """Write a release as Slurm does, such as 26.05. Return "" for None."""
    return f"{version[0]:02}.{version[1]:02}" if version is not None else ""
