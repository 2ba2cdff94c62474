"""What the objects of every kind get: `sidecars.workloads.assembly`."""

from typing import Any

import pytest

from sidecars.workloads.assembly import (
    container,
    containers_of,
    find,
    owned,
    pod_template,
    service,
    text,
)
from sidecars.workloads.resources import PodTemplate, ResourceError, RestApi, Service
from tests.support import builders

SERVICE: dict[str, Any] = {
    "kind": "Service",
    "metadata": {"name": "slurm-restapi", "labels": {"ours": "yes"}},
    "spec": {"selector": {"app": "slurmrestd"}, "ports": [{"name": "slurmrestd", "port": 6820}]},
}


def owner(
    labels: dict[str, str] | None = None, annotations: dict[str, str] | None = None
) -> RestApi:
    return builders.restapi({"labels": labels or {}, "annotations": annotations or {}})


def wanted(**fields: Any) -> Service:
    return builders.restapi(service=fields).spec.service


def template(**fields: Any) -> PodTemplate:
    return builders.restapi(template=fields).spec.template


def test_an_owned_object_is_deleted_with_its_owner_and_its_own_labels_win() -> None:
    found = owned(
        {"kind": "Secret", "metadata": {"name": "a", "labels": {"x": "own"}}},
        owner({"x": "1", "y": "2"}),
    )
    assert found["metadata"]["namespace"] == builders.NAMESPACE
    assert found["metadata"]["labels"] == {"x": "own", "y": "2"}
    [reference] = found["metadata"]["ownerReferences"]
    assert (reference["kind"], reference["controller"], reference["blockOwnerDeletion"]) == (
        "RestApi",
        True,
        True,
    )


def test_labels_and_annotations_of_deployment_tools_reach_no_object() -> None:
    tools = {"helm.sh/chart": "slurm-0.1.0", "argocd.argoproj.io/instance": "slurm"}
    found = owned({"kind": "Secret", "metadata": {"name": "a"}}, owner(tools, tools))
    assert "labels" not in found["metadata"]
    assert "argocd.argoproj.io/instance" not in found["metadata"].get("annotations", {})


def test_labels_and_annotations_of_deployment_tools_reach_no_pod_also_from_the_template() -> None:
    """SchedMD's chart puts the labels of the release on pod templates as well."""
    base = {
        "metadata": {"labels": {"a": "ours"}},
        "spec": {"containers": [{"name": "slurmrestd", "image": "i"}]},
    }
    tools = {"helm.sh/chart": "slurm-1.2.0", "app.kubernetes.io/version": "26.05", "team": "hpc"}
    user = template(
        metadata={
            "labels": tools,
            "annotations": {"meta.helm.sh/release-name": "slurm", "note": "b"},
        }
    )
    found = pod_template(base, owner(tools), user, {})
    assert found["metadata"] == {
        "labels": {"a": "ours", "team": "hpc"},
        "annotations": {"note": "b"},
    }


def test_of_a_pods_labels_ours_win_over_the_templates_and_those_over_the_owners() -> None:
    base = {
        "metadata": {"labels": {"a": "ours"}},
        "spec": {"containers": [{"name": "slurmrestd", "image": "i"}]},
    }
    user = template(metadata={"labels": {"a": "user", "b": "user"}})
    found = pod_template(base, owner({"a": "owner", "b": "owner", "c": "owner"}), user, {})
    assert found["metadata"]["labels"] == {"a": "ours", "b": "user", "c": "owner"}


def test_the_overrides_of_a_container_are_merged_into_the_one_of_that_name() -> None:
    base = {
        "spec": {
            "initContainers": [{"name": "init"}],
            "containers": [{"name": "slurmrestd", "image": "i"}],
        }
    }
    found = pod_template(base, owner(), template(), {"slurmrestd": {"image": "j"}})
    assert container(found["spec"], "slurmrestd")["image"] == "j"
    assert containers_of(found["spec"])[0] == {"name": "init"}
    with pytest.raises(LookupError):
        container(found["spec"], "other")


def test_with_resources_of_the_pod_as_a_whole_our_containers_request_nothing() -> None:
    ours = {"name": "slurmrestd", "resources": {"requests": {"cpu": "50m"}}}
    base = {"spec": {"containers": [ours]}}
    found = pod_template(
        base, owner(), template(spec={"resources": {"limits": {"cpu": "20m"}}}), {}
    )
    assert found["spec"]["containers"] == [{"name": "slurmrestd"}]
    user = {"slurmrestd": {"resources": {"requests": {"cpu": "10m"}}}}
    found = pod_template(
        base, owner(), template(spec={"resources": {"limits": {"cpu": "20m"}}}), user
    )
    assert found["spec"]["containers"] == [
        {"name": "slurmrestd", "resources": {"requests": {"cpu": "10m"}}}
    ]
    assert pod_template(base, owner(), template(spec={"resources": {}}), {})["spec"][
        "containers"
    ] == [ours]


def test_a_service_gets_the_users_ports_before_ours_and_no_external_addresses() -> None:
    user = wanted(
        port=80, spec={"ports": [{"name": "more", "port": 9}], "externalIPs": ["192.0.2.1"]}
    )
    spec = service(SERVICE, owner(), user)["spec"]
    assert [(port["name"], port["port"]) for port in spec["ports"]] == [
        ("more", 9),
        ("slurmrestd", 80),
    ]
    assert "externalIPs" not in spec
    assert spec["selector"] == {"app": "slurmrestd"}


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"type": "ExternalName", "externalName": "example.com"}, "spec.service.spec.type"),
        ({"ports": [{"name": "slurmrestd", "port": 1}]}, "spec.service.spec.ports"),
        ({"ports": [{"name": "twice", "port": 6820}]}, "spec.service.spec.ports"),
    ],
)
def test_a_service_that_could_not_work_is_refused(spec: dict[str, Any], field: str) -> None:
    with pytest.raises(ResourceError) as refused:
        service(SERVICE, owner(), wanted(spec=spec))
    assert refused.value.field == field


def test_a_rendered_object_is_found_by_kind_and_name() -> None:
    manifests = [SERVICE, {"kind": "Secret", "metadata": {"name": "a"}}]
    assert find(manifests, "Secret") is manifests[1]
    assert find(manifests, "Service", "slurm-restapi") is SERVICE
    with pytest.raises(LookupError, match="no Secret b was rendered"):
        find(manifests, "Secret", "b")


def test_a_value_that_could_begin_another_line_is_refused() -> None:
    assert text(6820, "spec.port") == "6820"
    with pytest.raises(ResourceError, match=r"spec\.host"):
        text("a\nSlurmctldHost=b", "spec.host")
