"""The values of `make up` and of the tests: the chart's default ones, but for what the hosts
need.
"""

from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[3] / "charts" / "slurm"


def read(name: str) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((CHART / name).read_text(encoding="utf-8"))
    return found


def test_the_local_cluster_has_defaults_workers_and_what_hosts_without_cgroup_v2_need() -> None:
    local = read("ci/local-values.yaml")
    partition = {"enabled": True, "configMap": {"State": "UP", "MaxTime": "UNLIMITED"}}
    assert local == read("examples/without-cgroup-v2.yaml") | {
        "loginsets": {"slinky": {}},
        "nodesets": {"slinky": {"replicas": 2, "partition": partition}},
        "partitions": {"all": {"enabled": True}},
    }
