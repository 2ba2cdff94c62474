"""What is read for a question, and what is named because it could not be read."""

import json
import urllib.parse
from pathlib import Path
from typing import Any

import pytest

from sidecars.contract import bridge
from sidecars.contract.bridge import Comment
from sidecars.explain.core.bridge_pod import BRIDGES
from sidecars.explain.core.records import Seen
from sidecars.explain.kubectl import KubectlError, NoKubectl
from sidecars.explain.reading import GROUP, Question, Reader, find_namespace
from sidecars.slurm.external import GUARD_OUTPUT
from tests.unit.explain.core.building import daemon, kube_node, nodeset, pod, unscheduled
from tests.unit.explain.fake_kubectl import NOT_FOUND, FakeKubectl, forbidden
from tests.unit.explain.printed import output, pending_job

PODS = "/api/v1/namespaces/slurm/pods"
DAEMONS = f"{PODS}?labelSelector=app.kubernetes.io/name!%3Dslurmd"
NOT_RUNNING = (
    f"{PODS}?labelSelector=app.kubernetes.io/name%3Dslurmd&fieldSelector=status.phase!%3DRunning"
)
WORKERS = f"{PODS}?labelSelector=app.kubernetes.io/name%3Dslurmd&limit=500"
NODESETS = f"{GROUP}/namespaces/slurm/nodesets"
JOB = Question("job", "12")


def running(app: str, name: str, container: str) -> dict[str, Any]:
    return daemon(app, name, containerStatuses=[{"name": container, "state": {"running": {}}}])


@pytest.fixture
def fake(tmp_path: Path) -> FakeKubectl:
    found = FakeKubectl(tmp_path / "fake")
    found.lists(DAEMONS, "Pod", running("slurmctld", "slurm-controller-0", "slurmctld"))
    found.lists(WORKERS, "Pod", pod("cpu-0"))
    found.lists(NODESETS, "NodeSet", nodeset())
    found.executed["slurm-controller-0"] = (0, output(), "")
    return found


def read(fake: FakeKubectl, question: Question = JOB) -> Seen:
    return Reader(fake.kubectl(), "slurm", 1000.0).read(question)


def test_both_sides_are_read(fake: FakeKubectl) -> None:
    seen = read(fake)
    assert seen.missing == ()
    assert seen.slurm.jobs
    assert seen.kube.nodesets is not None
    assert [it["kind"] for it in seen.kube.nodesets] == ["NodeSet"]
    assert {it["metadata"]["name"] for it in seen.kube.pods or ()} == {
        "slurm-controller-0",
        "slurm-worker-cpu-0",
    }
    assert seen.exec_in == "kubectl -n slurm exec slurm-controller-0 -c slurmctld --"


def test_items_get_the_kind_that_the_api_server_omits_in_a_list(fake: FakeKubectl) -> None:
    listed = nodeset()
    del listed["kind"]
    fake.lists(NODESETS, "NodeSet", listed)
    fake.lists(WORKERS, "Pod", {key: value for key, value in pod("cpu-0").items() if key != "kind"})
    found = read(fake).kube
    assert [it["kind"] for it in found.nodesets or ()] == ["NodeSet"]
    assert [it["kind"] for it in found.pods or ()] == ["Pod", "Pod"]


def test_nothing_but_reads_and_one_command_in_a_pod_is_asked_for(fake: FakeKubectl) -> None:
    read(fake)
    commands = [it for it in fake.asked() if it[0] != "get"]
    assert [it[:7] for it in commands] == [
        ["-n", "slurm", "exec", "slurm-controller-0", "-c", "slurmctld", "--"]
    ]


def test_a_login_pod_runs_the_commands_where_no_slurmctld_pod_runs(fake: FakeKubectl) -> None:
    fake.lists(DAEMONS, "Pod", running("login", "login-0", "login"), daemon())
    fake.executed = {"login-0": (0, output(), "")}
    assert read(fake).exec_in == "kubectl -n slurm exec login-0 -c login --"


def test_without_the_right_to_run_commands_the_rest_is_read(fake: FakeKubectl) -> None:
    fake.executed["slurm-controller-0"] = forbidden("create", "pods/exec")
    seen = read(fake)
    assert seen.slurm.jobs is None
    assert seen.kube.nodesets
    [missing] = seen.missing
    assert "the right to create pods/exec" in missing.why
    assert "--verb=create --resource=pods/exec" in missing.remedy


