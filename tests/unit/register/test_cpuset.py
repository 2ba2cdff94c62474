"""The CPUs that the kubelet's static CPU manager has given to a worker."""

from decimal import Decimal

import pytest

from sidecars.register.cpuset import others, own_cores

CORES = ((0, 4), (1, 5), (2, 6), (3, 7))
"""Four cores of two threads, as Linux numbers their CPUs."""


@pytest.mark.parametrize(
    ("limit", "allowed", "own"),
    [
        ("4", {1, 5, 2, 6}, [1, 2]),
        ("8", set(range(8)), []),
        ("3", {1, 5, 2}, [1]),
        ("1", {6}, [2]),
        ("2", {1, 2}, [1, 2]),
        ("4", {1, 5, 2, 6, 3, 7}, []),
        ("0", {1, 5}, []),
        ("1.5", {1, 5}, []),
        ("2", {40, 41}, []),
        ("8", {1, 5, 3, 7}, [1, 3]),
        ("16", {1, 5, 3, 7}, [1, 3]),
        ("8", {0, 1, 5, 7}, [1]),
        ("1.5", {6}, [2]),
    ],
    ids=[
        "cores of its own",
        "all of the host",
        "a core and a half",
        "half a core",
        "two halves",
        "a shared set",
        "no limit",
        "a part of a CPU",
        "CPUs that are not online",
        "fewer than the limit, with a gap",
        "fewer than a limit beyond the host",
        "fewer than the limit, and halves of cores",
        "fewer than a part of a CPU more",
    ],
)
def test_cpus_are_the_containers_own_if_it_has_no_more_than_its_limit(
    limit: str, allowed: set[int], own: list[int]
) -> None:
    assert own_cores(Decimal(limit), allowed, CORES) == own


@pytest.mark.parametrize(
    ("own", "listed"), [([1, 2], "0-1,6-7"), ([0], "2-7"), ([0, 2], "2-3,6-7"), ([0, 1, 2, 3], "")]
)
def test_slurm_is_given_the_numbers_that_it_has_for_the_cpus_of_other_cores(
    own: list[int], listed: str
) -> None:
    assert others(own, 4, 2) == listed


def test_a_single_cpu_is_no_range() -> None:
    assert others([0, 2], 4, 1) == "1,3"
