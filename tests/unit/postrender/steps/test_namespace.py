"""Objects into a namespace, and references to them."""

from typing import Any

from postrender.report import Run
from tests.support.streams import applied, config_map, objects, stream


def moved(*given: dict[str, Any], run: Run | None = None, **settings: Any) -> list[dict[str, Any]]:
    return objects(applied(stream(*given), {"namespace": {"name": "new", **settings}}, run=run))


def test_objects_get_the_namespace_and_those_without_one_stay() -> None:
    role = {"kind": "ClusterRole", "metadata": {"name": "a"}}
    definition = {
        "kind": "CustomResourceDefinition",
        "metadata": {"name": "x"},
        "spec": {"scope": "Cluster", "names": {"kind": "Wide"}},
    }
    wide = {"kind": "Wide", "metadata": {"name": "w"}}
    other = {"kind": "Other", "metadata": {"name": "o"}}
    found = moved(config_map("one"), role, definition, wide, other, clusterScoped=["Other"])
    assert [it["metadata"].get("namespace") for it in found] == ["new", None, None, None, None]
    assert found[1:] == [role, definition, wide, other]


def test_references_follow_what_is_moved_and_no_other() -> None:
    account = {"kind": "ServiceAccount", "metadata": {"name": "sa", "namespace": "old"}}
    subjects = [
        {"kind": "ServiceAccount", "name": "sa", "namespace": "old"},
        {"kind": "ServiceAccount", "name": "sa", "namespace": "else"},
        {"kind": "User", "name": "sa"},
    ]
    binding = {"kind": "ClusterRoleBinding", "metadata": {"name": "b"}, "subjects": subjects}
    service = {"kind": "Service", "metadata": {"name": "s", "namespace": "old"}}
    hook = {
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "w"},
        "webhooks": [
            {"clientConfig": {"service": {"name": "s", "namespace": "old"}}},
            {"clientConfig": {"url": "x"}},
        ],
    }
    api = {
        "kind": "APIService",
        "metadata": {"name": "x"},
        "spec": {"service": {"name": "s", "namespace": "old"}},
    }
    _, bound, _, hooked, served = moved(account, binding, service, hook, api)
    assert [it.get("namespace") for it in bound["subjects"]] == ["new", "else", None]
    assert hooked["webhooks"] == [
        {"clientConfig": {"service": {"name": "s", "namespace": "new"}}},
        {"clientConfig": {"url": "x"}},
    ]
    assert served["spec"]["service"]["namespace"] == "new"


def test_an_object_without_a_namespace_is_of_the_releases() -> None:
    account = {"kind": "ServiceAccount", "metadata": {"name": "sa"}}
    binding = {
        "kind": "RoleBinding",
        "metadata": {"name": "b"},
        "subjects": [{"kind": "ServiceAccount", "name": "sa", "namespace": "slurm"}],
    }
    _, bound = moved(account, binding, run=Run(namespace="slurm"))
    assert bound["subjects"][0]["namespace"] == "new"


def test_a_second_run_changes_nothing() -> None:
    wanted = {"namespace": {"name": "new"}}
    account = {"kind": "ServiceAccount", "metadata": {"name": "sa", "namespace": "old"}}
    binding = {
        "kind": "RoleBinding",
        "metadata": {"name": "b"},
        "subjects": [{"kind": "ServiceAccount", "name": "sa"}],
    }
    once = applied(stream(account, binding, {"kind": "List", "items": [config_map("x")]}), wanted)
    assert applied(once, wanted).written() == once.written()