def test_each_list_without_a_right_is_named(fake: FakeKubectl) -> None:
    fake.paths[NODESETS] = forbidden("list", "nodesets", "slinky.slurm.net")
    fake.paths["/api/v1/namespaces/slurm/events?limit=2000"] = forbidden("list", "events")
    seen = read(fake)
    assert seen.kube.nodesets is None
    assert seen.kube.events is None
    assert {it.part for it in seen.missing} == {"NodeSets", "Events"}
    assert seen.slurm.jobs


def test_with_no_right_at_all_everything_is_named_and_nothing_claimed(fake: FakeKubectl) -> None:
    fake.paths, fake.other = {}, forbidden("list", "things")
    seen = read(fake)
    assert seen.kube.pods is None
    assert seen.slurm.jobs is None
    assert {it.part for it in seen.missing} >= {
        "NodeSets",
        "Controllers",
        "workers",
        "Events",
        "quotas",
    }


def test_crds_that_are_not_installed_are_named(fake: FakeKubectl) -> None:
    fake.paths[NODESETS] = NOT_FOUND
    [missing] = read(fake).missing
    assert missing.part == "NodeSets"
    assert "slurm-operator-crds" in missing.remedy


def test_an_api_server_that_is_gone_is_an_error(fake: FakeKubectl) -> None:
    fake.paths, fake.other = {}, (1, "", "Unable to connect to the server: dial tcp: i/o timeout")
    with pytest.raises(NoKubectl):
        read(fake)


def test_of_more_workers_than_one_page_those_that_do_not_run_are_read_too_and_each_once(
    fake: FakeKubectl,
) -> None:
    page = {
        "kind": "PodList",
        "metadata": {"continue": "more"},
        "items": [pod("cpu-0"), unscheduled("cpu-1")],
    }
    fake.paths[WORKERS] = (0, json.dumps(page), "")
    fake.lists(NOT_RUNNING, "Pod", unscheduled("cpu-1"), unscheduled("cpu-900"))
    names = {it["metadata"]["name"] for it in read(fake).kube.pods or ()}
    assert names == {
        "slurm-controller-0",
        "slurm-worker-cpu-0",
        "slurm-worker-cpu-1",
        "slurm-worker-cpu-900",
    }


def test_of_a_cluster_that_was_listed_whole_nothing_more_is_read(fake: FakeKubectl) -> None:
    read(fake)
    assert ["get", "--raw", NOT_RUNNING] not in fake.asked()


@pytest.mark.parametrize("subject", ["pod", "config"])
def test_a_question_about_kubernetes_alone_runs_no_command_in_a_pod(
    fake: FakeKubectl, subject: str
) -> None:
    seen = read(fake, Question(subject, "a"))
    assert not [it for it in fake.asked() if "exec" in it]
    assert seen.missing == ()


def test_the_kubernetes_nodes_of_pods_that_are_not_ready_are_read_one_by_one(
    fake: FakeKubectl,
) -> None:
    waits = pod("cpu-1", conditions=[])
    fake.lists(WORKERS, "Pod", pod("cpu-0"), waits)
    fake.paths["/api/v1/nodes/kube-cpu-1"] = NOT_FOUND
    assert read(fake).kube.absent_kube_nodes == {"kube-cpu-1"}
    assert ["get", "--raw", "/api/v1/nodes/kube-cpu-0"] not in fake.asked()


def test_the_pod_that_was_asked_for_is_read_by_its_name(fake: FakeKubectl) -> None:
    asked = pod("cpu-900")
    fake.paths[f"{PODS}/slurm-worker-cpu-900"] = (0, json.dumps(asked), "")
    seen = read(fake, Question("pod", "slurm-worker-cpu-900"))
    assert asked in (seen.kube.pods or ())


def bridged(
    name: str = "train-0", why: str = "Waiting", message: str = "Slurm job 12 waits: Resources"
) -> Any:
    conditions = [{"type": bridge.CONDITION, "status": "True", "reason": why, "message": message}]
    return {
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "physics",
            "uid": name,
            "labels": {bridge.JOB_LABEL: "12"},
        },
        "spec": {"schedulingGates": [{"name": bridge.GATE}]},
        "status": {"phase": "Pending", "conditions": conditions},
    }


