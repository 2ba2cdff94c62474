"""The tables of Slurm's keys."""

import pytest

from sidecars.slurm import keys


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("26.05.5", (26, 5)),
        ("ghcr.io/slinkyproject/slurmctld:25.11-ubuntu24.04", (25, 11)),
        ("registry.example.com:5000/slurm:26.05", (26, 5)),
        ("latest", None),
        ("sha256:1234", None),
    ],
)
def test_the_release_is_read_from_a_version_or_a_tag(text: str, expected: keys.Version | None) -> None:
    assert keys.version(text) == expected


def test_each_release_has_the_keys_that_it_has() -> None:
    old, new = keys.of("slurm.conf", (25, 11)), keys.of("slurm.conf", (26, 5))
    assert old is not None
    assert new is not None
    assert new.keys() - old.keys() >= {"healthchecktimeout"}
    assert keys.of("slurm.conf", (27, 5)) == new
    assert new["partitionname"] == "line"
    assert keys.of("topology.yaml", (26, 5)) is None


@pytest.mark.parametrize(
    ("kind", "value", "fits"),
    [
        ("number", "10", True), ("number", "0x1f", True), ("number", "Unlimited", True), ("number", "-1", False),
        ("number", "2G", False), ("boolean", "YES", True), ("boolean", "maybe", False), ("text", "anything", True),
    ],
)  # fmt: skip
def test_values_are_of_their_kind(kind: keys.Kind, value: str, fits: bool) -> None:
    assert (keys.unfit(kind, value) is None) is fits
