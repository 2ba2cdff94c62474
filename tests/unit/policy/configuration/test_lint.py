"""What lint finds, and what it ignores: `sidecars.policy.configuration.lint`."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.support.builders import nodeset
from tests.support.configurations import BadConfiguration, bad
from tests.support.linting import errors, findings

CHARTS = Path(__file__).resolve().parents[4] / "charts"


@pytest.mark.parametrize("configuration", bad(), ids=lambda it: it.name)
def test_lint_names_the_culprit_of_each_bad_configuration(configuration: BadConfiguration) -> None:
    given = configuration.input
    found = errors(
        findings(
            given.get("extraConf", ""),
            *(nodeset(name, **spec) for name, spec in given.get("nodesets", {}).items()),
            version=given.get("version", "26.05"),
            name=given.get("name", "slurm"),
            config_maps=configuration.config_maps,
            clusterName=given.get("clusterName", ""),
        )
    )
    if configuration.found_by == "lint":
        assert [text for text in found if configuration.message in text], found
    else:
        assert found == [], "lint finds it: say so in its file"


def test_there_are_forty_bad_configurations_and_ten_of_them_only_slurmctld_finds() -> None:
    all_of_them = bad()
    assert len(all_of_them) >= 40
    assert {it.found_by for it in all_of_them} == {"lint", "slurmctld"}
    assert len([it for it in all_of_them if it.found_by == "slurmctld"]) >= 10


GOOD = """\
# A comment, and a line that continues
SchedulerParameters=bf_interval=5,\\
sched_interval=5
GresTypes=gpu,shard
SlurmctldParameters=idle_on_node_suspend
MaxNodeCount=4096
NodeName=cloud-[0-9] CPUs=4 Gres=gpu:a100:2 State=CLOUD
NodeSet=fast Feature=fast,cpu
PartitionName=DEFAULT State=UP
PartitionName=all Nodes=ALL Default=YES
PartitionName=mixed Nodes=cpu,fast,cloud-[0-4] MaxTime=UNLIMITED MaxNodes=UNLIMITED
PartitionName=none
Prolog=/usr/local/bin/prolog
Epilog=/etc/slurm/epilog.d/*
Include extra-%c.conf
"""


def test_a_good_configuration_is_left_alone() -> None:
    maps: dict[str, dict[str, str | bytes]] = {
        "files": {
            "extra-slurm_slurm.conf": "TaskPlugin=task/none\n",
            "gres.conf": "AutoDetect=off\nNodeName=cloud-[0-9] Name=gpu Type=a100 "
            "File=/dev/nvidia[0-1]\n",
            "blob": b"\xff",
        }
    }
    workers = nodeset(
        "cpu", extraConf="Gres=shard:4 Weight=2", partition={"enabled": True, "config": "State=UP"}
    )
    assert findings(GOOD, workers, config_maps=maps) == ()


def test_the_charts_own_configuration_is_left_alone() -> None:
    values = yaml.safe_load(
        (CHARTS / "slurm" / "ci" / "local-values.yaml").read_text(encoding="utf-8")
    )
    extra = "\n".join(
        f"{key}={','.join(value) if isinstance(value, list) else value}"
        for key, value in values["controller"]["extraConfMap"].items()
    )
    partition = nodeset(
        "slinky", partition={"enabled": True, "config": "State=UP MaxTime=UNLIMITED"}
    )
    found = findings(
        f"{extra}\nPartitionName=all Nodes=ALL Default=YES State=UP MaxTime=UNLIMITED",
        partition,
        config_maps={"files": values["configFiles"]},
    )
    assert found == ()


def test_a_script_with_nul_bytes_is_warned_of() -> None:
    [found] = findings(config_maps={"own": {"prolog": b"\x7fELF\0\xff"}})
    assert (found.severity, found.file) == ("warning", "prolog")


@pytest.mark.parametrize(
    ("field", "spec"),
    [
        ("extraConf", {"extraConf": "Gres=foo:2"}),
        (
            "powerSaving.node",
            {"powerSaving": {"enabled": True, "node": "CPUs=1 RealMemory=1 Gres=foo:2"}},
        ),
    ],
)
def test_gres_of_a_nodeset_that_no_gres_types_declare_are_found(
    field: str, spec: dict[str, Any]
) -> None:
    [found] = findings("GresTypes=gpu", nodeset("cpu", **spec))
    assert "Gres foo:2: foo isn't declared: add GresTypes=foo,gpu" in found.message
    assert found.origin.endswith(f"spec.{field}")
