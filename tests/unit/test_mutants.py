"""The table of mutants is up to date, and its runner finds what no test finds: `tests.mutants`."""

import ast
import subprocess
from pathlib import Path

import pytest

from tests.mutants.__main__ import check
from tests.mutants.table import ROOT, Mutant, load
from tests.support import named_tests

MUTANTS = load()


def test_each_mutant_changes_a_text_that_its_file_contains_once_into_one_that_can_be_read() -> None:
    changed = {mutant.name: (mutant.file, mutant.mutated(ROOT)) for mutant in MUTANTS}
    assert [name for name, (_, text) in changed.items() if text is None] == []
    for file, text in changed.values():
        if file.endswith(".py"):
            ast.parse(text or "")


def test_each_test_that_is_named_for_a_mutant_exists() -> None:
    assert all(mutant.tests for mutant in MUTANTS)
    assert {
        test for mutant in MUTANTS for test in mutant.tests if "::" not in test or not named_tests.exists(test)
    } == set()


def test_no_two_mutants_have_one_name() -> None:
    names = [mutant.name for mutant in MUTANTS]
    assert sorted(set(names)) == sorted(names)


TESTS = """
import pytest
from code_of_it import double


@pytest.mark.parametrize("number", [1, 2])
def test_double(number):
    assert double(number) == 2 * number


def test_nothing():
    assert double


def test_that_fails():
    raise AssertionError
"""


def mutant(name: str, becomes: str, *tests: str, text: str = "2 * number") -> Mutant:
    return Mutant(name, "wrong", "code_of_it.py", text, becomes, tuple(f"tests/test_it.py::{test}" for test in tests))


@pytest.mark.timeout(300)
def test_a_mutant_is_caught_only_if_each_of_its_tests_fails_and_passes_without_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # pytest starts faster
    (tmp_path / "tests").mkdir()
    (tmp_path / "code_of_it.py").write_text("def double(number):\n    return 2 * number\n")
    (tmp_path / "tests/test_it.py").write_text(TESTS)
    subprocess.run(["git", "init", "--quiet", "."], cwd=tmp_path, check=True)
    wanted = {
        mutant("caught", "2", "test_double"): "caught",
        mutant("caught by one of two", "number + 1", "test_double", "test_nothing"): "SURVIVED",
        mutant("moved", "2", "test_double", text="3 * number"): "no place",
        mutant("fails anyway", "2", "test_that_fails"): "test fails",
        mutant("unknown test", "2", "test_missing"): "test fails",
        mutant("not Python", "2 *", "test_double"): "not run",
    }
    results = check(tmp_path, list(wanted))
    assert {result.mutant: result.word for result in results} == wanted
    assert [result.detail for result in results if result.word == "SURVIVED"] == [
        "  in spite of the defect these pass:\n    tests/test_it.py::test_nothing"
    ]
    assert "SURVIVED   caught by one of two" in capsys.readouterr().out
    assert (tmp_path / "code_of_it.py").read_text() == "def double(number):\n    return 2 * number\n"
