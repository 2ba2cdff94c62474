"""Annotations that a container of the pod reads: `sidecars.contract.annotations`."""

import pytest

from sidecars.contract.annotations import TOPOLOGY, read

LINES = (
    'kubectl.kubernetes.io/default-container="slurmd"\ntopology.slinky.slurm.net/spec='
    '"topo-switch:s2,block:b2"\n'
)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        (LINES, "topo-switch:s2,block:b2"),
        ('topology.slinky.slurm.net/spec=""\n', ""),
        ('a="topology.slinky.slurm.net/spec"\n', None),
        ("", None),
        ('topology.slinky.slurm.net/spec="a\\x00b"\n', "a\\x00b"),
    ],
)
def test_the_stamp_is_read_from_among_the_annotations(text: str, found: str | None) -> None:
    assert read(text, TOPOLOGY) == found
