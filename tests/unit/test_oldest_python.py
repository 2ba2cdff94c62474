"""What the first releases of Python 3.11 lack or do otherwise. Debian 12 has 3.11.2, and CI a newer
one.
"""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FILES = sorted(
    path
    for folder in ("sidecars", "postrender", "release", "schemas", "tests")
    for path in (ROOT / folder).rglob("*.py")
)
UNPACKING = {"extract", "extractall", "unpack_archive"}


def faults(text: str) -> Iterator[str]:
    """Filters of tarfile, which are in 3.11.4, and members of an Enum that are an empty tuple."""
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            if name in UNPACKING and any(it.arg == "filter" for it in node.keywords):
                yield f"line {node.lineno}: {name} has no filter before Python 3.11.4"
        elif isinstance(node, ast.ClassDef) and any("Enum" in ast.unparse(it) for it in node.bases):
            for member in node.body:
                if isinstance(member, ast.Assign) and ast.unparse(member.value) == "()":
                    yield f"line {member.lineno}: an object in Python 3.11.2, not an empty tuple"


def test_nothing_needs_a_later_release_of_python_3_11() -> None:
    found = {
        str(path.relative_to(ROOT)): problems
        for path in FILES
        if (problems := list(faults(path.read_text(encoding="utf-8"))))
    }
    assert found == {}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('archive.extractall(folder, filter="data")', 1),
        ('shutil.unpack_archive(file, folder, filter="data")', 1),
        ("archive.add(file, filter=anonymous)", 0),
        ("class A(Enum):\n    NO = ()\n    YES = (1,)\n", 1),
        ("class A(NamedTuple):\n    NO = ()\n", 0),
    ],
)
def test_such_a_line_is_found(text: str, count: int) -> None:
    assert len(list(faults(text))) == count
