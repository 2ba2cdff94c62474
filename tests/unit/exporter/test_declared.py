"""The variable that lists NodeSets."""

import json
from typing import Any

import pytest

from sidecars.autoscaling.records import Shape
from sidecars.exporter.declared import Declared, declared
from sidecars.slurm.gres import Gres


def test_what_is_not_set_has_its_default() -> None:
    assert declared("") == ()
    assert declared('[{"name": "cpu", "maxReplicas": 9}]') == (
        Declared("cpu", max=9, feature="cpu"),
    )


def test_a_shape_stands_for_nodes_that_do_not_exist_yet() -> None:
    shape = {
        "sockets": 2,
        "coresPerSocket": 8,
        "threadsPerCore": 2,
        "memory": 64000,
        "gres": "gpu:h100:4",
        "specializedCores": 3,
    }
    (found,) = declared(
        json.dumps(
            [{"name": "gpu", "maxReplicas": 2, "minReplicas": 1, "price": 4, "shape": shape}]
        )
    )
    assert (found.min, found.price) == (1, 4.0)
    assert found.shape == Shape(
        2, 8, 2, 64000, (Gres("gpu", "h100", 4),), frozenset({"gpu"}), specialized_cores=3
    )


@pytest.mark.parametrize(
    ("item", "text"),
    [
        (7, r"\[0\] is 7: give an object"),
        ({"maxReplicas": 1}, r"\[0\].name is None: give the name"),
        ({"name": "a"}, r"\[0\].maxReplicas is None: give a number"),
        ({"name": "a", "maxReplicas": 1.5}, r"\[0\].maxReplicas is 1.5: give a whole number"),
        (
            {"name": "a", "maxReplicas": 1, "minReplicas": 2},
            r"\[0\].minReplicas is 2: give at most maxReplicas, 1",
        ),
        (
            {"name": "a", "maxReplica": 1},
            r"has 'maxReplica', which doesn't exist; choose from feature, idleSeconds",
        ),
        (
            {"name": "a", "maxReplicas": 1, "shape": {"memory": 1}},
            r"\[0\].shape.coresPerSocket is None",
        ),
        ({"name": "a", "maxReplicas": 1, "shape": {"gres": "gpu:x:y:z:1"}}, r"\[0\].shape.gres"),
    ],
    ids=str,
)
def test_a_wrong_list_is_refused_with_the_place_and_the_remedy(item: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        declared(json.dumps([item]))


@pytest.mark.parametrize(
    "text", ["{", "{}", '[{"name":"a","maxReplicas":1},{"name":"a","maxReplicas":1}]']
)
def test_what_is_no_list_of_different_nodesets_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="EXPORTER_NODESETS"):
        declared(text)
