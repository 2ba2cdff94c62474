"""The recommended labels of Kubernetes on the objects that the operator creates, and what they
never change.
"""

from collections.abc import Callable, Mapping
from typing import Any

import pytest

from sidecars.workloads import accounting, controller, loginset, nodeset, restapi, token
from sidecars.workloads.resources import Accounting, Manifest, Token, read
from tests.support import builders

NAME, INSTANCE, COMPONENT, PART_OF = (
    f"app.kubernetes.io/{part}" for part in ("name", "instance", "component", "part-of")
)
STORAGE = {"host": "mariadb", "passwordKeyRef": {"name": "mariadb", "key": "password"}}
Meta = dict[str, Any]


def of_controller(meta: Meta) -> list[Manifest]:
    monitored = {"enabled": True, "serviceMonitor": {"enabled": True}}
    owner = builders.controller(meta, metrics=monitored)
    monitor = controller.service_monitor(owner)
    assert monitor is not None
    return [
        *controller.objects(owner, (), builders.facts()),
        monitor,
        controller.key_secret(owner, "a", "b"),
    ]


def of_nodeset(meta: Meta) -> list[Manifest]:
    owner, cluster, facts = builders.nodeset(meta=meta), builders.controller(), builders.facts()
    revision = nodeset.revision(owner, cluster, facts)
    pod = nodeset.pod(owner, nodeset.pod_template(owner, cluster, facts), 0, revision.hash)
    return [
        *nodeset.objects(owner, cluster, facts),
        *nodeset.shared_objects(cluster, [owner], facts),
        nodeset.revision_object(owner, revision, 1),
        pod,
    ]


def of_loginset(meta: Meta) -> list[Manifest]:
    owner = builders.loginset(meta)
    slices = loginset.addresses(owner, {"slurm-login-slinky-a": "10.0.0.1"}, None)
    return [*loginset.objects(owner, builders.controller(), builders.facts()), *slices]


def of_restapi(meta: Meta) -> list[Manifest]:
    return restapi.objects(
        builders.restapi(meta), builders.controller(), builders.facts(), {"slurm.conf": ""}
    )


def of_accounting(meta: Meta) -> list[Manifest]:
    spec = builders.KEYS | {"storageConfig": STORAGE}
    owner = read(Accounting, {"metadata": builders.metadata("slurm") | meta, "spec": spec})
    return accounting.objects(
        owner, builders.facts(), accounting.Secrets(password=b"p", slurm_key=b"k")
    )


def of_token(meta: Meta) -> list[Manifest]:
    spec = {"jwtKeyRef": builders.JWT_KEY, "username": "a"}
    return [
        token.secret(
            read(Token, {"metadata": builders.metadata("slurm-token-a") | meta, "spec": spec}),
            "text",
        )
    ]


KINDS: Mapping[str, tuple[Callable[[Meta], list[Manifest]], dict[str, str]]] = {
    "Controller": (of_controller, {NAME: "slurmctld", INSTANCE: "slurm", COMPONENT: "controller"}),
    "NodeSet": (of_nodeset, {NAME: "slurmd", INSTANCE: "slurm-worker-slinky", COMPONENT: "worker"}),
    "LoginSet": (of_loginset, {NAME: "login", INSTANCE: "slurm-login-slinky", COMPONENT: "login"}),
    "RestApi": (of_restapi, {NAME: "slurmrestd", INSTANCE: "slurm", COMPONENT: "restapi"}),
    "Accounting": (of_accounting, {NAME: "slurmdbd", INSTANCE: "slurm", COMPONENT: "accounting"}),
    "Token": (of_token, {NAME: "token", INSTANCE: "slurm-token-a", COMPONENT: "token"}),
}
"""What the operator creates for a custom resource, and the labels with which the chart slurm names
its program.
"""


def named(manifest: Manifest) -> str:
    """KIND/NAME of an object."""
    return f"{manifest['kind']}/{manifest['metadata']['name']}"


def without_own_labels(manifest: Manifest) -> Manifest:
    """An object without the labels of its metadata; those of its pods stay."""
    return manifest | {
        "metadata": {key: item for key, item in manifest["metadata"].items() if key != "labels"}
    }


@pytest.mark.parametrize("kind", KINDS)
def test_every_object_names_its_program_instance_and_component(kind: str) -> None:
    create, _ = KINDS[kind]
    lacking = {
        named(manifest): missing
        for manifest in create({})
        if (missing := {NAME, INSTANCE, COMPONENT} - manifest["metadata"]["labels"].keys())
    }
    assert lacking == {}


@pytest.mark.parametrize("kind", KINDS)
def test_every_object_of_a_cluster_of_the_chart_is_part_of_slurm(kind: str) -> None:
    create, identity = KINDS[kind]
    objects = create({"labels": identity | {PART_OF: "slurm"}})
    assert [
        named(manifest)
        for manifest in objects
        if manifest["metadata"]["labels"].get(PART_OF) != "slurm"
    ] == []


@pytest.mark.parametrize("kind", KINDS)
def test_the_labels_with_which_the_chart_names_a_program_change_no_pod_and_no_spec(
    kind: str,
) -> None:
    create, identity = KINDS[kind]
    plain, labelled = create({}), create({"labels": identity})
    assert list(map(without_own_labels, labelled)) == list(map(without_own_labels, plain))
    pods = [
        [manifest for manifest in objects if manifest["kind"] == "Pod"]
        for objects in (plain, labelled)
    ]
    assert pods[0] == pods[1]


@pytest.mark.parametrize("kind", KINDS)
def test_labels_with_a_version_reach_no_object_of_the_operator(kind: str) -> None:
    create, identity = KINDS[kind]
    versions = {"helm.sh/chart": "slurm-1.2.3", "app.kubernetes.io/version": "26.05"}
    assert create({"labels": identity | versions}) == create({"labels": identity})
