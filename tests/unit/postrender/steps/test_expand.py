"""The step `expand`."""

from pathlib import Path

import pytest
import yaml

from postrender.errors import PostrenderError
from postrender.report import Run
from postrender.steps.expand import DEFAULT_IMAGE, site
from postrender.stream import FILE_ANNOTATION, Stream
from sidecars.workloads.names import SIDECARS_IMAGE
from tests.support.streams import applied, config_map, objects, stream
from tests.unit.postrender.expand import streams


def expanded(given: Stream, **settings: object) -> Stream:
    return applied(given, {"expand": settings}, run=Run(namespace="slurm"))


def test_custom_resources_are_replaced_where_they_stand_and_the_rest_stays_as_it_is() -> None:
    given = stream(config_map("first"), *streams.stream(), config_map("last"))
    texts = [it.text for it in given.documents]
    found = expanded(given, image="sidecars:9")
    kinds = [it.head.kind for it in found.documents]
    assert not {"Controller", "NodeSet", "LoginSet", "RestApi"} & set(kinds)
    assert found.documents[0].text == texts[0]
    assert found.documents[-1].text == texts[-1]
    assert found.documents[-2].source == "chart/templates/8.yaml"
    [workers] = [it for it in objects(found) if it["metadata"]["name"] == "slinky"]
    images = {it["image"] for it in workers["spec"]["template"]["spec"]["initContainers"]}
    assert images == {"sidecars:9"}


def sidecars_images(found: Stream) -> set[str]:
    """The images of the sidecars in the stream."""
    pods = [
        it["spec"]["template"]["spec"] for it in objects(found) if "template" in it.get("spec", {})
    ]
    containers = [
        each
        for pod in pods
        for key in ("initContainers", "containers")
        for each in pod.get(key, ())
    ]
    return {it["image"] for it in containers if "sidecars" in it.get("image", "")}


def test_the_sidecars_image_is_the_one_of_the_release_unless_the_step_names_another() -> None:
    given = streams.stream()
    image = {SIDECARS_IMAGE: "registry.example.com/team/sidecars:1"}
    for item in given:
        if item["kind"] == "Controller":
            item["metadata"]["annotations"] = image
    found = expanded(stream(*given))
    assert sidecars_images(found) == {"registry.example.com/team/sidecars:1"}
    assert SIDECARS_IMAGE not in found.written().decode()
    assert sidecars_images(expanded(stream(*given), image="sidecars:9")) == {"sidecars:9"}


def test_what_the_api_server_would_refuse_is_refused_with_each_rule_and_its_place() -> None:
    impossible = streams.nodeset(autoscaling={"min": 5, "max": 2}, powerSaving={"enabled": True})
    run = Run(namespace="slurm")
    given = stream(*(it for it in streams.stream() if it["kind"] != "NodeSet"), impossible)
    with pytest.raises(PostrenderError):
        applied(given, {"expand": {}}, run=run)
    assert all(
        it.severity == "error" and "NodeSet slurm-worker-slinky" in it.place for it in run.findings
    )
    messages = "\n".join(it.message for it in run.findings)
    assert "spec.autoscaling" in messages
    assert "powerSaving" in messages


def test_a_second_run_changes_nothing_and_a_stream_without_custom_resources_stays() -> None:
    once = expanded(stream(*streams.stream()))
    assert expanded(once).written() == once.written()
    plain = stream(config_map("only"))
    assert expanded(plain).written() == plain.written()


def test_new_objects_have_the_annotation_of_helm_4() -> None:
    given = streams.stream()
    for item in given:
        annotations = item["metadata"].setdefault("annotations", {})
        annotations[FILE_ANNOTATION] = f"slurm/{item['kind']}.yaml"
    text = "".join(f"---\n{yaml.safe_dump(it)}" for it in given)
    found = objects(expanded(Stream.read(text.encode())))
    assert {it["metadata"]["annotations"].get(FILE_ANNOTATION, "") for it in found} == {
        "slurm/Secret.yaml",
        *(f"slurm/{kind}.yaml" for kind in ("Controller", "RestApi", "LoginSet", "NodeSet")),
    }
    pods = [it["spec"]["template"]["metadata"] for it in found if "template" in it.get("spec", {})]
    assert not [it for it in pods if FILE_ANNOTATION in it.get("annotations", {})]


def test_items_of_a_list_are_replaced_too() -> None:
    items = [config_map("kept"), *streams.stream()]
    given = stream({"apiVersion": "v1", "kind": "List", "items": items})
    found = objects(expanded(given))
    assert found[0]["metadata"]["name"] == "kept"
    assert "StatefulSet" in {it["kind"] for it in found}
    assert not [it for it in found if it["apiVersion"].startswith("slinky")]


def test_secrets_that_exist_are_named_in_the_settings() -> None:
    given = [it for it in streams.stream() if it["kind"] != "Secret"]
    with pytest.raises(PostrenderError, match="add it to the stream, or name it in `secrets`"):
        expanded(stream(*given))
    assert objects(
        expanded(stream(*given), secrets=["slurm-auth-slurm", "slurm-auth-jwt", "slurm-sssd-conf"])
    )


def test_accounts_whose_tokens_pods_may_have_are_named_in_the_settings() -> None:
    template = {"spec": {"serviceAccountName": "mine", "automountServiceAccountToken": True}}
    given = [it for it in streams.stream() if it["kind"] != "LoginSet"]
    given.append(streams.loginset(template=template))
    with pytest.raises(PostrenderError, match="'slurm/mine' to allowedServiceAccounts"):
        expanded(stream(*given))
    assert objects(expanded(stream(*given), allowedServiceAccounts=["slurm/mine"]))


def test_a_folder_of_another_version_is_refused_and_the_default_image_is_the_releases(
    tmp_path: Path,
) -> None:
    assert site({}, Run(folder=tmp_path), "").sidecars_image == DEFAULT_IMAGE
    with pytest.raises(
        PostrenderError, match=r"version\.yaml doesn't exist: is this the folder of workloads\?"
    ):
        site({"workloads": "."}, Run(folder=tmp_path), "")
