"""What all command lines share: version, hints, completion."""

import shutil
import subprocess
from pathlib import Path

import pytest

from sidecars.commandline import COMPLETE, Parser, hint, shell, version
from sidecars.contract.project import VERSION


def parser() -> Parser:
    """Two commands, one with choices and a name, and options before and after them."""
    found = Parser(prog="slurm-tool")
    found.add_version()
    found.add_argument("-n", "--namespace")
    found.add_argument("--format", choices=("text", "json"))
    commands = found.add_subparsers(dest="command", required=True, metavar="COMMAND")
    explain = commands.add_parser("explain")
    explain.add_argument("subject", choices=("job", "node", "nodeset"))
    explain.add_argument("name", nargs="?")
    explain.add_argument("--watch", action="store_true")
    commands.add_parser("top")
    return found


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["explian"], "Did you mean 'explain'?"),
        (["explain", "nodest"], "Did you mean 'nodeset'?"),
        (["explain", "job", "1", "--wach"], "Did you mean '--watch'?"),
        (["top", "--formt=json"], "Did you mean '--format'?"),
        (["--format=jsn", "top"], "Did you mean 'json'?"),
    ],
)
def test_an_error_names_the_word_that_was_probably_meant(
    capsys: pytest.CaptureFixture[str], words: list[str], message: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(words)
    assert caught.value.code == 2
    assert message in capsys.readouterr().err


def test_a_word_that_is_near_to_nothing_gets_no_hint(capsys: pytest.CaptureFixture[str]) -> None:
    assert hint("xyzzy", ("explain", "top")) == ""
    with pytest.raises(SystemExit):
        parser().parse_args(["xyzzy"])
    assert "Did you mean" not in capsys.readouterr().err


def test_an_argument_of_an_error_controls_no_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["top", "--x\x1b]0;title\x07"])
    assert "\x1b" not in capsys.readouterr().err


def test_the_version_is_printed_with_the_name_of_the_program(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with pytest.raises(SystemExit) as caught:
        parser().parse_args(["--version"])
    assert caught.value.code == 0
    assert capsys.readouterr().out == f"slurm-tool {VERSION}\n" == version("slurm-tool") + "\n"


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ([], ["explain", "top"]),
        (["e"], ["explain"]),
        (["-"], ["--format", "--help", "--namespace", "--version"]),
        (["--format", ""], ["json", "text"]),
        (["-n", ""], []),
        (["-n", "slurm", "t"], ["top"]),
        (["explain", ""], ["job", "node", "nodeset"]),
        (["explain", "node", ""], ["name of explain node"]),
        (["explain", "--watch", "node", "other"], []),
        (["explain", "node", "a", ""], []),
        (["explain", "--w"], ["--watch"]),
        (["unknown", ""], []),
    ],
)
def test_the_last_word_is_completed_by_what_the_parser_accepts(
    words: list[str], found: list[str]
) -> None:
    names = parser().candidates(words, lambda before: [f"name of {' '.join(before)}"])
    assert list(names) == found


@pytest.mark.parametrize("kind", ["bash", "zsh"])
def test_the_script_of_a_shell_has_no_syntax_error(kind: str) -> None:
    program = shutil.which(kind)
    script = shell("slurm-tool", kind)
    assert f"slurm-tool {COMPLETE} " in script
    if program is None:
        assert kind == "zsh", "bash is on every host of tests"
        return
    done = subprocess.run([program, "-n"], input=script, capture_output=True, text=True, check=True)
    assert done.stderr == ""


def test_bash_offers_what_the_program_prints_and_expands_nothing_in_it(tmp_path: Path) -> None:
    program = tmp_path / "slurm-tool"
    program.write_text("#!/bin/sh\nprintf '%s\\n' \"$#:$2\" '$(touch x.run)' '*'\n")
    program.chmod(0o755)
    line = (
        f"PATH={tmp_path}:$PATH; {shell('slurm-tool', 'bash')}\n"
        "COMP_WORDS=(slurm-tool explain n rest); COMP_CWORD=2; _slurm_tool\n"
        'printf "%s\\n" "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        ["bash", "-c", line], capture_output=True, text=True, check=True, cwd=tmp_path
    )
    assert done.stdout.splitlines() == ["3:explain", "$(touch x.run)", "*"]
    assert not (tmp_path / "x.run").exists()
