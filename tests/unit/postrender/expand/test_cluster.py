"""What a stream contains of each namespace."""

from typing import Any

import pytest

from postrender.errors import PostrenderError
from postrender.expand.cluster import HOOK, clusters, is_custom, with_namespace
from sidecars.workloads.facts import NOTHING
from tests.unit.postrender.expand import streams


def test_each_kind_is_found_by_name_and_the_oldest_restapi_serves() -> None:
    younger = streams.restapi()
    younger["metadata"] |= {"name": "a", "creationTimestamp": "2026-02-01T00:00:00Z"}
    older = streams.restapi()
    older["metadata"] |= {"name": "b", "creationTimestamp": "2026-01-01T00:00:00Z"}
    found = streams.cluster(*streams.stream(younger, older))
    controller = found.controllers["slurm"]
    assert list(found.nodesets) == ["slurm-worker-slinky"]
    assert [it.name for it in found.nodesets_of(controller)] == ["slurm-worker-slinky"]
    del found.restapis["slurm"]  # type: ignore[attr-defined]
    served = found.restapi_of(controller)
    assert served is not None
    assert served.name == "b"


def test_resources_of_two_namespaces_are_two_clusters() -> None:
    other = streams.controller()
    other["metadata"]["namespace"] = "other"
    assert sorted(clusters([*streams.stream(), other])) == ["other", "slurm"]


def test_a_stream_without_custom_resources_has_no_cluster() -> None:
    assert clusters(streams.known_keys()) == {}


def test_a_hook_is_left_to_helm() -> None:
    token = streams.custom("Token", "test", username="slurm")
    assert is_custom(token)
    token["metadata"]["annotations"] = {HOOK: "test"}
    assert not is_custom(token)
    assert streams.cluster(*streams.stream(token)).tokens == {}


def test_a_resource_without_a_namespace_gets_that_of_the_release() -> None:
    controller = streams.controller()
    del controller["metadata"]["namespace"]
    assert with_namespace(controller, "release")["metadata"]["namespace"] == "release"
    with pytest.raises(
        PostrenderError, match=r"Controller 'slurm' has no metadata\.namespace: give the namespace"
    ):
        clusters([controller])


def test_a_secret_to_be_generated_has_unknown_contents_and_one_with_data_its_own() -> None:
    known = streams.secret("plain", key="value")
    text = {**streams.secret("text"), "stringData": {"key": "value"}}
    empty = {**streams.secret("filled-later"), "data": {}}
    found = streams.cluster(
        *streams.stream(known, text, empty), secrets=("present", "filled-later", "text")
    )
    assert found.secrets["slurm-auth-slurm"] is None
    assert found.secrets["present"] is found.secrets["filled-later"] is None
    assert found.secrets["plain"] == found.secrets["text"] == {"key": b"value"}
    facts = found.facts(streams.SITE)
    assert facts.secrets["slurm-auth-slurm"]["slurm.key"] == NOTHING
    assert facts.secrets["plain"]["key"] != NOTHING


@pytest.mark.parametrize(
    ("documents", "message"),
    [
        (
            [streams.controller(), streams.controller()],
            "Controller slurm/slurm is in the stream twice",
        ),
        (
            [{**streams.controller(), "apiVersion": "slinky.slurm.net/v1alpha1"}],
            r"apiVersion 'slinky\.slurm\.net/v1alpha1' isn't slinky\.slurm\.net/v1beta1",
        ),
        (
            [streams.nodeset(replicas="two")],
            "NodeSet slurm/slurm-worker-slinky: spec.replicas: Expected `int`",
        ),
        (
            [{**streams.secret("x"), "data": {"key": "no base64!"}}, streams.controller()],
            "Secret 'x': data.key isn't base64",
        ),
        (
            [
                {
                    "apiVersion": "v1",
                    "kind": "ConfigMap",
                    "metadata": {"name": "x"},
                    "binaryData": {"a": "b"},
                },
                streams.controller(),
            ],
            "ConfigMap 'x': binaryData isn't base64",
        ),
    ],
    ids=["twice", "version", "type", "base64", "binary"],
)
def test_what_cannot_be_read_is_named_with_the_remedy(documents: list[Any], message: str) -> None:
    with pytest.raises(PostrenderError, match=message):
        clusters(documents)


def test_references_to_what_the_stream_lacks_are_errors() -> None:
    found = streams.cluster(streams.nodeset(), streams.controller(accountingRef={"name": "db"}))
    with pytest.raises(PostrenderError, match="has no Accounting 'db'"):
        found.facts(streams.SITE, found.controllers["slurm"])
    lonely = streams.cluster(streams.nodeset())
    with pytest.raises(
        PostrenderError, match=r"spec\.controllerRef: the stream has no Controller 'slurm'"
    ):
        lonely.controller(lonely.nodesets["slurm-worker-slinky"])
