"""The table of mutants is up to date, and its runners find what no test finds: `tests.mutants`."""

import ast
import subprocess
from pathlib import Path

import pytest

from tests.mutants import changes, drawn, generic
from tests.mutants.listed import check, concerned
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
        test
        for mutant in MUTANTS
        for test in mutant.tests
        if "::" not in test or not named_tests.exists(test)
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
    return Mutant(
        name,
        "wrong",
        "code_of_it.py",
        text,
        becomes,
        tuple(f"tests/test_it.py::{test}" for test in tests),
    )


@pytest.mark.timeout(600)
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
    assert (
        tmp_path / "code_of_it.py"
    ).read_text() == "def double(number):\n    return 2 * number\n"


def test_a_mutant_is_run_when_its_file_its_test_or_its_own_row_has_changed() -> None:
    one, other, new = (mutant(name, "1", "test_double") for name in ("one", "other", "new"))
    moved = Mutant(
        "moved", "wrong", "another.py", "a", "b", ("charts/x/tests/a_test.yaml::it: works",)
    )
    before = [one, other, moved]
    assert concerned([one, moved], {"code_of_it.py"}, before) == [one]
    assert concerned([one, moved], {"tests/test_it.py"}, before) == [one]
    assert concerned([one, moved], {"charts/x/tests/a_test.yaml"}, before) == [moved]
    assert concerned([one, new], {"README.md"}, before) == [new]


