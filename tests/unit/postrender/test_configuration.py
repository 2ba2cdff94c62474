"""Reading a configuration: steps in order, and errors with file, line and key."""

from pathlib import Path

import pytest

from postrender import configuration
from postrender.errors import PostrenderError
from tests.charts import examples

ROOT = Path(__file__).parents[3]


def read(folder: Path, text: str) -> list[configuration.StepSettings[dict[str, object]]]:
    file = folder / "postrender.yaml"
    file.write_text(text)
    return configuration.read(file)


def test_steps_are_read_in_order_with_their_place(tmp_path: Path) -> None:
    found = read(
        tmp_path, "# ours\nsteps:\n- labels: {set: {a: 'b'}}\n- annotations:\n    remove: [c]\n"
    )
    assert [(it.name, it.settings) for it in found] == [
        ("labels", {"set": {"a": "b"}}),
        ("annotations", {"remove": ["c"]}),
    ]
    assert found[1].place == f"{tmp_path}/postrender.yaml line 4: steps[1].annotations"


@pytest.mark.parametrize(
    ("text", "want"),
    [
        (
            "steps:\n- labels:\n    set: {a: 'b'}\n- lables: {}\n",
            "postrender.yaml line 4: steps[1].lables is unknown (did you mean 'labels'?)",
        ),
        (
            "steps:\n- labels:\n    set: {a: y}\n",
            "postrender.yaml line 3: steps[0].labels.set.a must be text",
        ),
        ("steps: {\n", "postrender.yaml line 1: while parsing"),
        ("", "postrender.yaml: the configuration must be a mapping"),
        ("steps: []\nsteps: []\n", "postrender.yaml line 2: the key 'steps' is set twice"),
    ],
)
def test_a_fault_names_line_and_key(tmp_path: Path, text: str, want: str) -> None:
    with pytest.raises(PostrenderError) as caught:
        read(tmp_path, text)
    assert want in str(caught.value)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(PostrenderError, match=r"absent\.yaml can't be read: No such file"):
        configuration.read(tmp_path / "absent.yaml")
    (tmp_path / "binary").write_bytes(b"\xff")
    with pytest.raises(PostrenderError, match="binary can't be read: no UTF-8 text"):
        configuration.read(tmp_path / "binary")


def test_each_step_of_the_schema_has_its_module_and_each_module_its_step() -> None:
    names = configuration.schema()["properties"]["steps"]["items"]["properties"].keys()
    modules = {path.stem for path in (ROOT / "postrender" / "steps").glob("*.py")} - {"__init__"}
    assert modules == set(names)


def test_the_documentation_has_a_recipe_for_each_step_and_each_is_valid() -> None:
    found = [
        (block.place, document.get("spec", document))
        for block in examples.of_folder(ROOT)
        if block.title in {"postrender.yaml", "preview.yaml"}
        for document in block.documents
    ]
    shown = {step.name for place, value in found for step in configuration.steps(value, place)}
    assert shown == configuration.schema()["properties"]["steps"]["items"]["properties"].keys()
