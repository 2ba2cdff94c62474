"""The order of the files, so that two processes end at about the same time.

pytest-xdist gives the next file to the process that is about to run out of tests. Shorter files in between keep their
alphabetical order.
"""

KERNEL = "test_cgroup2"
"""Needs a kernel, which is built while other tests wait."""

FIRST = (
    "test_autoscaling",
    "test_power_saving",
    "test_no_ghosts",
    "test_horizontal_autoscaling",
    "test_states",
    "test_workers",
    "test_accounting",
    "test_upgrades",
    "test_preview",
    "test_high_availability",
    "test_takeover",
    "test_faults",
    "test_without_operator",
    KERNEL,
)
"""Files of two minutes and more, the longest ones first, but for KERNEL.

And test_no_ghosts and test_states are apart: in both, workers start all the time, which takes the whole host.
"""

LAST = "test_z_leaving"
"""It removes what all other tests of its process use."""


def position(file: str) -> tuple[int, int, str]:
    """Sort key of a file, given its name without the ending."""
    if file in FIRST:
        return 0, FIRST.index(file), file
    return 2 if file == LAST else 1, 0, file