def tenant(fake: FakeKubectl, asked: Any, *clusters: str) -> Seen:
    """What is read for the pod of a tenant."""
    others = ({"metadata": {"name": "x", "namespace": it}} for it in clusters)
    fake.lists(f"{GROUP}/controllers", "Controller", *others)
    fake.paths[f"/api/v1/namespaces/physics/pods/{asked['metadata']['name']}"] = (
        0,
        json.dumps(asked),
        "",
    )
    return Reader(fake.kubectl(), "physics", 1000.0).read(
        Question("pod", asked["metadata"]["name"])
    )


def test_the_job_of_a_pod_of_the_bridge_is_read_in_the_namespace_of_the_only_slurm_cluster(
    fake: FakeKubectl,
) -> None:
    seen = tenant(fake, bridged(), "slurm")
    [command] = [it for it in fake.asked() if "exec" in it]
    assert command[:4] == ["-n", "slurm", "exec", "slurm-controller-0"]
    assert command[-1] == "12"
    assert seen.slurm.jobs
    assert (seen.namespace, seen.slurm_namespace, seen.missing) == ("physics", "slurm", ())


def test_of_several_slurm_clusters_none_is_asked_for_the_job_of_a_pod(fake: FakeKubectl) -> None:
    seen = tenant(fake, bridged(), "a", "b")
    assert not [it for it in fake.asked() if "exec" in it]
    [missing] = seen.missing
    assert "2 Slurm clusters exist: a, b" in missing.why
    assert missing.remedy.endswith("kubectl slurm explain job 12 -n NAMESPACE")


def test_of_several_slurm_clusters_that_of_the_only_bridge_is_asked(fake: FakeKubectl) -> None:
    container = {"args": ["bridge", "--slurmrestd-url=http://slurm-restapi.slurm:6820"]}
    deployment = {"spec": {"template": {"spec": {"containers": [container]}}}}
    query = urllib.parse.urlencode({"labelSelector": BRIDGES})
    fake.lists(f"/apis/apps/v1/deployments?{query}", "Deployment", deployment)
    seen = tenant(fake, bridged(), "other", "slurm")
    assert seen.slurm_namespace == "slurm"
    assert seen.slurm.jobs
    assert seen.missing == ()


def test_a_tenant_without_rights_elsewhere_gets_what_its_namespace_shows(fake: FakeKubectl) -> None:
    tenants_own = f"{GROUP}/namespaces/physics/nodesets"
    fake.paths[tenants_own] = forbidden("list", "nodesets", "slinky.slurm.net")
    asked = bridged()
    fake.paths["/api/v1/namespaces/physics/pods/train-0"] = (0, json.dumps(asked), "")
    fake.paths[f"{GROUP}/controllers"] = forbidden("list", "controllers", "slinky.slurm.net")
    seen = Reader(fake.kubectl(), "physics", 1000.0).read(Question("pod", "train-0"))
    assert [it.part for it in seen.missing] == ["Slurm clusters of all namespaces"]
    assert asked in (seen.kube.pods or ())


def test_the_pod_that_a_pod_of_the_bridge_waits_for_is_read(fake: FakeKubectl) -> None:
    message = "Slurm job 12 has its nodes, but pod other/old-0 of an ended job is still on node k1"
    old = bridged("old-0")
    fake.paths["/api/v1/namespaces/other/pods/old-0"] = (0, json.dumps(old), "")
    asked = bridged(why="NodeNotFree", message=message)
    found = tenant(fake, asked, "slurm").kube.pods or ()
    assert old in found
    assert asked in found


def test_the_pods_for_which_the_node_of_a_guard_waits_are_read(fake: FakeKubectl) -> None:
    comment = bridge.encode(Comment("physics", "u"))
    guard = {
        "job_state": ["CANCELLED", "COMPLETING"],
        "standard_output": GUARD_OUTPUT,
        "admin_comment": comment,
    }
    left = {"kind": "Pod", "metadata": {"name": "train-0", "namespace": "physics"}}
    path = f"pods?labelSelector={urllib.parse.quote(bridge.JOB_LABEL, safe='')}%3D12"
    fake.lists(f"/api/v1/namespaces/physics/{path}", "Pod", left)
    for job, want in (
        (guard, (left,)),
        (guard | {"job_state": ["RUNNING"]}, None),
        (guard | {"admin_comment": "", "comment": comment}, None),
        (guard | {"flags": ["EXTERNAL_JOB"]}, None),
        ({}, None),
    ):
        answer = {"jobs": [pending_job(job_id=12, **job)], "errors": []}
        fake.executed["slurm-controller-0"] = (0, output(job=answer), "")
        assert read(fake).kube.guarded == want
    fake.lists(f"/api/v1/{path}", "Pod", left)
    answer = {
        "jobs": [pending_job(job_id=12, **guard | {"admin_comment": f"{bridge.ADMIN_COMMENT}x"})],
        "errors": [],
    }
    fake.executed["slurm-controller-0"] = (0, output(job=answer), "")
    assert read(fake).kube.guarded == (left,), "its namespace isn't known"
    fake.paths[f"/api/v1/{path}"] = forbidden("list", "pods")
    seen = read(fake)
    assert (seen.kube.guarded, seen.missing) == (None, ()), (
        "the answer has the command that lists them"
    )


