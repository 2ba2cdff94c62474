"""The step `expand`."""

from pathlib import Path

import pytest
import yaml

from postrender.errors import PostrenderError
from postrender.report import Run
from postrender.steps.expand import DEFAULT_IMAGE, site
from postrender.stream import FILE_ANNOTATION, Stream
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
    assert found.documents[-2].source == "chart/templates/7.yaml"
    [workers] = [it for it in objects(found) if it["metadata"]["name"] == "slinky"]
    images = {it["image"] for it in workers["spec"]["template"]["spec"]["initContainers"]}
    assert images == {"sidecars:9"}


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
    assert objects(expanded(stream(*given), secrets=["slurm-auth-slurm", "slurm-auth-jwt"]))


def test_a_folder_of_another_version_is_refused_and_the_default_image_is_the_releases(tmp_path: Path) -> None:
    assert site({}, Run(folder=tmp_path), "").sidecars_image == DEFAULT_IMAGE
    with pytest.raises(PostrenderError, match=r"version\.yaml doesn't exist: is this the folder of workloads\?"):
        site({"workloads": "."}, Run(folder=tmp_path), "")
