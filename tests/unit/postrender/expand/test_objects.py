"""The objects that the operator would apply."""

import base64

import pytest

from postrender.errors import PostrenderError
from postrender.expand import objects
from postrender.expand.cluster import Cluster
from postrender.expand.objects import Configuration
from sidecars.workloads.assembly import find
from tests.unit.postrender.expand import streams


def configured(cluster: Cluster) -> Configuration:
    return objects.configuration(cluster, cluster.controllers["slurm"], streams.SITE, frozenset())


def test_a_controller_has_its_configuration_twice_its_services_and_what_workers_share() -> None:
    cluster = streams.cluster(*streams.known_keys(), streams.controller(), streams.nodeset())
    found = objects.of_controller(cluster, cluster.controllers["slurm"], configured(cluster))
    assert [(it["kind"], it["metadata"]["name"]) for it in found] == [
        ("ConfigMap", "slurm-config"),
        ("ConfigMap", "slurm-config-accepted"),
        ("Service", "slurm-controller-internal"),
        ("Service", "slurm-controller"),
        ("StatefulSet", "slurm-controller"),
        ("Service", "slurm-workers-slurm"),
        ("PodDisruptionBudget", "slurm-workers-pdb-slurm"),
    ]
    assert found[0]["data"] == found[1]["data"]
    assert "NodeSet=slinky" in found[0]["data"]["slurm.conf"]


def test_an_external_controller_has_its_configuration_alone() -> None:
    external = streams.controller(external=True, externalConfig={"host": "ctld", "port": 6817})
    cluster = streams.cluster(*streams.known_keys(), external)
    found = objects.of_controller(cluster, cluster.controllers["slurm"], configured(cluster))
    assert [it["metadata"]["name"] for it in found] == ["slurm-config"]


def test_a_configuration_with_a_fault_is_refused_with_its_place() -> None:
    cluster = streams.cluster(*streams.known_keys(), streams.controller(extraConf="SlurmctldPrt=1"))
    with pytest.raises(PostrenderError, match=r"Controller slurm/slurm: .*SlurmctldPrt"):
        configured(cluster)


def test_a_missing_key_is_an_error_with_both_remedies() -> None:
    cluster = streams.cluster(streams.controller())
    found = configured(cluster)
    with pytest.raises(
        PostrenderError,
        match="Secret 'slurm-auth-slurm' doesn't exist: add it to the stream, or name",
    ):
        objects.of_controller(cluster, cluster.controllers["slurm"], found)


def test_slurmdbd_has_a_secret_only_where_the_password_is_known() -> None:
    plain = streams.cluster(
        *streams.known_keys(), streams.accounting(), streams.secret("mariadb", password="pw")
    )
    found = objects.of_accounting(plain, plain.accountings["slurm"], streams.SITE)
    conf = base64.b64decode(find(found, "Secret")["data"]["slurmdbd.conf"]).decode()
    assert "StoragePass=pw" in conf.splitlines()
    unread = streams.cluster(*streams.known_keys(), streams.accounting(), secrets=("mariadb",))
    kinds = [
        it["kind"]
        for it in objects.of_accounting(unread, unread.accountings["slurm"], streams.SITE)
    ]
    assert kinds == ["Service", "StatefulSet"]


def test_an_external_slurmdbd_has_no_objects() -> None:
    external = streams.accounting(external=True, externalConfig={"host": "dbd", "port": 6819})
    cluster = streams.cluster(external)
    assert objects.of_accounting(cluster, cluster.accountings["slurm"], streams.SITE) == []


def test_a_nodeset_has_its_revision_and_a_pod_for_each_replica() -> None:
    cluster = streams.cluster(*streams.known_keys(), streams.controller(), streams.nodeset())
    found = objects.of_nodeset(
        cluster, cluster.nodesets["slurm-worker-slinky"], configured(cluster)
    )
    pods = [it for it in found if it["kind"] == "Pod"]
    assert [it["spec"]["hostname"] for it in pods] == ["slinky-0", "slinky-1"]
    revision = find(found, "ControllerRevision")["metadata"]["labels"]["controller-revision-hash"]
    assert {it["metadata"]["labels"]["controller-revision-hash"] for it in pods} == {revision}


def test_slurmrestd_restarts_for_a_configuration_that_it_reads() -> None:
    def annotations(**spec: str) -> dict[str, str]:
        cluster = streams.cluster(
            *streams.known_keys(), streams.controller(**spec), streams.restapi()
        )
        found = objects.of_restapi(cluster, cluster.restapis["slurm"], configured(cluster))
        return dict(find(found, "Deployment")["spec"]["template"]["metadata"]["annotations"])

    assert annotations() == annotations(extraConf="SchedulerParameters=bf_interval=9")
    assert annotations() != annotations(extraConf="MessageTimeout=99")


def test_login_pods_are_a_deployment_once_their_host_keys_exist() -> None:
    documents = [*streams.known_keys(), streams.sssd(), streams.controller(), streams.loginset()]
    cluster = streams.cluster(*documents, secrets=("slurm-login-slinky-ssh-host-keys",))
    found = objects.of_loginset(
        cluster, cluster.loginsets["slurm-login-slinky"], configured(cluster)
    )
    assert [it["kind"] for it in found] == ["ConfigMap", "Service", "Deployment"]


def declaring(text: str) -> tuple[Cluster, list[str]]:
    """A cluster that declares users with this text, and the names of the ConfigMaps."""
    reference = {"name": "site-users", "key": "users.yaml"}
    secret = streams.secret("site-users", **{"users.yaml": text})
    cluster = streams.cluster(*streams.known_keys(), secret, streams.controller(usersRef=reference))
    found = objects.of_controller(cluster, cluster.controllers["slurm"], configured(cluster))
    return cluster, [
        it["data"]["passwd"] for it in found if it["metadata"]["name"] == "slurm-users"
    ]


def test_declared_users_are_the_files_that_the_operator_would_apply() -> None:
    assert declaring("users: {alice: {uid: 10001}}")[1] == [
        "alice:*:10001:10001::/home/alice:/bin/bash\n"
    ]
    for wrong in ("users: {alice: {uid: 1}}", "users: ["):
        with pytest.raises(PostrenderError, match=r"Controller slurm/slurm: spec\.usersRef: "):
            declaring(wrong)


def test_declared_users_of_a_secret_that_only_exists_in_the_namespace_are_not_known() -> None:
    reference = {"name": "site-users", "key": "users.yaml"}
    cluster = streams.cluster(
        *streams.known_keys(), streams.controller(usersRef=reference), secrets=("site-users",)
    )
    found = objects.of_controller(cluster, cluster.controllers["slurm"], configured(cluster))
    assert "slurm-users" not in [it["metadata"]["name"] for it in found]
