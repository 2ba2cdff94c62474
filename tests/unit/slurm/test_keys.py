"""The tables of Slurm's keys."""

import pytest

from sidecars.slurm import keys, versions


def test_the_newest_tested_release_is_the_newest_whose_keys_are_known() -> None:
    assert keys.KNOWN[-1] == versions.NEWEST


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
        ("number", "10", True),
        ("number", "0x1f", True),
        ("number", "Unlimited", True),
        ("number", "-1", False),
        ("number", "2G", False),
        ("boolean", "YES", True),
        ("boolean", "maybe", False),
        ("text", "anything", True),
    ],
)
def test_values_are_of_their_kind(kind: keys.Kind, value: str, fits: bool) -> None:
    assert (keys.unfit(kind, value) is None) is fits
