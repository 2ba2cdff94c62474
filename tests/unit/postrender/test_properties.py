"""Whatever the stream and the steps: documents that aren't selected stay, and a second run changes
nothing.
"""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from postrender import reading, writing
from postrender.report import Run
from postrender.stream import Stream
from tests.support.streams import applied

WORDS = st.sampled_from(
    ["a", "on", "y", "1e3", "0o14", "x: y", "- z", "line\nline\n", "ghcr.io/a/b:1", "nginx", ""]
)
NAMES = st.sampled_from(["one", "two", "three"])
KINDS = st.sampled_from(["ConfigMap", "Deployment", "NodeSet", "ClusterRole", "Secret"])
LABELS = st.dictionaries(st.sampled_from(["app", "team"]), WORDS, max_size=2)
CONTAINERS = st.lists(
    st.fixed_dictionaries({"name": NAMES, "image": WORDS}),
    max_size=2,
    unique_by=lambda it: it["name"],
)


@st.composite
def kubernetes_objects(draw: st.DrawFn) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": draw(KINDS),
        "metadata": {"name": draw(NAMES), "labels": draw(LABELS)},
        "data": draw(st.dictionaries(NAMES, WORDS, max_size=2)),
        "spec": {"template": {"spec": {"containers": draw(CONTAINERS)}}},
    }


DOCUMENTS = st.one_of(
    kubernetes_objects().map(writing.document),
    st.lists(kubernetes_objects(), max_size=2).map(
        lambda items: writing.document({"kind": "List", "items": items})
    ),
    st.sampled_from(
        ["# only a comment\n", "\n", "kind:   ConfigMap   # odd\nmetadata: {name: one}\nn: 0o14\n"]
    ),
)
STREAMS = st.lists(DOCUMENTS, min_size=1, max_size=5).map(
    lambda found: "".join(f"---\n{it}" for it in found)
)
SELECT = st.fixed_dictionaries({"kind": KINDS, "name": NAMES}).map(lambda it: {"select": [it]})
PATCH = {"spec": {"template": {"spec": {"containers": [{"name": "one", "tty": True}]}}}}
STEPS = st.lists(
    st.one_of(
        st.builds(
            lambda more: {
                "labels": {"set": {"team": "on"}, "remove": ["app"], "pods": True, **more}
            },
            SELECT,
        ),
        st.builds(lambda more: {"annotations": {"set": {"a": "1e3"}, **more}}, SELECT),
        st.builds(
            lambda more: {
                "images": {"rewrite": {"ghcr.io": "ghcr.io/x", "docker.io": "m"}, **more}
            },
            SELECT,
        ),
        st.builds(lambda more: {"namespace": {"name": "new", **more}}, SELECT),
        st.builds(
            lambda more: {"patch": {"merge": {"data": {"one": None, "b": "y"}}, **more}}, SELECT
        ),
        st.builds(lambda more: {"patch": {"strategic": PATCH, **more}}, SELECT),
    ),
    min_size=1,
    max_size=4,
)


@given(STREAMS, STEPS)
def test_a_second_run_changes_nothing_and_what_is_not_selected_stays(
    text: str, steps: list[dict[str, Any]]
) -> None:
    before = Stream.read(text.encode())
    once = applied(Stream.read(text.encode()), *steps, run=Run(namespace="slurm"))
    assert (
        applied(Stream.read(once.written()), *steps, run=Run(namespace="slurm")).written()
        == once.written()
    )
    wanted = [step[name]["select"][0] for step in steps for name in step]
    for old, new in zip(before.documents, once.documents, strict=True):
        if not any({"kind": it.kind, "name": it.name} in wanted for it in old.objects):
            assert new.text == old.text
        reading.load(new.text)
