"""Job logs in worker pods: the container, what it may read, and the prolog and epilog."""

from typing import Any

import pytest

from sidecars.workloads import assembly, config
from sidecars.workloads import nodeset as render
from sidecars.workloads.resources import Json, ResourceError
from tests.support.builders import controller, facts, nodeset

ON: dict[str, Any] = {"jobLogs": {"enabled": True}}
HOME = {"name": "home", "persistentVolumeClaim": {"claimName": "home"}}


def spec(**fields: Any) -> Json:
    found: Json = render.pod_template(nodeset(**fields), controller(), facts())["spec"]
    return found


def logs(**fields: Any) -> Json:
    return assembly.container(spec(**(ON | fields)), "logs")


def variables(container: Json) -> dict[str, Any]:
    return {item["name"]: item.get("value") for item in container["env"]}


def mounted(*mounts: Json, volumes: list[Json] | None = None, **fields: Any) -> Json:
    template = {"spec": {"volumes": volumes if volumes is not None else [HOME]}}
    return logs(slurmd={"volumeMounts": list(mounts)}, template=template, **fields)


def test_without_the_field_nothing_of_a_pod_changes() -> None:
    text = str(spec())
    assert "slurm-logs" not in text
    assert spec(jobLogs={"enabled": False}) == spec()


def test_the_container_starts_first_so_that_it_ends_last() -> None:
    found = spec(**ON)["initContainers"]
    assert [item["name"] for item in found] == ["logs", "logfile", "node", "register"]
    assert found[0]["restartPolicy"] == "Always"


def test_the_container_has_no_rights_and_no_credentials() -> None:
    found = logs()
    assert found["securityContext"] == assembly.container(spec(), "node")["securityContext"]
    # Not by subPath: the kubelet would create a folder that jobs can enter.
    assert found["volumeMounts"] == [{"name": "slurm-logs", "mountPath": "/run/slurm-node/logs"}]


def test_private_files_need_the_right_to_become_their_users_and_no_other() -> None:
    context = logs(jobLogs={"enabled": True, "privateFiles": True})["securityContext"]
    assert context["capabilities"] == {"add": ["SETGID", "SETUID"], "drop": ["ALL"]}
    assert (context["runAsUser"], context["runAsNonRoot"]) == (0, False)
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True


def test_jobs_cannot_enter_the_folder_that_announces_jobs() -> None:
    found = spec(**ON)
    [mount] = [
        it
        for it in assembly.container(found, "slurmd")["volumeMounts"]
        if it["name"] == "slurm-logs"
    ]
    assert mount == {"name": "slurm-logs", "mountPath": "/run/slurm-logs", "subPath": "slurmd"}
    register = assembly.container(found, "register")["volumeMounts"]
    assert {"name": "slurm-logs", "mountPath": "/run/slurm-node/logs"} in register


def test_volumes_of_slurmd_are_shared_read_only() -> None:
    found = mounted(
        {
            "name": "home",
            "mountPath": "/home",
            "subPath": "site",
            "mountPropagation": "Bidirectional",
        }
    )
    assert found["volumeMounts"][1:] == [
        {
            "name": "home",
            "mountPath": "/home",
            "subPath": "site",
            "mountPropagation": "HostToContainer",
            "readOnly": True,
        }
    ]
    assert variables(found)["LOGS_FOLDERS"] == "/home"


def test_volumes_from_claim_templates_are_shared_too() -> None:
    claim = {"metadata": {"name": "scratch"}, "spec": {}}
    found = mounted(
        {"name": "scratch", "mountPath": "/scratch"}, volumes=[], volumeClaimTemplates=[claim]
    )
    assert variables(found)["LOGS_FOLDERS"] == "/scratch"


@pytest.mark.parametrize(
    ("mount", "volume"),
    [
        ({"mountPath": "/home"}, {"secret": {"secretName": "s"}}),
        ({"mountPath": "/home"}, {"configMap": {"name": "c"}}),
        ({"mountPath": "/home"}, {"projected": {"sources": []}}),
        ({"mountPath": "/home", "readOnly": True}, {"emptyDir": {}}),
        ({"mountPath": "/home", "subPathExpr": "$(POD)"}, {"emptyDir": {}}),
        ({"mountPath": "/dev/hugepages"}, {"emptyDir": {"medium": "Memory"}}),
        ({"mountPath": "/usr"}, {"hostPath": {"path": "/usr"}}),
        (
            {"mountPath": "/var/cache/slurm-containers"},
            {"persistentVolumeClaim": {"claimName": "images"}},
        ),
        ({"mountPath": "/opt/apps"}, {"hostPath": {"path": "/opt/apps"}}),
    ],
)
def test_what_no_job_writes_its_output_to_is_not_shared(mount: Json, volume: Json) -> None:
    found = mounted(mount | {"name": "v"}, volumes=[volume | {"name": "v"}])
    assert variables(found)["LOGS_FOLDERS"] == ""
    assert len(found["volumeMounts"]) == 1


def test_a_list_that_is_none_is_named() -> None:
    with pytest.raises(ResourceError, match="must be a list of maps"):
        logs(slurmd={"volumeMounts": ["home"]})


def test_with_host_network_the_node_has_the_hosts_name() -> None:
    found = logs(template={"spec": {"hostNetwork": True}})
    [name] = [item for item in found["env"] if item["name"] == "SLURM_NODE_NAME"]
    assert name["valueFrom"]["fieldRef"]["fieldPath"] == "spec.nodeName"


def test_the_limits_reach_the_container() -> None:
    found = variables(
        logs(jobLogs={"enabled": True, "bytesPerSecond": 70000, "backlogBytes": 2000000})
    )
    assert found["LOGS_BYTES_PER_SECOND"] == "70000"
    assert found["LOGS_BACKLOG_BYTES"] == "2000000"
    assert found["LOGS_PRIVATE_FILES"] == "false"


def test_prolog_and_epilog_announce_jobs_before_the_sites_run() -> None:
    site = facts(config_maps={"site": {"10-site.sh": "#!/bin/sh\n"}})
    found = config.compose(controller(prologScriptRefs=[{"name": "site"}]), [nodeset(**ON)], site)
    text = found.files["slurm.conf"]
    assert text.index("Prolog=slurm-job-logs\n") < text.index("Prolog=10-site.sh\n")
    assert "Epilog=slurm-job-logs\n" in text
    assert found.files["slurm-job-logs"].startswith("#!/bin/sh\n")


def test_without_job_logs_the_configuration_has_no_prolog() -> None:
    found = config.compose(controller(), [nodeset()], facts())
    assert "slurm-job-logs" not in found.files
    assert "Prolog" not in found.files["slurm.conf"]


def test_a_file_of_the_site_with_the_name_of_the_prolog_is_refused() -> None:
    site = facts(config_maps={"site": {"slurm-job-logs": "#!/bin/sh\nexit 1\n"}})
    found = config.compose(controller(prologScriptRefs=[{"name": "site"}]), [nodeset(**ON)], site)
    [problem] = found.problems
    assert problem.origin == "ConfigMap site key slurm-job-logs"
    assert "rename one of the two" in problem.message
    assert "exit 1" not in found.files["slurm-job-logs"]