SELECTED = (
    "labelSelector=app.kubernetes.io%2Fpart-of%3Dslurm-bridge%2Capp.kubernetes."
    "io%2Fcomponent%3Dbridge"
)
NO_USER = (
    "Refused",
    "namespace physics has no Slurm user: an administrator adds it to the ConfigMap of tenants",
)


def bridge_deployment(namespace: str, tenants: str) -> Any:
    containers = [{"args": ["bridge", f"--tenants={tenants}"]}]
    return {
        "metadata": {"name": "q", "namespace": namespace},
        "spec": {"template": {"spec": {"containers": containers}}},
    }


def test_the_config_map_of_the_tenants_is_found_by_the_bridge_whatever_its_name(
    fake: FakeKubectl,
) -> None:
    beside = f"/apis/apps/v1/namespaces/slurm/deployments?{SELECTED}"
    fake.lists(beside, "Deployment", bridge_deployment("slurm", "queue-tenants"))
    assert tenant(fake, bridged(why=NO_USER[0], message=NO_USER[1]), "slurm").tenants == (
        "slurm",
        "queue-tenants",
    )


def test_doctor_reads_operators_and_bridges_of_all_namespaces(fake: FakeKubectl) -> None:
    fake.lists(
        f"/apis/apps/v1/deployments?{SELECTED}",
        "Deployment",
        bridge_deployment("bridges", "theirs"),
    )
    found = read(fake, Question("doctor"))
    assert [it["metadata"]["namespace"] for it in found.kube.workloads or ()] == ["bridges"]
    fake.paths[f"/apis/apps/v1/deployments?{SELECTED}"] = forbidden("list", "deployments", "apps")
    assert "the Slurm Bridge" in {it.part for it in read(fake, Question("doctor")).missing}


def test_a_bridge_in_another_namespace_is_found_too(fake: FakeKubectl) -> None:
    fake.lists(f"/apis/apps/v1/namespaces/slurm/deployments?{SELECTED}", "Deployment")
    fake.lists(
        f"/apis/apps/v1/deployments?{SELECTED}",
        "Deployment",
        bridge_deployment("bridges", "theirs"),
    )
    assert tenant(fake, bridged(why=NO_USER[0], message=NO_USER[1]), "slurm").tenants == (
        "bridges",
        "theirs",
    )


def test_without_the_right_to_read_the_bridge_the_config_map_is_not_guessed(
    fake: FakeKubectl,
) -> None:
    fake.paths[f"/apis/apps/v1/namespaces/slurm/deployments?{SELECTED}"] = forbidden(
        "list", "deployments", "apps"
    )
    fake.paths[f"/apis/apps/v1/deployments?{SELECTED}"] = forbidden("list", "deployments", "apps")
    seen = tenant(fake, bridged(why=NO_USER[0], message=NO_USER[1]), "slurm")
    assert (seen.tenants, seen.missing) == (None, ())


def test_the_events_about_rolebindings_are_read_for_a_pod_of_which_nothing_is_reported(
    fake: FakeKubectl,
) -> None:
    fake.lists(
        f"/apis/apps/v1/namespaces/slurm/deployments?{SELECTED}",
        "Deployment",
        bridge_deployment("slurm", "t"),
    )
    event = {"kind": "Event", "metadata": {"name": "e"}, "reason": "NoRoleBinding"}
    fake.lists(
        "/api/v1/namespaces/slurm/events?fieldSelector=reason%3DNoRoleBinding", "Event", event
    )
    silent = bridged()
    silent["metadata"]["labels"], silent["status"]["conditions"] = {}, []
    assert tenant(fake, silent, "slurm").bridge_events == (event,)
    assert tenant(fake, bridged(), "slurm").bridge_events == ()


