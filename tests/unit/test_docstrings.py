"""A function's docstring begins with a verb in the imperative, and names what it returns in a
sentence.

ruff's D401 finds the verbs that are in another form. It knows neither question words nor articles.
"""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = ("sidecars", "postrender", "schemas", "release")
NO_VERB = re.compile(
    r"(A|After|All|An|And|As|At|Between|Both|By|Each|Every|Everything|For|From|How|If|In|It|Its|"
    r"Like|None|Nothing|Of|On|One|Only|Our|Raises|Returns|Since|So|That|The|These|They|This|Those|"
    r"To|What|When|Where|Whether|Which|Who|Whose|Why|With|Without)\b"
)
DECORATORS = {"property", "cached_property", "setter"}


def without_a_verb(source: str) -> list[str]:
    """Return the functions whose docstring begins with another word than a verb."""
    return [
        f"{it.lineno}: {it.name}"
        for it in ast.walk(ast.parse(source))
        if isinstance(it, ast.FunctionDef | ast.AsyncFunctionDef)
        and NO_VERB.match(ast.get_docstring(it) or "")
        and not any(
            DECORATORS & {getattr(name, "id", ""), getattr(name, "attr", "")}
            for name in it.decorator_list
        )
    ]


def test_a_docstring_that_is_a_value_is_found() -> None:
    functions = """
def f(): "Whether it is."
def g(): "Return whether it is."
class C:
    @property
    def h(self): "Whether it is."
    def i(self): "The size."
    def j(self): "Thermalize."
"""
    assert without_a_verb(functions) == ["2: f", "7: i"]


@pytest.mark.parametrize("package", PACKAGES)
def test_the_docstring_of_each_function_of_the_product_begins_with_a_verb(package: str) -> None:
    found = [
        f"{path.relative_to(ROOT)}:{function}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for function in without_a_verb(path.read_text(encoding="utf-8"))
    ]
    assert found == []
