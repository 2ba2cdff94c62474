"""slurm.conf, line by line."""

from typing import Any

import pytest

from sidecars.workloads.config import slurm_conf
from sidecars.workloads.facts import MissingReferenceError, digest
from sidecars.workloads.resources import Controller, NodeSet, ResourceError
from tests.unit.workloads import builders
from tests.unit.workloads.builders import controller, nodeset

DEFAULTS = """\
#
### GENERAL ###
ClusterName=slurm_slurm
SlurmUser=slurm
SlurmctldHost=slurm-controller-0(slurm-controller-0.slurm-controller-internal.slurm)
SlurmctldPort=6817
SlurmctldAddr=slurm-controller.slurm
StateSaveLocation=/var/spool/slurmctld/slurm_slurm
SlurmdUser=root
SlurmdPort=6818
SlurmdSpoolDir=/var/spool/slurmd
MaxNodeCount=1024
#
### LOGGING ###
SlurmctldLogFile=/var/log/slurm/slurmctld.log
SlurmSchedLogFile=/var/log/slurm/slurmctld.log
SlurmdLogFile=/var/log/slurm/slurmd.log
#
### PLUGINS & PARAMETERS ###
AuthType=auth/slurm
CredType=cred/slurm
AuthAltTypes=auth/jwt
AuthAltParameters=jwt_key=/etc/slurm/jwt.key
AuthInfo=use_client_ids
SlurmctldParameters=enable_configless,reconfig_on_restart
#
### ACCOUNTING ###
AccountingStorageType=accounting_storage/none
"""


def lines(of: Controller, nodesets: tuple[NodeSet, ...] = (), **facts: Any) -> list[str]:
    """slurm.conf as lines."""
    return slurm_conf(of, nodesets, builders.facts(**facts)).splitlines()


def section(found: list[str], title: str) -> list[str]:
    """The lines below a title, up to the next section."""
    below = found[found.index(f"### {title} ###") + 1 :]
    return below[: below.index("#")] if "#" in below else below


def test_a_controller_with_nothing_but_its_keys_has_the_default_configuration() -> None:
    assert slurm_conf(controller(), (), builders.facts()) == DEFAULTS


def test_every_standby_has_a_host_line() -> None:
    found = [line for line in lines(controller(ha={"enabled": True, "backups": 2})) if "SlurmctldHost" in line]
    assert found == [
        f"SlurmctldHost=slurm-controller-{i}(slurm-controller-{i}.slurm-controller-internal.slurm)" for i in range(3)
    ]


def test_jwks_and_metrics_are_switched_on_where_asked_for() -> None:
    found = lines(controller(jwksKeyRef={"name": "jwks", "key": "k"}, metrics={"enabled": True}))
    assert "AuthAltParameters=jwt_key=/etc/slurm/jwt.key,jwks=/etc/slurm/jwks.json" in found
    assert "MetricsType=metrics/openmetrics" in found


STORAGE = {"host": "mariadb", "passwordKeyRef": {"name": "p", "key": "password"}}


def test_accounting_is_where_the_accounting_resource_runs() -> None:
    found = lines(controller(accountingRef={"name": "slurm"}), accounting=builders.accounting(storageConfig=STORAGE))
    assert section(found, "ACCOUNTING") == [
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=slurm-accounting",
        "AccountingStoragePort=6819",
    ]


def test_external_accounting_is_where_it_says() -> None:
    external = builders.accounting(external=True, externalConfig={"host": "db.example.com", "port": 7777})
    assert section(lines(controller(), accounting=external), "ACCOUNTING")[1:] == [
        "AccountingStorageHost=db.example.com",
        "AccountingStoragePort=7777",
    ]


def test_scripts_are_named_in_sorted_order() -> None:
    maps = {
        "p1": {"90-b.sh": digest("")}, "p2": {"00-a.sh": digest("")},
        "c": {"x.sh": digest("")}, "e": {"bye.sh": digest("")}, "ce": {"y.sh": digest("")},
    }  # fmt: skip
    found = lines(
        controller(
            prologScriptRefs=[{"name": "p1"}, {"name": "p2"}],
            epilogScriptRefs=[{"name": "e"}],
            prologSlurmctldScriptRefs=[{"name": "c"}],
            epilogSlurmctldScriptRefs=[{"name": "ce"}],
        ),
        config_maps=maps,
    )
    assert section(found, "PROLOG & EPILOG") == ["Prolog=00-a.sh", "Prolog=90-b.sh", "Epilog=bye.sh"]
    assert section(found, "SLURMCTLD PROLOG & EPILOG") == [
        "PrologSlurmctld=/etc/slurm/x.sh",
        "EpilogSlurmctld=/etc/slurm/y.sh",
    ]


