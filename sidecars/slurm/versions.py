"""Slurm's releases, and which one a container image has. https://slurm.schedmd.com/upgrades.html#release_cycle"""

import re

Version = tuple[int, int]
"""A major release: (26, 5) is 26.05. Within one, daemons and stored state are compatible."""

_RELEASE = re.compile(r"v?(\d\d)\.(0[1-9]|1[0-2])(?![0-9])", re.ASCII)


def parse(text: str) -> Version | None:
    """The release that a version begins with, such as `26.05.2` or `26.05-ubuntu24.04`; None without one."""
    found = _RELEASE.match(text)
    return (int(found[1]), int(found[2])) if found else None


def of_image(image: str) -> Version | None:
    """The release that the image's tag begins with; None without a tag, and for a tag such as `latest`.

    Of `registry.example:5000/slurm/slurmctld:26.05@sha256:…` neither the port nor the digest counts.
    """
    name = image.partition("@")[0].rpartition("/")[2]
    return parse(name.partition(":")[2])


def text(version: Version | None) -> str:
    """A release as Slurm writes it, such as 26.05; "" for None."""
    return f"{version[0]:02}.{version[1]:02}" if version is not None else ""
