"""The files of /etc/slurm: `sidecars.workloads.config`."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecars.contract import manifest
from sidecars.workloads.config import (
    ConfigSet,
    compose,
)
from sidecars.workloads.facts import MissingReferenceError
from sidecars.workloads.resources import Controller, NodeSet, ResourceError
from tests.support import builders
from tests.support.builders import controller, nodeset

DEFAULTS = """\
# Composed by slurm-operator for Controller slurm/slurm; changes here are lost.
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
ReturnToService=1
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
GresTypes=gpu
#
### JOB CONSTRAINTS ###
TaskPlugin=task/affinity,task/cgroup
JobAcctGatherType=jobacct_gather/cgroup
#
### ACCOUNTING ###
AccountingStorageType=accounting_storage/none
"""
CONSTRAINED = """\
CgroupPlugin=cgroup/v2
IgnoreSystemd=yes
ConstrainCores=yes
ConstrainDevices=yes
ConstrainRAMSpace=yes
ConstrainSwapSpace=yes
"""


def lines(of: Controller, nodesets: tuple[NodeSet, ...] = (), **facts: Any) -> list[str]:
    """slurm.conf as lines."""
    return compose(of, nodesets, builders.facts(**facts)).files["slurm.conf"].splitlines()


def section(found: list[str], title: str) -> list[str]:
    """The lines below a title, up to the next section."""
    below = found[found.index(f"### {title} ###") + 1 :]
    return below[: below.index("#")] if "#" in below else below


def test_a_controller_with_nothing_but_its_keys_has_the_default_configuration() -> None:
    assert compose(controller(), (), builders.facts()).files["slurm.conf"] == DEFAULTS


def test_every_standby_has_a_host_line() -> None:
    found = [
        line
        for line in lines(controller(ha={"enabled": True, "backups": 2}))
        if "SlurmctldHost" in line
    ]
    assert found == [
        f"SlurmctldHost=slurm-controller-{i}(slurm-controller-{i}.slurm-controller-internal.slurm)"
        for i in range(3)
    ]


def test_jwks_and_metrics_are_switched_on_where_asked_for() -> None:
    found = lines(controller(jwksKeyRef={"name": "jwks", "key": "k"}, metrics={"enabled": True}))
    assert "AuthAltParameters=jwt_key=/etc/slurm/jwt.key,jwks=/etc/slurm/jwks.json" in found
    assert "MetricsType=metrics/openmetrics" in found


STORAGE = {"host": "mariadb", "passwordKeyRef": {"name": "p", "key": "password"}}


def test_with_ssh_to_workers_each_job_has_the_step_of_its_sessions_beside_the_users_flags() -> None:
    without, with_ssh = builders.nodeset("cpu"), builders.nodeset("gpu", ssh={"enabled": True})
    assert not [line for line in lines(builders.controller(), (without,)) if "PrologFlags" in line]
    assert "PrologFlags=Contain" in lines(builders.controller(), (without, with_ssh))
    both = lines(builders.controller(extraConf="PrologFlags=X11"), (with_ssh,))
    assert [line for line in both if "PrologFlags" in line][-1] == "PrologFlags=Contain,x11"


def test_accounting_is_where_the_accounting_resource_runs() -> None:
    found = lines(
        controller(accountingRef={"name": "slurm"}),
        accounting=builders.accounting(storageConfig=STORAGE),
    )
    assert section(found, "ACCOUNTING") == [
        "AccountingStorageType=accounting_storage/slurmdbd",
        "AccountingStorageHost=slurm-accounting",
        "AccountingStoragePort=6819",
    ]


def test_external_accounting_is_where_it_points() -> None:
    external = builders.accounting(
        external=True, externalConfig={"host": "db.example.com", "port": 7777}
    )
    assert section(lines(controller(), accounting=external), "ACCOUNTING")[1:] == [
        "AccountingStorageHost=db.example.com",
        "AccountingStoragePort=7777",
    ]


def test_scripts_are_named_in_sorted_order() -> None:
    maps = {
        "p1": {"90-b.sh": ""},
        "p2": {"00-a.sh": ""},
        "c": {"x.sh": ""},
        "e": {"bye.sh": ""},
        "ce": {"y.sh": ""},
    }
    found = lines(
        controller(
            prologScriptRefs=[{"name": "p1"}, {"name": "p2"}],
            epilogScriptRefs=[{"name": "e"}],
            prologSlurmctldScriptRefs=[{"name": "c"}],
            epilogSlurmctldScriptRefs=[{"name": "ce"}],
        ),
        config_maps=maps,
    )
    assert section(found, "PROLOG & EPILOG") == [
        "# ConfigMap p2 of spec.prologScriptRefs",
        "Prolog=00-a.sh",
        "# ConfigMap p1 of spec.prologScriptRefs",
        "Prolog=90-b.sh",
        "# ConfigMap e of spec.epilogScriptRefs",
        "Epilog=bye.sh",
    ]
    assert section(found, "SLURMCTLD PROLOG & EPILOG") == [
        "# ConfigMap c of spec.prologSlurmctldScriptRefs",
        "PrologSlurmctld=/etc/slurm/x.sh",
        "# ConfigMap ce of spec.epilogSlurmctldScriptRefs",
        "EpilogSlurmctld=/etc/slurm/y.sh",
    ]


def test_scripts_that_are_not_there_are_waited_for_by_name() -> None:
    with pytest.raises(
        MissingReferenceError, match=r"spec\.prologScriptRefs: ConfigMap 'p1' doesn't exist"
    ):
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
        "# NodeSet slurm/a",
        "NodeSet=foo Feature=foo",
        "PartitionName=foo Nodes=foo MaxTime=UNLIMITED",
        "# NodeSet slurm/b",
        "NodeSet=b Feature=b",
    ]


def test_a_name_in_slurm_is_declared_once_and_its_second_owner_reported() -> None:
    twins = [
        nodeset(
            name,
            template={"spec": {"hostname": "gpu-"}},
            partition={"enabled": True, "config": "State=UP"},
        )
        for name in ("a", "b")
    ]
    found = compose(controller(), twins, builders.facts())
    assert section(found.files["slurm.conf"].splitlines(), "NODESET & PARTITION") == [
        "# NodeSet slurm/a",
        "NodeSet=gpu Feature=gpu",
        "PartitionName=gpu Nodes=gpu State=UP",
    ]
    [problem] = found.problems
    assert (problem.origin, "'gpu' is taken by NodeSet slurm/a" in problem.message) == (
        "NodeSet slurm/b",
        True,
    )


def test_the_users_lines_come_after_ours_and_are_kept_as_written() -> None:
    extra = "ProctrackType=proctrack/linuxproc\n\n# why\nSchedulerType=sched/builtin\n"
    found = compose(controller(extraConf=extra), (), builders.facts()).files["slurm.conf"]
    assert found == f"{DEFAULTS}#\n### EXTRA CONFIG ###\n# spec.extraConf\n{extra}"


def files(of: Controller, **config_maps: dict[str, str]) -> dict[str, str]:
    """All files by name."""
    return dict(compose(of, (), builders.facts(config_maps=config_maps)).files)


def test_jobs_are_confined_to_their_cores_memory_and_devices_by_default() -> None:
    assert files(controller())["cgroup.conf"] == CONSTRAINED


def test_one_field_turns_the_confinement_off() -> None:
    found = files(controller(constrainJobs=False))
    assert found["cgroup.conf"] == "CgroupPlugin=cgroup/v2\nIgnoreSystemd=yes\n"
    assert "JOB CONSTRAINTS" not in found["slurm.conf"]
    assert "task/cgroup" not in found["slurm.conf"]


def test_a_plugin_that_extra_conf_sets_is_set_once() -> None:
    found = lines(controller(extraConf="taskplugin=task/cgroup"))
    assert section(found, "JOB CONSTRAINTS") == ["JobAcctGatherType=jobacct_gather/cgroup"]
    assert [line for line in found if line.lower().startswith("taskplugin=")] == [
        "taskplugin=task/cgroup"
    ]
    both = lines(
        controller(extraConf="TaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/linux")
    )
    assert "### JOB CONSTRAINTS ###" not in both


def test_a_cgroup_conf_without_cgroups_gets_no_plugin_on_which_slurmd_would_end() -> None:
    refers = controller(configFileRefs=[{"name": "own"}])
    without = files(
        refers, own={"cgroup.conf": "# this host has cgroup v1\ncgroupplugin = disabled\n"}
    )
    assert "JOB CONSTRAINTS" not in without["slurm.conf"]
    own = files(refers, own={"cgroup.conf": "ConstrainCores=yes\n"})
    assert own["cgroup.conf"] == "ConstrainCores=yes\n"
    assert "TaskPlugin=task/affinity,task/cgroup\n" in own["slurm.conf"]


def test_power_saving_is_configured_with_the_first_nodeset_that_has_it() -> None:
    saving = {"enabled": True, "startSeconds": 300}
    nodesets = [
        nodeset("a", powerSaving={**saving, "startSeconds": 90}),
        nodeset("b", powerSaving=saving),
    ]
    composed = lines(controller(extraConf="ResumeProgram=/site/resume"), tuple(nodesets))
    found = [line for line in composed if line.startswith(("Suspend", "Resume"))]
    assert found == [
        "SuspendProgram=/bin/true",
        "SuspendTime=1000000000",
        "ResumeTimeout=300",
        "ResumeRate=0",
        "SuspendRate=0",
        "SuspendExcStates=EXTERNAL,DRAIN,FAIL,MAINTENANCE,PLANNED,RESERVED",
        "ResumeProgram=/site/resume",
    ]
    assert not [line for line in lines(controller(), (nodeset("a"),)) if line.startswith("Suspend")]


@pytest.mark.parametrize(
    ("site", "looks"),
    [
        ("", "power_save_interval=1"),
        ("SlurmctldParameters=power_save_min_interval=0", "power_save_interval=1"),
        ("SlurmctldParameters=Power_Save_Interval=5", "power_save_interval=5"),
    ],
)
def test_slurm_looks_each_second_for_nodes_to_power_up_unless_the_site_sets_an_interval(
    site: str, looks: str
) -> None:
    saved = (nodeset("a", powerSaving={"enabled": True}),)

    def options(*nodesets: NodeSet) -> list[str]:
        composed = lines(controller(extraConf=site), nodesets)
        found = [it for it in composed if it.startswith("SlurmctldParameters=")][-1]
        return [it for it in found.split("=", 1)[1].split(",") if "power_save_interval" in it]

    assert options(*saved) == [looks]
    assert options(nodeset("a")) == ([looks] if "Interval" in site else [])


def test_with_power_saving_jobs_wait_for_their_nodes_after_the_sites_scripts() -> None:
    saved = (nodeset("a", powerSaving={"enabled": True}),)
    site = {"site": {"first.sh": "#!/bin/sh\n"}}
    of = controller(prologSlurmctldScriptRefs=[{"name": "site"}])
    composed = compose(of, saved, builders.facts(config_maps=site))
    found = [
        it for it in composed.files["slurm.conf"].splitlines() if it.startswith("PrologSlurmctld=")
    ]
    assert found == [
        "PrologSlurmctld=/etc/slurm/first.sh",
        "PrologSlurmctld=/etc/slurm/slurm-await-nodes",
    ]
    assert composed.files["slurm-await-nodes"].startswith("#!/bin/sh\n# PrologSlurmctld")
    without = compose(of, (nodeset("a"),), builders.facts(config_maps=site))
    assert "slurm-await-nodes" not in without.files
    assert "slurm-await-nodes" not in without.files["slurm.conf"]


def test_lists_that_both_set_are_merged_at_the_end() -> None:
    found = lines(controller(extraConf="SlurmctldParameters=idle_on_node_suspend"))
    assert section(found, "EXTRA CONFIG") == [
        "# spec.extraConf",
        "SlurmctldParameters=idle_on_node_suspend",
    ]
    assert section(found, "MERGED CONFIG") == [
        "# lists of the operator and of spec.extraConf",
        "SlurmctldParameters=enable_configless,idle_on_node_suspend,reconfig_on_restart",
    ]
    assert found[-3] == "### MERGED CONFIG ###"


def test_daemons_use_ipv6_where_pods_do_beside_what_the_user_sets() -> None:
    key = "CommunicationParameters"
    plain = compose(controller(), (), builders.with_ipv6()).files["slurm.conf"]
    assert f"{key}=EnableIPv6\n" in plain
    own = controller(extraConf=f"{key}=block_null_hash,keepalive_time=60")
    merged = compose(own, (), builders.with_ipv6()).files["slurm.conf"].splitlines()
    assert merged[-1] == f"{key}=EnableIPv6,block_null_hash,keepalive_time=60"
    external = controller(external=True, externalConfig={"host": "fd00::1", "port": 6817})
    found = compose(external, (), builders.with_ipv6()).files["slurm.conf"]
    assert "SlurmctldHost=fd00::1\n" in found
    assert f"{key}=EnableIPv6\n" in found
    for of in (controller(), external):
        assert key not in compose(of, (), builders.facts()).files["slurm.conf"]


def test_a_merged_list_names_the_line_of_the_user() -> None:
    found = compose(
        controller(extraConf="KillWait=5\nSlurmctldParameters=idle_on_node_suspend"),
        (),
        builders.facts(),
    )
    last = len(found.files["slurm.conf"].splitlines())
    assert found.origin("slurm.conf", last) == "the operator and spec.extraConf line 2"


def test_an_external_controller_has_only_what_its_clients_need() -> None:
    external = controller(
        external=True,
        externalConfig={"host": "my-controller", "port": 6817},
        clusterName="outside",
        extraConf="SlurmctldTimeout=1",
    )
    assert lines(external, (nodeset(),)) == [
        "# Composed by slurm-operator for Controller slurm/slurm; changes here are lost.",
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
        (
            controller(external=True, externalConfig={"host": "a\nb", "port": 1}),
            "spec.externalConfig.host",
        ),
        (controller(external=True), "spec.externalConfig"),
    ],
)
def test_a_value_that_would_start_a_line_of_its_own_is_refused(
    broken: Controller, field: str
) -> None:
    with pytest.raises(ResourceError) as caught:
        lines(broken)
    assert caught.value.field == field


@pytest.mark.parametrize(
    "value", ["State=UP\nPartitionName=b", "State=UP\rX=1", "State=UP\u2028X=1", "State=UP \\"]
)
def test_a_partition_that_would_reach_into_other_lines_is_left_out_and_reported(value: str) -> None:
    broken = nodeset(partition={"enabled": True, "config": value})
    found = compose(controller(), [broken], builders.facts())
    assert "PartitionName" not in found.files["slurm.conf"]
    [problem] = found.problems
    assert problem.origin == "NodeSet slurm/slurm-worker-slinky spec.partition.config"


def test_a_nodeset_whose_name_is_a_hostlist_is_left_out_and_reported() -> None:
    broken = nodeset(template={"spec": {"hostname": "a[0-3]"}})
    found = compose(controller(), [broken], builders.facts())
    assert "NodeSet=" not in found.files["slurm.conf"]
    assert "'a[0-3]' can't be the name" in found.problems[0].message


def test_a_backslash_at_the_end_of_the_users_lines_swallows_none_of_ours() -> None:
    found = compose(
        controller(extraConf="SlurmctldParameters=a\nSlurmctldTimeout=30 \\\n\n"),
        (),
        builders.facts(),
    )
    assert "\nSlurmctldTimeout=30 \n#\n### MERGED CONFIG ###\n" in found.files["slurm.conf"]
    assert [problem.origin for problem in found.problems] == ["spec.extraConf line 2"]


def files_of(contents: dict[str, dict[str, str | bytes]]) -> ConfigSet:
    """What is composed of ConfigMaps with these contents, all of configFileRefs."""
    of = controller(configFileRefs=[{"name": name} for name in contents])
    return compose(of, (), builders.facts(config_maps=contents))


def test_files_of_the_user_are_taken_in_with_where_they_come_from() -> None:
    found = files_of({"own": {"gres.conf": "Name=gpu\n", "blob": b"\xff\0", "text": b"utf-8"}})
    assert found.files["gres.conf"] == "Name=gpu\n"
    assert found.files["text"] == "utf-8"
    assert found.binary_files == {"blob": b"\xff\0"}
    assert found.origin("gres.conf", 1) == "ConfigMap own key gres.conf"
    assert found.problems == ()


@pytest.mark.parametrize(
    "name",
    [
        "slurm.conf",
        "Slurm.conf",
        "SLURMDBD.CONF",
        "slurm.key",
        "jwt.key",
        "manifest.json",
        "../slurm.conf",
        "a/b",
        "..",
        ".",
        ".hidden.conf",
    ],
)
def test_files_that_no_config_map_may_bring_are_left_out_and_reported(name: str) -> None:
    found = files_of({"own": {name: "StateSaveLocation=/tmp"}})
    assert found.files == compose(controller(), (), builders.facts()).files
    assert [problem.origin for problem in found.problems] == [f"ConfigMap own key {name}"]


def test_a_hidden_file_is_reported_with_the_reason_and_the_remedy() -> None:
    [problem] = files_of({"own": {".hidden.conf": ""}}).problems
    want = (
        "'.hidden.conf' can't be a file of /etc/slurm, because the name begins with a dot: "
        "rename the key"
    )
    assert problem.message == want


@given(st.text(st.sampled_from([*".-_aZ7/ ä"]), min_size=1, max_size=6))
def test_the_pod_takes_each_file_that_the_operator_takes(name: str) -> None:
    found = files_of({"own": {name: "text"}})
    text = manifest.encode(manifest.Manifest(found.sha256, found.digests))
    assert (name in manifest.decode(text).files) == (not found.problems)


def test_two_config_maps_with_different_files_of_one_name_are_reported() -> None:
    assert files_of({"a": {"x": "1"}, "b": {"x": "1"}}).problems == ()
    [problem] = files_of({"a": {"x": "1"}, "b": {"x": "2"}}).problems
    assert (problem.file, problem.origin) == ("x", "ConfigMap b key x")
    assert "ConfigMap a key x brings another x" in problem.message


def test_the_origin_of_each_line_of_slurm_conf_is_known() -> None:
    of = controller(
        extraConf="# why\nTaskPlugin=task/none\nAuthInfo=ttl=30", prologScriptRefs=[{"name": "p"}]
    )
    workers = nodeset("a", partition={"enabled": True, "config": "State=UP"})
    found = compose(of, [workers], builders.facts(config_maps={"p": {"x.sh": ""}}))
    origins = {
        line: found.origin("slurm.conf", number)
        for number, line in enumerate(found.files["slurm.conf"].splitlines(), start=1)
        if line[0] != "#"
    }
    assert origins["ClusterName=slurm_slurm"] == "the operator"
    assert origins["Prolog=x.sh"] == "ConfigMap p of spec.prologScriptRefs"
    assert origins["NodeSet=a Feature=a"] == "NodeSet slurm/a"
    assert origins["PartitionName=a Nodes=a State=UP"] == "NodeSet slurm/a spec.partition.config"
    assert origins["TaskPlugin=task/none"] == "spec.extraConf line 2"
    assert origins["AuthInfo=ttl=30"] == "spec.extraConf line 3"
    assert origins["AuthInfo=ttl=30,use_client_ids"] == "the operator and spec.extraConf line 3"
    assert found.origin("nosuch") == ""


@given(st.permutations(["a", "b", "c"]))
def test_the_order_in_which_things_are_found_does_not_matter(order: list[str]) -> None:
    contents = {name: {f"{name}.conf": name} for name in order}
    of = controller(configFileRefs=[{"name": "b"}, {"name": "a"}, {"name": "c"}])
    nodesets = [nodeset(name) for name in order]
    found = compose(of, nodesets, builders.facts(config_maps=contents))
    assert found == compose(
        of, sorted(nodesets, key=lambda it: it.name), builders.facts(config_maps=contents)
    )
    assert list(found.files) == sorted(found.files)


def test_a_partition_that_is_to_go_is_closed_and_stays_as_long_as_jobs_may_name_it() -> None:
    enabled = {"enabled": True, "config": "State=UP MaxTime=60"}

    def of(
        meta: dict[str, Any] | None = None, partitions: tuple[str, ...] = (), **spec: Any
    ) -> list[str]:
        made = nodeset("a", meta, **spec)
        made = msgspec.structs.replace(
            made, status=msgspec.structs.replace(made.status, partitions=partitions)
        )
        return [
            line
            for line in lines(controller(), (made,))
            if line.startswith(("NodeSet=", "PartitionName="))
        ]

    closed = "PartitionName=a Nodes=a MaxTime=60 State=INACTIVE"
    leaving = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert of(leaving, partition=enabled) == ["NodeSet=a Feature=a", closed]
    assert of(partitions=("a",), partition=enabled | {"enabled": False}) == [
        "NodeSet=a Feature=a",
        closed,
    ]
    assert of(partition=enabled | {"enabled": False}) == ["NodeSet=a Feature=a"]
    renamed: dict[str, Any] = {"template": {"spec": {"hostname": "gpu-"}}, "partition": enabled}
    assert of(partitions=("a", "gpu"), **renamed) == [
        "NodeSet=gpu Feature=gpu",
        "PartitionName=gpu Nodes=gpu State=UP MaxTime=60",
        "NodeSet=a Feature=a",
        "PartitionName=a Nodes=a State=INACTIVE",
    ]
