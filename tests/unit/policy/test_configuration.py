"""What lint finds, and what it leaves alone."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from sidecars.policy.configuration import RESTART_KEYS, Finding, review
from sidecars.slurm import keys, versions
from sidecars.workloads.resources import Controller, NodeSet, read
from tests.support import builders
from tests.support.builders import nodeset
from tests.support.configurations import BadConfiguration, bad

CHARTS = Path(__file__).resolve().parents[3] / "charts"


def findings(
    extra_conf: str = "",
    *nodesets: NodeSet,
    version: str | None = "26.05.5",
    name: str = "slurm",
    config_maps: dict[str, dict[str, str | bytes]] | None = None,
    known_nodes: tuple[str, ...] = (),
    **spec: Any,
) -> tuple[Finding, ...]:
    """What is found in the configuration of a Controller with these lines."""
    maps = config_maps or {}
    references = [{"name": name} for name in maps]
    of = read(
        Controller,
        {
            "metadata": builders.metadata(name),
            "spec": builders.KEYS | {"extraConf": extra_conf, "configFileRefs": references} | spec,
        },
    )
    release = versions.parse(version) if version else None
    return review(of, nodesets, builders.facts(config_maps=maps), release, known_nodes)[1]


def errors(of: tuple[Finding, ...]) -> list[str]:
    """The errors as texts."""
    return [str(finding) for finding in of if finding.severity == "error"]


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
# A comment, and a line that goes on
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
            "gres.conf": "AutoDetect=off\nNodeName=cloud-[0-9] Name=gpu Type=a100 File=/dev/nvidia[0-1]\n",
            "blob": b"\xff",
        }
    }
    workers = nodeset("cpu", extraConf="Gres=shard:4 Weight=2", partition={"enabled": True, "config": "State=UP"})
    assert findings(GOOD, workers, config_maps=maps) == ()


def test_the_charts_own_configuration_is_left_alone() -> None:
    values = yaml.safe_load((CHARTS / "slurm" / "ci" / "local-values.yaml").read_text(encoding="utf-8"))
    extra = "\n".join(
        f"{key}={','.join(value) if isinstance(value, list) else value}"
        for key, value in values["controller"]["extraConfMap"].items()
    )
    partition = nodeset("slinky", partition={"enabled": True, "config": "State=UP MaxTime=UNLIMITED"})
    found = findings(
        f"{extra}\nPartitionName=all Nodes=ALL Default=YES State=UP MaxTime=UNLIMITED",
        partition,
        config_maps={"files": values["configFiles"]},
    )
    assert found == ()


def test_a_finding_says_where_the_line_comes_from() -> None:
    [found] = findings("TaskPlugin=task/none\nPartitionName=p Nodes=nosuch")
    assert re.fullmatch(
        r"slurm\.conf line \d+ \(spec\.extraConf line 2\): PartitionName=p names nosuch, .*", str(found)
    )
    [found] = findings(config_maps={"own": {"gres.conf": "#\nName=gpu Nome=1"}}, extra_conf="GresTypes=gpu")
    assert str(found).startswith("gres.conf line 2 (ConfigMap own key gres.conf): Nome is no key of gres.conf")


@pytest.mark.parametrize(
    ("version", "severity"), [("26.05", "error"), ("25.11.3", "error"), ("26.11", "warning"), (None, "warning")]
)
def test_an_unknown_key_of_an_unknown_version_is_a_warning(version: str | None, severity: str) -> None:
    [found] = findings("Nosuch=1", version=version)
    assert found.severity == severity


def test_a_key_that_is_set_twice_alike_is_a_warning() -> None:
    [found] = findings("SlurmdTimeout=3\nSlurmdTimeout=3")
    assert (found.severity, "SlurmdTimeout is set already" in found.message) == ("warning", True)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("SlurmctldLogFile=/tmp/x", "the log won't show"),
        ("AccountingStorageHost=db.example.com", "spec.accountingRef decides"),
        ("MaxNodeCount=10", "nodes beyond it are lost"),
        ("Include /opt/site/slurm.conf", "doesn't know files outside of /etc/slurm"),
        ("NodeSet=z Nodes=nosuch", "of which no NodeName line tells"),
    ],
)
def test_what_may_be_meant_is_a_warning(line: str, said: str) -> None:
    [found] = findings(line)
    assert (found.severity, said in found.message) == ("warning", True)


def test_what_the_operator_writes_itself_may_be_repeated() -> None:
    assert findings("AuthType=auth/slurm\nSlurmctldPort=6817\nMaxNodeCount=1024") == ()


def test_a_partition_may_name_nodes_that_are_registered() -> None:
    assert errors(findings("PartitionName=p Nodes=outside", known_nodes=("outside",))) == []
    assert errors(findings("PartitionName=p Nodes=outside")) != []


@pytest.mark.parametrize("workers", [nodeset("cpu"), nodeset("ds", scalingMode="DaemonSet")])
def test_a_partition_that_names_a_worker_is_warned_of(workers: NodeSet) -> None:
    [found] = findings("PartitionName=p Nodes=cpu-3", workers)
    assert (found.severity, f"name the NodeSet {workers.name} instead" in found.message) == ("warning", True)


def test_a_script_with_nul_bytes_is_warned_of() -> None:
    [found] = findings(config_maps={"own": {"prolog": b"\x7fELF\0\xff"}})
    assert (found.severity, found.file) == ("warning", "prolog")


def test_what_slurm_takes_only_on_a_restart_are_keys_of_slurm() -> None:
    assert set(RESTART_KEYS) <= set(keys.spelled("slurm.conf"))
