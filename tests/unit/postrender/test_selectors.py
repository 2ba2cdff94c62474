"""Which objects a step works on."""

import pytest

from postrender.errors import PostrenderError
from postrender.selectors import Selection, Selector
from postrender.stream import Stream
from tests.support.streams import config_map, stream

OBJECTS = (
    config_map("one", labels={"app": "a"}, data={"x": "1"}),
    config_map("two", labels={"app": "b"}, data={"x": "2"}),
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "one", "namespace": "other"}},
    {"apiVersion": "v1", "kind": "List", "items": [config_map("three"), {"kind": "Pod", "metadata": {"name": "four"}}]},
)


def selected(*selectors: Selector) -> list[str]:
    return [f"{it.kind} {it.name}" for it in Selection("step", list(selectors)).objects(stream(*OBJECTS))]


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
    assert selected({"kind": "Pod"}, {"name": "four"}, {"name": "two"}) == ["ConfigMap two", "Pod four"]
    assert len(selected()) == 5


def test_a_document_that_cannot_match_is_not_parsed() -> None:
    text = "kind: A\nmetadata:\n  name: a\nspec:\n  a: [\n---\nkind: B\nmetadata:\n  name: b\n"
    assert [it.name for it in Selection("step", [{"kind": "B"}]).objects(Stream.read(text.encode()))] == ["b"]
    with pytest.raises(PostrenderError):
        list(Selection("step", [{"name": "?"}]).objects(Stream.read(text.encode())))


def test_what_is_required_must_be_there() -> None:
    with pytest.raises(PostrenderError, match=r"file line 2: steps\[0\]\.labels: no object of the stream is selected"):
        list(Selection("file line 2: steps[0].labels", [{"kind": "X"}], required=True).objects(stream(*OBJECTS)))


@pytest.mark.parametrize("text", ["a ==", "[?", "foo(", "nope(@)"])
def test_an_expression_that_is_no_jmespath_is_an_error_that_shows_it(text: str) -> None:
    with pytest.raises(PostrenderError) as caught:
        list(Selection("step", [{"where": text}]).objects(stream(*OBJECTS)))
    assert text in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_expression_that_fails_names_the_object() -> None:
    with pytest.raises(
        PostrenderError, match=r"document 1 \(chart/templates/1.yaml\), line 3, ConfigMap one: `length\(data.x2\)`"
    ):
        list(Selection("step", [{"where": "length(data.x2)"}]).objects(stream(*OBJECTS)))
