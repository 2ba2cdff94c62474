"""Where objects have pods, containers and images."""

from typing import Any

from postrender import pods


def test_containers_are_found_in_pods_templates_and_fields_of_custom_resources() -> None:
    spec = {"initContainers": [{"name": "a"}], "containers": [{"name": "b"}]}
    want = [("initContainers", 0), ("containers", 0)]
    for value, prefix in (
        ({"kind": "Pod", "spec": spec}, ("spec",)),
        ({"kind": "DaemonSet", "spec": {"template": {"spec": spec}}}, ("spec", "template", "spec")),
        (
            {"kind": "CronJob", "spec": {"jobTemplate": {"spec": {"template": {"spec": spec}}}}},
            ("spec", "jobTemplate", "spec", "template", "spec"),
        ),
    ):
        assert [path for path, _ in pods.containers(value)] == [(*prefix, *path) for path in want]
    nodeset = {
        "kind": "NodeSet",
        "spec": {"slurmd": {}, "logfile": {}, "template": {"spec": {"containers": [{}]}}},
    }
    assert [path for path, _ in pods.containers(nodeset)] == [
        ("spec", "template", "spec", "containers", 0),
        ("spec", "slurmd"),
        ("spec", "logfile"),
    ]


def test_images_are_those_of_containers_and_volumes_and_texts_of_the_environment() -> None:
    spec = {
        "containers": [{"image": "a:1", "env": [{"name": "X", "value": "b:2"}, {"name": "Y"}]}],
        "volumes": [
            {"name": "v", "image": {"reference": "c:3"}},
            {"name": "w", "rbd": {"image": "disk"}},
        ],
    }
    assert [image for _, image in pods.images({"kind": "Pod", "spec": spec})] == [
        "a:1",
        "b:2",
        "c:3",
    ]


def test_objects_of_any_shape_are_walked() -> None:
    shapes: list[Any] = [
        None,
        [],
        {},
        "x",
        1,
        [None],
        {"spec": None},
        {"containers": {}},
        {"containers": ["x"]},
    ]
    for kind in ("Pod", "Deployment", "NodeSet"):
        for shape in shapes:
            for value in (
                {"kind": kind, "spec": shape},
                {"kind": kind, "spec": {"template": {"spec": shape}}},
            ):
                assert list(pods.images(value)) == []


def test_a_value_is_put_into_a_copy() -> None:
    value = {"a": [{"b": 1}, {"c": 2}]}
    assert pods.put(value, ("a", 1, "c"), 3) == {"a": [{"b": 1}, {"c": 3}]}
    assert value == {"a": [{"b": 1}, {"c": 2}]}
    assert pods.at(value, ("a", 1, "c")) == 2
    assert pods.at(value, ("a", 7, "c")) is None
    assert pods.at(value, ("a", "x")) is None
