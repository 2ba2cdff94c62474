"""What is read for a question, and what is named because it could not be read."""

import json
from pathlib import Path
from typing import Any

import pytest

from sidecars.explain.kubectl import KubectlError, NoKubectl
from sidecars.explain.reading import GROUP, Question, Reader, find_namespace
from sidecars.policy.explain.records import Seen
from tests.unit.explain.fake_kubectl import NOT_FOUND, FakeKubectl, forbidden
from tests.unit.explain.printed import output
from tests.unit.policy.explain.building import daemon, kube_node, nodeset, pod, unscheduled

PODS = "/api/v1/namespaces/slurm/pods"
DAEMONS = f"{PODS}?labelSelector=app.kubernetes.io/name!%3Dslurmd"
NOT_RUNNING = f"{PODS}?labelSelector=app.kubernetes.io/name%3Dslurmd&fieldSelector=status.phase!%3DRunning"
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
    assert {it["metadata"]["name"] for it in seen.kube.pods or ()} == {"slurm-controller-0", "slurm-worker-cpu-0"}
    assert seen.exec_in == "kubectl -n slurm exec slurm-controller-0 -c slurmctld --"


def test_nothing_but_reads_and_one_command_in_a_pod_is_asked_for(fake: FakeKubectl) -> None:
    read(fake)
    commands = [it for it in fake.asked() if it[0] != "get"]
    assert [it[:7] for it in commands] == [["-n", "slurm", "exec", "slurm-controller-0", "-c", "slurmctld", "--"]]


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
    assert {it.part for it in seen.missing} >= {"NodeSets", "Controllers", "workers", "Events", "quotas"}


def test_crds_that_are_not_installed_are_named(fake: FakeKubectl) -> None:
    fake.paths[NODESETS] = NOT_FOUND
    [missing] = read(fake).missing
    assert missing.part == "NodeSets"
    assert "slurm-operator-crds" in missing.remedy


def test_an_api_server_that_is_gone_is_an_error(fake: FakeKubectl) -> None:
    fake.paths, fake.other = {}, (1, "", "Unable to connect to the server: dial tcp: i/o timeout")
    with pytest.raises(NoKubectl):
        read(fake)


def test_of_more_workers_than_one_page_those_that_do_not_run_are_read_too_and_each_once(fake: FakeKubectl) -> None:
    page = {"kind": "PodList", "metadata": {"continue": "more"}, "items": [pod("cpu-0"), unscheduled("cpu-1")]}
    fake.paths[WORKERS] = (0, json.dumps(page), "")
    fake.lists(NOT_RUNNING, "Pod", unscheduled("cpu-1"), unscheduled("cpu-900"))
    names = {it["metadata"]["name"] for it in read(fake).kube.pods or ()}
    assert names == {"slurm-controller-0", "slurm-worker-cpu-0", "slurm-worker-cpu-1", "slurm-worker-cpu-900"}


def test_of_a_cluster_that_was_listed_whole_nothing_more_is_read(fake: FakeKubectl) -> None:
    read(fake)
    assert ["get", "--raw", NOT_RUNNING] not in fake.asked()


@pytest.mark.parametrize("subject", ["pod", "config"])
def test_a_question_about_kubernetes_alone_runs_no_command_in_a_pod(fake: FakeKubectl, subject: str) -> None:
    seen = read(fake, Question(subject, "a"))
    assert not [it for it in fake.asked() if "exec" in it]
    assert seen.missing == ()


def test_the_kubernetes_nodes_of_pods_that_are_not_ready_are_read_one_by_one(fake: FakeKubectl) -> None:
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


def test_the_node_that_was_asked_for_is_read_with_its_worker(fake: FakeKubectl) -> None:
    fake.lists(f"{PODS}?labelSelector=nodeset.slinky.slurm.net/pod-hostname%3Dcpu-900", "Pod", pod("cpu-900"))
    fake.paths["/api/v1/nodes/cpu-900"] = (0, json.dumps(kube_node("cpu-900")), "")
    seen = read(fake, Question("node", "cpu-900"))
    assert "slurm-worker-cpu-900" in {it["metadata"]["name"] for it in seen.kube.pods or ()}
    assert [it["metadata"]["name"] for it in seen.kube.kube_nodes or ()] == ["cpu-900"]


def test_the_given_namespace_is_taken_without_a_question(fake: FakeKubectl) -> None:
    assert find_namespace(fake.kubectl(), "mine") == "mine"
    assert not fake.asked()


@pytest.mark.parametrize(("others", "expected"), [(("slurm",), "slurm"), (("a", "b"), "default"), ((), "default")])
def test_the_only_namespace_with_a_controller_is_found(
    fake: FakeKubectl, others: tuple[str, ...], expected: str
) -> None:
    fake.namespace = "default"
    fake.lists(f"{GROUP}/controllers", "Controller", *({"metadata": {"name": "x", "namespace": it}} for it in others))
    assert find_namespace(fake.kubectl(), None) == expected


def test_without_the_right_to_look_everywhere_the_context_decides(fake: FakeKubectl) -> None:
    fake.namespace, fake.other = "mine", forbidden("list", "controllers", "slinky.slurm.net")
    assert find_namespace(fake.kubectl(), None) == "mine"


def test_an_error_of_the_namespace_is_one_of_kubectl(fake: FakeKubectl) -> None:
    fake.other = (1, "", "error: no configuration has been provided")
    with pytest.raises(KubectlError):
        find_namespace(fake.kubectl(), None)