def test_scripts_that_are_not_there_are_waited_for_by_name() -> None:
    with pytest.raises(MissingReferenceError, match=r"spec\.prologScriptRefs: ConfigMap 'p1' doesn't exist"):
        lines(controller(prologScriptRefs=[{"name": "p1"}]))


def test_nodesets_and_their_partitions_are_declared_in_the_order_of_their_names() -> None:
    plain = nodeset("b")
    with_partition = nodeset(
        "a",
        template={"spec": {"hostname": "foo-"}},
        partition={"enabled": True, "config": "MaxTime=UNLIMITED"},
        extraConf="features=bar",
    )
    assert section(lines(controller(), (plain, with_partition)), "NODESET & PARTITION") == [
        "NodeSet=foo Feature=foo",
        "PartitionName=foo Nodes=foo MaxTime=UNLIMITED",
        "NodeSet=b Feature=b",
    ]


def test_a_name_in_slurm_is_declared_once() -> None:
    twins = [
        nodeset(name, template={"spec": {"hostname": "gpu-"}}, partition={"enabled": True, "config": "State=UP"})
        for name in ("a", "b")
    ]
    assert section(lines(controller(), tuple(twins)), "NODESET & PARTITION") == [
        "NodeSet=gpu Feature=gpu",
        "PartitionName=gpu Nodes=gpu State=UP",
    ]


def test_the_users_lines_come_after_ours_and_are_kept_as_written() -> None:
    extra = "ProctrackType=proctrack/linuxproc\n\n# why\nTaskPlugin=task/none\n"
    found = slurm_conf(controller(extraConf=extra), (), builders.facts())
    assert found == f"{DEFAULTS}#\n### EXTRA CONFIG ###\n{extra}"


def test_lists_that_both_set_are_merged_at_the_end() -> None:
    found = lines(controller(extraConf="SlurmctldParameters=idle_on_node_suspend"))
    assert section(found, "EXTRA CONFIG") == ["SlurmctldParameters=idle_on_node_suspend"]
    assert section(found, "MERGED CONFIG") == [
        "SlurmctldParameters=enable_configless,idle_on_node_suspend,reconfig_on_restart"
    ]
    assert found[-2] == "### MERGED CONFIG ###"


def test_an_external_controller_has_only_what_its_clients_need() -> None:
    external = controller(
        external=True,
        externalConfig={"host": "my-controller", "port": 6817},
        clusterName="outside",
        extraConf="SlurmctldTimeout=1",
    )
    assert lines(external, (nodeset(),)) == [
        "#",
        "### GENERAL ###",
        "ClusterName=outside",
        "SlurmUser=slurm",
        "SlurmctldHost=my-controller",
        "SlurmctldPort=6817",
        "AuthType=auth/slurm",
        "CredType=cred/slurm",
        "AuthAltTypes=auth/jwt",
        "AccountingStorageType=accounting_storage/none",
    ]


@pytest.mark.parametrize(
    ("broken", "field"),
    [
        (controller(clusterName="a\nSlurmUser=root"), "spec.clusterName"),
        (controller(external=True, externalConfig={"host": "a\nb", "port": 1}), "spec.externalConfig.host"),
        (controller(external=True), "spec.externalConfig"),
    ],
)
def test_a_value_that_would_start_a_line_of_its_own_is_refused(broken: Controller, field: str) -> None:
    with pytest.raises(ResourceError) as caught:
        lines(broken)
    assert caught.value.field == field


def test_a_partition_that_would_start_a_line_of_its_own_is_refused() -> None:
    broken = nodeset(partition={"enabled": True, "config": "State=UP\nPartitionName=b"})
    with pytest.raises(ResourceError, match=r"^spec\.partition\.config: "):
        lines(controller(), (broken,))
