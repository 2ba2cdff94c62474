"""Schemas out of YAML files with references."""

from pathlib import Path

import pytest

from schemas import sources


def written(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        (folder / f"{name}.yaml").write_text(text)
    return folder / "main.yaml"


def test_a_reference_puts_the_definition_of_another_file_in_place(tmp_path: Path) -> None:
    path = written(tmp_path, main="port: {$ref: common.yaml#/port}", common="port: {type: integer}")
    assert sources.load(path) == {"port": {"type": "integer"}}


def test_a_reference_may_be_to_the_same_file_and_lead_on(tmp_path: Path) -> None:
    common = "list: {items: {$ref: '#/item'}}\nitem: {type: string}"
    path = written(tmp_path, main="names: {$ref: common.yaml#/list}", common=common)
    assert sources.load(path) == {"names": {"items": {"type": "string"}}}


def test_keys_beside_a_reference_are_merged_over_the_definition(tmp_path: Path) -> None:
    main = (
        "spec: {$ref: '#/base', description: ours, properties: {b: {type: string}}, required: "
        "[b]}\n"
    )
    base = "base: {description: theirs, properties: {a: {type: integer}}, required: [a]}\n"
    loaded = sources.load(written(tmp_path, main=main + base))
    assert loaded["spec"] == {
        "description": "ours",
        "properties": {"a": {"type": "integer"}, "b": {"type": "string"}},
        "required": ["b"],
    }
    assert loaded["base"]["description"] == "theirs"


@pytest.mark.parametrize(
    ("main", "message"),
    [
        ("a: {$ref: '#/b'}", "nothing is defined at #/b"),
        ("a: {$ref: other.yaml#/b}", "other.yaml"),
        ("a: {$ref: main.yaml}", "nothing is defined at main.yaml"),
        ("a: {$ref: '#/b'}\nb: {c: {$ref: '#/b'}}", "#/b refers to itself"),
        ("- a", "not a mapping"),
        ("a: [", "main.yaml"),
    ],
)
def test_a_broken_source_is_an_error_that_names_the_file(
    tmp_path: Path, main: str, message: str
) -> None:
    with pytest.raises(sources.SchemaError) as error:
        sources.load(written(tmp_path, main=main))
    assert message in str(error.value)
    assert str(tmp_path) in str(error.value)
