"""The shell blocks of the documentation, and the commands that bash finds in them.

A block is `console` or `sh`. If the first line of a `console` block begins with a prompt, only
lines with prompts are commands, and the others are what they print.
"""

import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.support import pages

PROMPT = re.compile(r"^(?:[\w.-]+@[\w.-]+:\S*[$#]|[$#]) ")
_LOCAL = re.compile(r"(^|[|;] *)\./(?:[\w-]+/)*([\w-]+)", re.MULTILINE)
_HARNESS = """\
record() { printf '%s\\0' "$#" "$@" >> "$RECORD"; }
command_not_found_handle() {
  local word
  for word in "$@"; do
    case $word in /dev/fd/*) while read -r _; do :; done < "$word";; esac
  done
  record "$@"
  case " $* " in *" -o name "*) echo pod/slurm-worker-slinky-0;; esac
}
PATH=/nowhere
set -eu
"""
"""Each command that bash doesn't have itself is written to the file RECORD, and succeeds. It prints
nothing, but a name where the block asks for names, so that loops run.
"""


@dataclass(frozen=True)
class Block:
    """One block of a page. `line` is that of its first line."""

    page: str
    line: int
    text: str
    prompted: bool

    @property
    def place(self) -> str:
        """Where it is, for people."""
        return f"{self.page}:{self.line}"

    @property
    def script(self) -> str:
        """Its commands, without prompts and without what they print."""
        if not self.prompted:
            return self.text
        lines: list[str] = []
        for line in self.text.splitlines():
            if PROMPT.match(line):
                lines.append(PROMPT.sub("", line))
            elif lines and lines[-1].endswith("\\"):
                lines.append(line)
        return "".join(f"{line}\n" for line in lines)

    @property
    def first(self) -> str:
        """Its first command, by which a list names the block."""
        return self.script.split("\n", 1)[0]

    @property
    def is_job(self) -> bool:
        """Whether it is the script of a job, with options of sbatch in comments."""
        return self.text.startswith("#!")


def blocks(page: str, text: str) -> Iterator[Block]:
    """Yield all of a page, in order."""
    for it in pages.fenced(text, "console", "sh"):
        prompted = it.language == "console" and bool(PROMPT.match(it.text))
        yield Block(page, it.line, it.text, prompted)


def of_folder(root: Path) -> list[Block]:
    """Those of the README, of all pages of the documentation, and of the charts."""
    texts = pages.of_folder(root, "**/*.md")
    return [block for page, text in texts.items() for block in blocks(page, text)]


class ScriptError(Exception):
    """A block that bash can't run to its end."""


def commands(
    block: Block, folder: Path, environment: dict[str, str] | None = None
) -> list[list[str]]:
    """The words of each command that the block starts, in the order in which they start.

    Bash runs the block in `folder`, with no program but itself. Raises ScriptError for a syntax
    error, a variable that isn't set, and a file that doesn't exist.
    """
    record = folder / "commands"
    record.unlink(missing_ok=True)
    record.touch()
    script = _LOCAL.sub(r"\1\2", block.script)
    done = subprocess.run(
        ["/bin/bash", "-c", _HARNESS + script],
        cwd=folder,
        env={"RECORD": str(record), "HOME": str(folder), **(environment or {})},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
        timeout=20,
    )
    if done.returncode:
        raise ScriptError(f"{block.place}: {done.stderr.strip()}")
    return [*_words(record.read_text(encoding="utf-8").split("\0")[:-1])]


def directives(block: Block) -> list[list[str]]:
    """The lines `#SBATCH` of a job's script, as commands."""
    return [
        ["sbatch", *line.split()[1:]]
        for line in block.text.splitlines()
        if line.startswith("#SBATCH ")
    ]


def _words(given: Sequence[str]) -> Iterator[list[str]]:
    at = 0
    while at < len(given):
        number = int(given[at])
        yield list(given[at + 1 : at + 1 + number])
        at += 1 + number