def test_the_bridge_is_not_read_for_a_pod_that_has_a_tenant(fake: FakeKubectl) -> None:
    tenant(fake, bridged(), "slurm")
    assert not [it for it in fake.asked() if "deployments" in " ".join(it)]


def test_a_label_that_is_no_job_id_is_not_asked_for(fake: FakeKubectl) -> None:
    asked = bridged()
    asked["metadata"]["labels"][bridge.JOB_LABEL] = "12;reboot"
    tenant(fake, asked, "slurm")
    assert not [it for it in fake.asked() if "exec" in it]


def test_the_namespace_of_the_context_counts_if_it_has_the_pod(fake: FakeKubectl) -> None:
    fake.namespace = "physics"
    fake.lists(
        f"{GROUP}/controllers", "Controller", {"metadata": {"name": "x", "namespace": "slurm"}}
    )
    assert find_namespace(fake.kubectl(), None, "train-0") == "physics"
    fake.paths["/api/v1/namespaces/physics/pods/train-0"] = NOT_FOUND
    assert find_namespace(fake.kubectl(), None, "train-0") == "slurm"


def test_the_node_that_was_asked_for_is_read_with_its_worker(fake: FakeKubectl) -> None:
    fake.lists(
        f"{PODS}?labelSelector=nodeset.slinky.slurm.net/pod-hostname%3Dcpu-900",
        "Pod",
        pod("cpu-900"),
    )
    fake.paths["/api/v1/nodes/cpu-900"] = (0, json.dumps(kube_node("cpu-900")), "")
    seen = read(fake, Question("node", "cpu-900"))
    assert "slurm-worker-cpu-900" in {it["metadata"]["name"] for it in seen.kube.pods or ()}
    assert [it["metadata"]["name"] for it in seen.kube.kube_nodes or ()] == ["cpu-900"]


def test_the_given_namespace_is_taken_without_a_question(fake: FakeKubectl) -> None:
    assert find_namespace(fake.kubectl(), "mine") == "mine"
    assert not fake.asked()


@pytest.mark.parametrize(("others", "expected"), [(("slurm",), "slurm"), ((), "default")])
def test_the_only_namespace_with_a_controller_is_found(
    fake: FakeKubectl, others: tuple[str, ...], expected: str
) -> None:
    fake.namespace = "default"
    fake.lists(
        f"{GROUP}/controllers",
        "Controller",
        *({"metadata": {"name": "x", "namespace": it}} for it in others),
    )
    assert find_namespace(fake.kubectl(), None) == expected


def test_of_several_namespaces_with_a_controller_none_is_chosen_and_all_are_named(
    fake: FakeKubectl,
) -> None:
    fake.namespace = "default"
    found = ({"metadata": {"name": "x", "namespace": it}} for it in ("slurm2", "slurm"))
    fake.lists(f"{GROUP}/controllers", "Controller", *found)
    with pytest.raises(KubectlError, match=r"2 others have one: slurm, slurm2\. Name one with -n"):
        find_namespace(fake.kubectl(), None)


def test_without_the_right_to_look_everywhere_the_context_decides(fake: FakeKubectl) -> None:
    fake.namespace, fake.other = "mine", forbidden("list", "controllers", "slinky.slurm.net")
    assert find_namespace(fake.kubectl(), None) == "mine"


def test_an_error_of_the_namespace_is_one_of_kubectl(fake: FakeKubectl) -> None:
    fake.other = (1, "", "error: no configuration has been provided")
    with pytest.raises(KubectlError):
        find_namespace(fake.kubectl(), None)


def test_a_doctor_reads_all_kubernetes_nodes_and_names_the_right_that_it_lacks(
    fake: FakeKubectl,
) -> None:
    path = "/api/v1/nodes?limit=500"
    fake.lists(path, "Node", kube_node("cpu-1"), kube_node("cpu-2"))
    found = read(fake, Question("doctor")).kube.kube_nodes or ()
    assert [it["metadata"]["name"] for it in found] == ["cpu-1", "cpu-2"]
    fake.paths[path] = forbidden("list", "nodes")
    seen = read(fake, Question("doctor"))
    assert seen.kube.kube_nodes is None
    assert "Kubernetes nodes" in {it.part for it in seen.missing}