def git(folder: Path, *words: str) -> str:
    identity = ("-c", "user.name=t", "-c", "user.email=t@example.com")
    done = subprocess.run(
        ["git", *identity, *words], cwd=folder, capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def commit(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--no-gpg-sign", "--message", name)
    return git(folder, "rev-parse", "HEAD")


def test_changed_lines_are_those_of_commits_the_working_tree_and_files_that_git_does_not_know(
    tmp_path: Path,
) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=main", ".")
    first = commit(tmp_path, "a.py", "1\n2\n3\n")
    commit(tmp_path, "b.py", "1\n")
    (tmp_path / "a.py").write_text("1\n2\nchanged\nadded\n")
    (tmp_path / "c.py").write_text("1\n2\n")
    assert changes.files(tmp_path, first) == {"a.py", "b.py", "c.py"}
    assert changes.lines(tmp_path, first) == {"a.py": {3, 4}, "b.py": {1}, "c.py": {1, 2}}
    assert changes.lines(tmp_path, "") == {"a.py": {1, 2, 3, 4}, "b.py": {1}, "c.py": {1, 2}}


def test_changes_count_from_where_the_branch_begins_and_on_main_itself_from_the_recent_commits(
    tmp_path: Path,
) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=main", ".")
    commits = [commit(tmp_path, "a.py", f"{number}\n") for number in range(changes.RECENT)]
    assert changes.base(tmp_path) == "", "all of a short history"
    commits += [commit(tmp_path, "a.py", f"{number}\n") for number in range(100, 103)]
    assert changes.base(tmp_path) == commits[2], "without origin/main"
    git(tmp_path, "update-ref", "refs/remotes/origin/main", "HEAD")
    assert changes.base(tmp_path) == commits[2], "a clone of it"
    (tmp_path / "new.py").touch()
    assert changes.base(tmp_path) == commits[-1], "something has changed since"
    commit(tmp_path, "b.py", "")
    assert changes.base(tmp_path) == commits[-1], "a branch"
    assert changes.base(tmp_path, "HEAD~3") == commits[-3]
    with pytest.raises(ValueError, match="nothing-known"):
        changes.base(tmp_path, "nothing-known")


@pytest.mark.parametrize(
    ("line", "mutants"),
    [
        ("a = b == c", ["a = b != c"]),
        ("a = b < c", ["a = b <= c", "a = b >= c"]),
        ("a = b not in c", ["a = b in c"]),
        ("a = b is not None", ["a = b is None"]),
        ("a = (b) is (c)", ["a = (b) is not (c)"]),
        (
            "a = b < c <= d",
            ["a = b < c < d", "a = b < c > d", "a = b <= c <= d", "a = b >= c <= d"],
        ),
        ("a = b and c or d", ["a = b and c and d", "a = b or c or d"]),
        ("a = not b", ["a = b"]),
        ("a = b + 1", ["a = b - 1"]),
        ("a = b + 'c'", []),
        ("a = 'ä' if b else c", ["a = 'ä' if not (b) else c"]),
        ("a = [b for b in c if b.d]", ["a = [b for b in c if not (b.d)]"]),
        ("def a(): return b", ["def a(): return None"]),
        ("def a(): return False", ["def a(): return True"]),
        ("def a(): return None", []),
        ("def a(): return 0", ["def a(): return 1"]),
        ("while a: b()", ["while not (a): b()"]),
        ("if TYPE_CHECKING: import a", []),
        ("a: str | None = b", []),
        ("A = B | C", []),
        ("if __name__ == '__main__': a()", []),
    ],
)
def test_generic_mutants_are_those_of_the_line(line: str, mutants: list[str]) -> None:
    assert sorted(it.words[1] for it in generic.changes("a.py", f"# ü\n{line}\n")) == mutants


def test_a_change_of_several_lines_replaces_them_and_leaves_the_others() -> None:
    source = "first = 1\na = (\n    b\n    and c\n)\nlast = 2\n"
    [change] = generic.changes("a.py", source)
    assert change.applied(source) == source.replace("and", "or")
    assert generic.changes("a.py", source, {1, 6}) == []


def test_each_listed_equivalent_is_a_mutant_that_would_be_drawn_otherwise() -> None:
    for each in generic.equivalents():
        assert each.reason
        found = generic.changes(each.file, (ROOT / each.file).read_text(encoding="utf-8"))
        assert (each.before, each.after) in {it.words for it in found}, each


def test_a_random_mutant_is_drawn_again_for_the_same_commit_and_never_an_equivalent_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "init", "--quiet", "--initial-branch=main", ".")
    (tmp_path / "sidecars").mkdir()
    lines = [f"a{number} = b == c" for number in range(20)]
    commit(tmp_path, "sidecars/a.py", "\n".join(lines))
    first = drawn.draw(tmp_path, 5, None)
    assert len({it.line for it in first}) == 5
    assert drawn.draw(tmp_path, 5, None) == first
    assert {it.line for it in drawn.draw(tmp_path, 5, {"sidecars/a.py": {3, 4}})} == {3, 4}
    known = [generic.Equivalent("sidecars/a.py", *it.words, "nobody reads it") for it in first]
    monkeypatch.setattr(drawn, "equivalents", lambda: known)
    assert {it.line for it in drawn.draw(tmp_path, 20, None)} == set(range(1, 21)) - {
        it.line for it in first
    }
    git(tmp_path, "commit", "--quiet", "--no-gpg-sign", "--allow-empty", "--message=another")
    assert drawn.draw(tmp_path, 5, None) != first


@pytest.mark.timeout(600)
def test_a_random_mutant_is_caught_by_its_own_test_or_by_one_around_it_and_otherwise_survives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # pytest starts faster
    for folder in ("sidecars/part", "tests/unit/part"):
        (tmp_path / folder).mkdir(parents=True)
    source = (
        "def low(a):\n    return a < 3\n\ndef same(a):\n    return a == 3\n\ndef "
        "unknown(a):\n    return a in (3, 4)\n"
        "\ndef early(a):\n    return a != 7\n\ndef fixed(a):\n    return a is not a\n"
    )
    (tmp_path / "sidecars/part/a.py").write_text(source)
    (tmp_path / "sidecars/part/b.py").write_text(
        "from sidecars.part.a import same\n\ndef other(a):\n    return not same(a)\n"
    )
    of_a = """from sidecars.part.a import early, low

assert early(3)

def test_it():
    assert low(2) and not low(3)
"""
    of_b = """import pytest
from sidecars.part.a import fixed
from sidecars.part.b import other

@pytest.fixture
def ready():
    assert not fixed(3)

def test_it(ready):
    assert other(2)
"""
    for name, test in (("a", of_a), ("b", of_b)):
        (tmp_path / f"tests/unit/part/test_{name}.py").write_text(test)
    (tmp_path / "conftest.py").touch()
    git(tmp_path, "init", "--quiet", "--initial-branch=main", ".")
    wanted = [
        it for it in generic.changes("sidecars/part/a.py", source) if "None" not in it.words[1]
    ]
    found = {
        outcome.change.words[1]: (outcome.word, outcome.test)
        for outcome in drawn.check(tmp_path, wanted)
    }
    assert found == {
        "return a <= 3": ("caught", "tests/unit/part/test_a.py::test_it"),
        "return a >= 3": ("caught", "tests/unit/part/test_a.py::test_it"),
        "return a != 3": ("caught", "tests/unit/part/test_b.py::test_it"),
        "return a == 7": ("caught", "tests/unit/part/test_a.py can't be imported"),
        "return a is a": ("caught", "tests/unit/part/test_b.py::test_it"),
        "return a not in (3, 4)": ("SURVIVED", ""),
    }
    assert (tmp_path / "sidecars/part/a.py").read_text() == source
