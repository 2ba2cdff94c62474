"""What a change touches: by imports, by the data that is named, and by the subjects of tests with
real daemons.
"""

import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cluster.errors import ClusterError
from tests.run import since, subjects
from tests.run.stages import ROOT

FILES: Mapping[str, str] = {
    "sidecars/__init__.py": "",
    "sidecars/base.py": "",
    "sidecars/logs/__init__.py": "",
    "sidecars/logs/tails.py": "def f():\n    from sidecars import base",
    "tests/__init__.py": "",
    "tests/support.py": "PATH = 'docs/keys.md'",
    "tests/unit/test_gate.py": "",
    "tests/unit/logs/conftest.py": "from tests import support",
    "tests/unit/logs/test_tails.py": "from sidecars.logs import tails",
    "tests/unit/other/test_other.py": "import json",
    "tests/unit/other/test_program.py": "COMMAND = ['-m', 'sidecars.logs.tails']",
    "tests/e2e/harness.py": "",
    "tests/e2e/test_job_logs.py": "from tests.e2e import harness",
    "tests/e2e/test_keys.py": "",
    "tests/slurm/test_new.py": "",
}


@pytest.fixture
def repository(tmp_path: Path) -> since.Repository:
    for path, text in FILES.items():
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return since.Repository(tmp_path)


def test_a_unit_test_is_touched_by_what_it_imports_directly_or_not_or_runs_as_a_program(
    repository: since.Repository,
) -> None:
    choice = since.choose(repository, ["sidecars/base.py"])
    assert choice.of("tests/unit/") == [
        "tests/unit/logs/test_tails.py",
        "tests/unit/other/test_program.py",
        "tests/unit/test_gate.py",
    ]
    assert "tests/unit/other/test_other.py" in choice.left_out


def test_the_package_around_a_module_counts_as_imported(repository: since.Repository) -> None:
    touched = since.choose(repository, ["sidecars/logs/__init__.py"]).of("tests/unit/logs/")
    assert touched == ["tests/unit/logs/test_tails.py"]


def test_data_touch_the_tests_whose_conftest_imports_a_module_that_names_them(
    repository: since.Repository,
) -> None:
    choice = since.choose(repository, ["docs/keys.md"])
    assert choice.of("tests/unit/") == ["tests/unit/logs/test_tails.py", "tests/unit/test_gate.py"]
    assert choice.stages == {"charts", "docs"}
    assert choice.of("tests/e2e/", "tests/slurm/") == []


def test_a_test_with_real_daemons_is_touched_by_its_subject_and_by_its_harness(
    repository: since.Repository,
) -> None:
    assert since.choose(repository, ["sidecars/logs/tails.py"]).of("tests/e2e/") == [
        "tests/e2e/test_job_logs.py"
    ]
    assert since.choose(repository, ["tests/e2e/harness.py"]).of("tests/e2e/") == [
        "tests/e2e/test_job_logs.py"
    ]
    assert since.choose(repository, ["tests/e2e/test_keys.py"]).of("tests/e2e/") == [
        "tests/e2e/test_keys.py"
    ]


def test_a_test_without_a_subject_is_touched_by_each_change_of_the_product(
    repository: since.Repository,
) -> None:
    assert since.choose(repository, ["sidecars/logs/tails.py"]).of("tests/slurm/") == [
        "tests/slurm/test_new.py"
    ]
    assert since.choose(repository, ["docs/keys.md"]).of("tests/slurm/") == []


@pytest.mark.parametrize(
    "path",
    ["pyproject.toml", "requirements/dev.txt", "tests/cluster/nodes.py", "tests/conftest.py"],
)
def test_a_change_of_what_all_tests_stand_on_runs_everything(
    repository: since.Repository, path: str
) -> None:
    choice = since.choose(repository, ["README.md", path])
    assert choice.whole == path
    assert choice.left_out == []
    assert len(choice.tests) == sum("/test_" in name for name in FILES)


def test_the_summary_names_what_runs_and_what_is_left_out(repository: since.Repository) -> None:
    changes = ["sidecars/logs/tails.py"]
    assert since.summary(since.choose(repository, changes), changes, "main") == [
        "1 files differ from main",
        "runs: static checks, verify, 3 files of unit tests",
        "runs: tests/e2e/test_job_logs.py",
        "runs: tests/slurm/test_new.py",
        "skips: charts, docs, tests/e2e/test_keys.py, 1 files of unit tests",
    ]


def test_changes_are_those_since_the_common_commit_with_files_that_git_does_not_know(
    tmp_path: Path,
) -> None:
    def git(*words: str) -> None:
        who = ("-c", "user.name=n", "-c", "user.email=n@example.com")
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    git("init", "-b", "main")
    (tmp_path / "old").write_text("1")
    git("add", ".")
    git("commit", "-m", "one")
    git("checkout", "-b", "work")
    (tmp_path / "committed").touch()
    git("add", ".")
    git("commit", "-m", "two")
    git("checkout", "main")
    (tmp_path / "of-others").touch()
    git("add", ".")
    git("commit", "-m", "three")
    git("checkout", "work")
    (tmp_path / "old").write_text("2")
    (tmp_path / "new").touch()
    assert since.changed(tmp_path, "main") == ["committed", "new", "old"]
    with pytest.raises(ClusterError, match=r"SINCE=nothing: .*nothing"):
        since.changed(tmp_path, "nothing")


def test_patterns_of_the_product_name_files_that_exist() -> None:
    paths = subprocess.run(
        ["git", "-C", str(ROOT), "ls-files"], capture_output=True, text=True, check=True
    ).stdout
    files = paths.splitlines()
    patterns = {
        *subjects.PRODUCT,
        *subjects.COMMON,
        *(p for some in subjects.STAGES.values() for p in some),
    }
    patterns |= {pattern for some in subjects.SUBJECTS.values() for pattern in some}
    assert {
        pattern
        for pattern in patterns
        if not any(since._matches(file, [pattern]) for file in files)
    } == set()


def test_subjects_name_tests_with_real_daemons_that_exist() -> None:
    tests = [
        path
        for tier in ("integration", "slurm", "e2e")
        for path in (ROOT / "tests" / tier).rglob("test_*.py")
    ]
    names = {name for path in tests for name in (path.stem, str(path.relative_to(ROOT)))}
    assert {
        name for name in subjects.SUBJECTS if not any(since._matches(it, [name]) for it in names)
    } == set()
