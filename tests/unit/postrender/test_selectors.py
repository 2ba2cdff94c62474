"""Which objects a step works on."""

from typing import Any

import pytest

from postrender import reading
from postrender.configuration import StepSettings, steps
from postrender.errors import PostrenderError
from postrender.selectors import Selection, Selector
from postrender.stream import Stream
from tests.support.streams import config_map, stream

OBJECTS = (
    config_map("one", labels={"app": "a"}, data={"x": "1"}),
    config_map("two", labels={"app": "b"}, data={"x": "2"}),
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "one", "namespace": "other"}},
    {
        "apiVersion": "v1",
        "kind": "List",
        "items": [config_map("three"), {"kind": "Pod", "metadata": {"name": "four"}}],
    },
)


def step() -> StepSettings[Any]:
    """A step with two selectors, the second with an expression."""
    text = """\
steps:
- labels:
    set: {a: b}
    required: true
    select:
    - kind: X
    - kind: Z
      where: a
"""
    [found] = steps(reading.load(text), "postrender.yaml", text)
    return found


def selected(*selectors: Selector) -> list[str]:
    return [
        f"{it.kind} {it.name}"
        for it in Selection(step(), list(selectors)).objects(stream(*OBJECTS))
    ]


@pytest.mark.parametrize(
    ("selector", "want"),
    [
        ({"kind": "Service"}, ["Service one"]),
        ({"kind": ["Pod", "Serv*"]}, ["Service one", "Pod four"]),
        ({"name": "t*"}, ["ConfigMap two", "ConfigMap three"]),
        ({"kind": "ConfigMap", "name": "one"}, ["ConfigMap one"]),
        ({"namespace": "other"}, ["Service one"]),
        ({"labels": {"app": "b"}}, ["ConfigMap two"]),
        ({"where": "data.x == '2'"}, ["ConfigMap two"]),
        ({"where": "data"}, ["ConfigMap one", "ConfigMap two"]),
        ({"kind": "List"}, []),
        ({"kind": "configmap"}, []),
    ],
)
def test_all_fields_of_a_selector_must_match(selector: Selector, want: list[str]) -> None:
    assert selected(selector) == want


def test_an_object_is_selected_once_by_any_of_several_selectors_and_without_one_always() -> None:
    assert selected({"kind": "Pod"}, {"name": "four"}, {"name": "two"}) == [
        "ConfigMap two",
        "Pod four",
    ]
    assert len(selected()) == 5


def test_a_document_that_cannot_match_is_not_parsed() -> None:
    text = "kind: A\nmetadata:\n  name: a\nspec:\n  a: [\n---\nkind: B\nmetadata:\n  name: b\n"
    assert [
        it.name for it in Selection(step(), [{"kind": "B"}]).objects(Stream.read(text.encode()))
    ] == ["b"]
    with pytest.raises(PostrenderError):
        list(Selection(step(), [{"name": "?"}]).objects(Stream.read(text.encode())))


@pytest.mark.parametrize(
    ("selectors", "nearest"),
    [
        ([{"kind": "X"}], "the stream has ConfigMap, Pod, Service"),
        (
            [{"kind": "X"}, {"kind": "Pod", "name": "five"}],
            "Pod four comes closest, and doesn't match select[1].name",
        ),
        (
            [{"kind": "ConfigMap", "name": "t*", "namespace": "slurm"}],
            (
                "(chart/templates/2.yaml), line 13, ConfigMap two comes closest, and doesn't match "
                "select[0].namespace"
            ),
        ),
        (
            [{"name": "o*", "labels": {"app": "b"}}],
            "ConfigMap one comes closest, and doesn't match select[0].labels",
        ),
        (
            [{"name": "one", "where": "data.x == '3'"}],
            "ConfigMap one comes closest, and doesn't match select[0].where",
        ),
    ],
)
def test_what_is_required_must_be_there_and_the_error_names_what_comes_closest(
    selectors: list[Selector], nearest: str
) -> None:
    with pytest.raises(PostrenderError) as caught:
        list(Selection(step(), selectors, required=True).objects(stream(*OBJECTS)))
    place = "postrender.yaml line 4: steps[0].labels.required"
    want = f"{place}: no object of the stream is selected, and `required` is true; "
    assert str(caught.value).startswith(want)
    assert nearest in str(caught.value)


@pytest.mark.parametrize("text", ["a ==", "[?", "foo(", "nope(@)"])
def test_an_expression_that_is_no_jmespath_is_an_error_that_shows_it(text: str) -> None:
    with pytest.raises(PostrenderError) as caught:
        list(Selection(step(), [{"kind": "X"}, {"where": text}]).objects(stream(*OBJECTS)))
    assert str(caught.value).startswith("postrender.yaml line 8: steps[0].labels.select[1].where: ")
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_expression_that_fails_names_the_object() -> None:
    with pytest.raises(PostrenderError) as caught:
        list(
            Selection(step(), [{"kind": "X"}, {"where": "length(data.x2)"}]).objects(
                stream(*OBJECTS[1:], OBJECTS[0])
            )
        )
    assert str(caught.value) == (
        "postrender.yaml line 8: steps[0].labels.select[1].where: document 1 "
        "(chart/templates/1.yaml), line 3, ConfigMap two: `length(data.x2)`: length() takes "
        "string or array or object, not null"
    )


@pytest.mark.parametrize(
    "text",
    [
        "abs(data.password)",
        "length(data.*.nothing(@))",
        "sum(data.*)",
        "max_by(@.items, &key)",
        "sort_by(items, &key)",
        "items[].key | sort(@)",
        "join(data.password, items)",
    ],
)
def test_an_expression_that_fails_shows_no_value_of_the_object(text: str) -> None:
    given = config_map("a", data={"password": "hunter2"}, items=[{"key": 1}, {"key": "hunter2"}])
    with pytest.raises(PostrenderError) as caught:
        list(Selection(step(), [{"where": text}]).objects(stream(given)))
    assert "ConfigMap a" in str(caught.value)
    assert "hunter2" not in str(caught.value)
