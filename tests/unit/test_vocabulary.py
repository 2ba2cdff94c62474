"""That texts and names use the words of tests/vocabulary.yaml, and that the check of it finds what
is wrong.
"""

import subprocess
from pathlib import Path

import pytest

from tests import vocabulary

LISTED = vocabulary.word_list()


def paths(pattern: str) -> list[Path]:
    """Return the files that a pattern of the list names, except for those that it excludes."""
    root = vocabulary.ROOT
    return sorted(
        path
        for path in root.glob(pattern)
        if path.is_file() and str(path.relative_to(root)) not in LISTED.excluded
    )


def test_every_python_file_of_the_repository_is_checked_or_excluded_with_a_reason() -> None:
    root = vocabulary.ROOT
    listed = subprocess.run(
        ["git", "ls-files", "*.py"], cwd=root, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    checked = {str(it.relative_to(root)) for pattern in LISTED.checked for it in paths(pattern)}
    assert {it for it in listed if (root / it).is_file()} - checked == LISTED.excluded


@pytest.mark.parametrize("pattern", LISTED.checked)
def test_no_checked_file_has_a_wrong_word(pattern: str) -> None:
    files = paths(pattern)
    assert files, "no file has this name"
    wrong = [
        f"{path.relative_to(vocabulary.ROOT)}:{finding.line}: {finding.found!r}; write: "
        f"{finding.right}"
        for path in files
        for finding in vocabulary.in_file(path, LISTED)
    ]
    assert not wrong, "\n" + "\n".join(wrong)


@pytest.mark.parametrize("word", LISTED.words, ids=lambda word: word.wrong.pattern)
def test_an_entry_reports_its_bad_example_and_nothing_reports_its_good_one(
    word: vocabulary.Word,
) -> None:
    assert vocabulary.findings(word.bad, (word,))
    assert not vocabulary.findings(word.good, LISTED.words)


@pytest.mark.parametrize("word", LISTED.names, ids=lambda word: word.wrong.pattern)
def test_an_entry_for_names_reports_its_bad_example_and_nothing_reports_its_good_one(
    word: vocabulary.Word,
) -> None:
    assert vocabulary.in_python(f"{word.bad} = 1\n", LISTED)
    assert not vocabulary.in_python(f"{word.good} = 1\n", LISTED)


def test_a_word_is_found_over_the_end_of_a_line_and_has_the_line_where_it_begins() -> None:
    assert [
        finding.line
        for finding in vocabulary.findings("First.\nIt is signed once\nmore.", LISTED.words)
    ] == [2]
    assert vocabulary.findings("# It is signed once\n# more.", LISTED.words)


def test_the_case_of_letters_plays_no_part() -> None:
    assert vocabulary.findings("Anew.", LISTED.words)


def test_a_word_in_an_allowed_sense_is_not_reported_and_hides_no_other_one() -> None:
    assert not vocabulary.findings("a state machine", LISTED.words)
    assert vocabulary.findings("a state machine for each machine", LISTED.words)


@pytest.mark.parametrize(
    "text",
    [
        "A `machine` here",
        "```\nthe machine\n```",
        "1. Do:\n   ```\n   the machine\n   ```",
        "    the machine",
        "[NodeSet](pool.md)",
    ],
)
def test_code_in_markdown_is_not_checked(text: str) -> None:
    assert not vocabulary.findings(vocabulary.without_code(text), LISTED.words)


def test_prose_after_code_in_markdown_is_checked_and_keeps_its_line() -> None:
    text = "`a`\n```\ncode\n```\nthe machine"
    assert [
        finding.line for finding in vocabulary.findings(vocabulary.without_code(text), LISTED.words)
    ] == [5]


@pytest.mark.parametrize(
    "text",
    [
        '"""A docstring about a machine."""',
        "x = 1  # of this pool",
        'raise ValueError(f"{x} is made by a user")',
        "def hold_node() -> None: ...",
        "class Pool: ...",
        "def f(machine: str) -> None: ...",
        "import nodes as machines",
        "for machine in (): pass",
    ],
)
def test_comments_strings_and_names_of_python_are_checked(text: str) -> None:
    assert vocabulary.in_python(text + "\n", LISTED)


def test_the_names_of_other_libraries_may_be_used() -> None:
    assert not vocabulary.in_python("import platform\nx = platform.machine()\n", LISTED)


def test_a_value_in_backquotes_and_code_of_a_shell_script_are_not_checked() -> None:
    assert not vocabulary.in_python('x = "`keep` or `pool`"\n', LISTED)
    assert not vocabulary.findings(vocabulary.comments("pool=1\n#!/bin/pool"), LISTED.words)


def test_comments_of_a_shell_script_are_checked_and_keep_their_lines() -> None:
    text = "pool=1\n\necho x # the machine"
    assert [
        finding.line for finding in vocabulary.findings(vocabulary.comments(text), LISTED.words)
    ] == [3]


def test_names_are_read_word_by_word() -> None:
    assert vocabulary.spoken("let_go_ofKubeNode") == "let go of kube node"
