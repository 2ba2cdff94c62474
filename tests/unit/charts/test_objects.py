"""Checking Kubernetes objects without a cluster."""

from typing import Any

import pytest

from tests.charts import objects


def nodeset(**spec: Any) -> dict[str, Any]:
    own = {"controllerRef": {"name": "slurm"}, **spec}
    return {"apiVersion": objects.OURS, "kind": "NodeSet", "metadata": {"name": "n"}, "spec": own}


def config_map(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}, **fields}


@pytest.mark.parametrize(
    "manifest",
    [
        nodeset(
            template={"spec": {"hostname": "a-", "anything": {"passes": True}}},
            slurmd={"image": "x"},
        ),
        nodeset(updateStrategy={"rollingUpdate": {"maxUnavailable": 1}}, volumeClaimTemplates=None),
        config_map(data={"a": "b"}),
        {
            "apiVersion": "monitoring.coreos.com/v1",
            "kind": "ServiceMonitor",
            "metadata": {"name": "s"},
        },
    ],
)
def test_good_objects_pass(manifest: dict[str, Any]) -> None:
    assert objects.problems(manifest, "1.35.0") == []


@pytest.mark.parametrize(
    ("manifest", "want"),
    [
        (nodeset(replica=1), "NodeSet n: $.spec: "),
        (nodeset(replicas="1"), "NodeSet n: $.spec.replicas: "),
        (nodeset(controllerRef={}), "NodeSet n: $.spec.controllerRef: "),
        (config_map(data={"a": 1}), "ConfigMap c: data.a: "),
        (config_map(dat={}), "ConfigMap c: "),
        ({"apiVersion": "v1", "kind": "Confmap", "metadata": {"name": "c"}}, "Confmap c: "),
        ("text", "not an object of Kubernetes"),
    ],
)
def test_bad_objects_are_named_with_the_place(manifest: Any, want: str) -> None:
    assert [problem for problem in objects.problems(manifest, "1.35.0") if problem.startswith(want)]


LABELS = dict.fromkeys(objects.RECOMMENDED_LABELS, "x")


def deployment(labels: dict[str, str], pod_labels: dict[str, str]) -> dict[str, Any]:
    template = {"metadata": {"labels": pod_labels}}
    return {
        "kind": "Deployment",
        "metadata": {"name": "d", "labels": labels},
        "spec": {"template": template},
    }


def test_an_object_with_all_recommended_labels_passes() -> None:
    assert objects.label_problems(deployment(LABELS, {"app.kubernetes.io/name": "x"})) == []


@pytest.mark.parametrize("key", objects.RECOMMENDED_LABELS)
def test_a_recommended_label_that_is_missing_is_found(key: str) -> None:
    labels = {name: text for name, text in LABELS.items() if name != key}
    assert objects.label_problems(deployment(labels, {})) == [f"Deployment d: no label {key}"]


@pytest.mark.parametrize("key", sorted(objects.VERSION_LABELS))
def test_a_label_with_a_version_on_a_pod_is_found(key: str) -> None:
    assert objects.label_problems(deployment(LABELS, {key: "1"})) == [
        f"Deployment d: spec.template.metadata.labels: label {key} changes with each version"
    ]


def test_a_label_with_a_version_in_a_selector_or_a_claim_is_found() -> None:
    spec = {
        "selector": {"matchLabels": {"helm.sh/chart": "a-1"}},
        "volumeClaimTemplates": [{"metadata": {"labels": {"helm.sh/chart": "a-1"}}}],
    }
    manifest = {"kind": "StatefulSet", "metadata": {"name": "s", "labels": LABELS}, "spec": spec}
    assert objects.label_problems(manifest) == [
        "StatefulSet s: spec.selector.matchLabels: label helm.sh/chart changes with each version",
        (
            "StatefulSet s: spec.volumeClaimTemplates.0.metadata.labels: label helm.sh/chart "
            "changes with each version"
        ),
    ]


def job(pod: dict[str, Any], **container: Any) -> dict[str, Any]:
    containers = [{"name": "c", **container}]
    template = {"spec": {**pod, "containers": containers}}
    return {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "j"},
        "spec": {"jobTemplate": {"spec": {"template": template}}},
    }


SAFE = {"runAsNonRoot": True, "runAsUser": 401}


def test_a_container_that_may_run_as_root_is_found_at_any_depth() -> None:
    assert objects.root_problems(job({"securityContext": SAFE})) == []
    assert objects.root_problems(job({}, securityContext=SAFE)) == []
    found = ["CronJob j: container c may run as root"]
    assert objects.root_problems(job({})) == found
    assert objects.root_problems(job({"securityContext": {"runAsUser": 401}})) == found
    overridden = {"runAsNonRoot": False, "runAsUser": 0}
    its = job({"securityContext": SAFE}, securityContext=overridden)
    assert objects.root_problems(its) == found
    init = job(
        {
            "securityContext": SAFE,
            "initContainers": [{"name": "i", "securityContext": {**SAFE, **overridden}}],
        }
    )
    assert objects.root_problems(init) == ["CronJob j: container i may run as root"]


def test_the_container_of_the_shared_roots_job_may_run_as_root_and_workers_are_the_operators() -> (
    None
):
    assert objects.root_problems(job({}, name="fill")) == []
    assert objects.root_problems({**job({}), "apiVersion": objects.OURS}) == []
