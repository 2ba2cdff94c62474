"""The lanes of the end-to-end tests: which files run one after the other, in this order, on one
local cluster.

An order is fixed, so that it can be repeated. `make times` shows how long a file takes. The lanes
should end at about the same time, and their longest files come first.

A small host has a core for each of the two lanes. More lanes take longer, all in all: each cluster
uses a fifth of a core when nothing happens, and where everything takes longer, workers, operators
and tests look and try more often.
"""

from collections.abc import Mapping

LAST = "test_z_leaving"
"""It removes what all other tests of its lane use."""

LANES: Mapping[int, tuple[str, ...]] = {
    1: (
        "test_power_saving",
        "test_accounting",
        "test_upgrades",
        "test_prometheus",
        "test_nodesets",
        "test_configuration",
        "test_workers",
        "test_horizontal_autoscaling",
        "test_without_operator",
        "test_jail",
        "test_bridge_chart",
        "test_hybrid",
        "test_operations",
        "test_bad_configurations",
        "test_explain",
        "test_containers",
        "test_hostile_jobs",
        "test_jobs",
    ),
    2: (
        # In these two, workers start all the time, which takes the whole host: so they are in one
        # lane.
        "test_states",
        "test_no_ghosts",
        "test_autoscaling",
        "test_preview",
        "test_takeover",
        "test_high_availability",
        "test_elsewhere",
        "test_guides",
        "test_users",
        "test_local_cluster",
        "test_ipv6",
        "test_job_logs",
        "test_scaling",
        "test_gpus",
        "test_network_policies",
        "test_faults",
        "test_chart_testing",
        "test_keys",
        "test_helm_test",
        "test_checks",
        "test_exporter",
        "test_login",
        "test_cgroup2",
        LAST,
    ),
}


def lane(file: str) -> int:
    """The lane of a file, given its name without the ending. One that is in no list is in the first
    lane.
    """
    return next((number for number, files in LANES.items() if file in files), min(LANES))


def position(file: str) -> tuple[int, int, str]:
    """Sort key of a file: by lane, then in the lane's order. One that is in no list comes before
    those of LANES.
    """
    number = lane(file)
    files = LANES[number]
    return number, files.index(file) if file in files else -1, file
