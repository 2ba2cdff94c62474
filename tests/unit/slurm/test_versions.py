"""Slurm's releases and those of container images: `sidecars.slurm.versions`."""

import pytest

from sidecars.slurm import versions


@pytest.mark.parametrize(
    ("image", "want"),
    [
        ("ghcr.io/slinkyproject/slurmctld:25.11-ubuntu24.04", (25, 11)),
        ("slurmctld:26.05.5", (26, 5)),
        ("registry.example:5000/slurm/slurmctld:26.05@sha256:00", (26, 5)),
        ("registry.example.com:5000/slurm:26.05", (26, 5)),
        ("10.05.12.7:5000/slurm/slurmd:26.05", (26, 5)),
        ("10.05.12.7:5000/slurm/slurmd", None),
        ("registry.example:25.11/slurm", None),
        ("host-25.11:5000/slurmd:next", None),
        ("slurmctld:v25.11.1-rockylinux9", (25, 11)),
        ("registry.example:5000/slurm/slurmctld", None),
        ("slurmctld@sha256:25.11", None),
        ("slurmd:mine-26.05", None),
        ("slurmctld:latest", None),
        ("slurmctld:26.055", None),
        ("slurmctld:26.13", None),
        ("sha256:1234", None),
        ("", None),
    ],
)
def test_the_tag_of_an_image_contains_the_release(
    image: str, want: versions.Version | None
) -> None:
    assert versions.of_image(image) == want
    assert versions.parse(versions.text(want)) == want


@pytest.mark.parametrize(
    ("text", "want"),
    [("26.05.5", (26, 5)), ("25.11", (25, 11)), ("26.05-ubuntu24.04", (26, 5)), ("latest", None)],
)
def test_a_version_begins_with_its_release(text: str, want: versions.Version | None) -> None:
    assert versions.parse(text) == want


@pytest.mark.parametrize(
    ("reported", "want"),
    [
        ("25.11.7", (25, 11, 7)),
        ("26.05.0-0rc1", (26, 5, 0)),
        ("26.05.12", (26, 5, 12)),
        ("26.05", None),
        ("26.5.1", None),
        ("26.05.1234", None),
        ("next", None),
        ("", None),
    ],
)
def test_a_server_reports_its_release(reported: str, want: versions.Release | None) -> None:
    assert versions.exact(reported) == want


def test_a_release_is_too_old_only_if_it_is_known_to_be() -> None:
    needed = (26, 5, 3)
    assert versions.too_old((26, 5, 2), needed, "this") == (
        "this needs Slurm 26.05.3 or newer, and slurmrestd reports 26.05.2: update Slurm"
    )
    assert versions.too_old((25, 11, 7), needed, "this")
    for release in ((26, 5, 3), (26, 11, 0), (27, 5, 0), None):
        assert versions.too_old(release, needed, "this") == ""
