"""What the command lines of all programs share: the version, a hint for a typo, and completion in a
shell. With the standard library alone.
"""

from __future__ import annotations

import argparse
import difflib
import re
from typing import TYPE_CHECKING, NoReturn

from sidecars.contract.project import VERSION
from sidecars.contract.text import LONGEST_LINE, printable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

COMPLETE = "__complete"
"""The command by which a shell asks for completions: the words follow, the last one incomplete."""

SHELLS = ("bash", "zsh")

_CHOICE = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)")
_UNKNOWN = re.compile(r"unrecognized arguments: (\S+)")


def hint(word: str, words: Iterable[str]) -> str:
    """Return a question that names the word that was probably meant, "" if none is near."""
    found = difflib.get_close_matches(word, list(words), 1)
    return f" Did you mean {found[0]!r}?" if found else ""


def version(program: str) -> str:
    """Return what `--version` prints."""
    return f"{program} {VERSION}"


def _no_names(before: Sequence[str]) -> Iterable[str]:
    return ()


class Parser(argparse.ArgumentParser):
    """A parser that completes words, and whose errors name the nearest word."""

    def error(self, message: str) -> NoReturn:
        """Print usage and error, with a hint, and exit with status 2."""
        choice, unknown = _CHOICE.search(message), _UNKNOWN.search(message)
        if choice:
            message += "." + hint(choice[1], re.findall(r"[\w-]+", choice[2]))
        elif unknown:
            message += "." + hint(unknown[1].partition("=")[0], self.all_options())
        super().error(printable(message.removesuffix("."), LONGEST_LINE))

    def add_version(self) -> None:
        """Add the option --version."""
        self.add_argument(
            "--version", action="version", version=version(self.prog), help="print the version"
        )

    def candidates(
        self, words: Sequence[str], names: Callable[[Sequence[str]], Iterable[str]] = _no_names
    ) -> Iterator[str]:
        """Yield what the last word may become.

        `names` returns the names for a positional argument without choices, from the positional
        arguments before it.
        """
        *before, begun = words or [""]
        given: list[str] = []
        option = ""
        for index, word in enumerate(before):
            if option:
                option = ""
            elif word.startswith("-"):
                option = word if self._takes_value(word) else ""
            elif not given and (inner := self._commands().get(word)) is not None:
                rest = words[index + 1 :]
                yield from inner.candidates(rest, lambda more: names([word, *more]))  # noqa: B023
                return
            else:
                given.append(word)
        if option:
            found: Iterable[str] = self._values(option)
        elif begun.startswith("-"):
            found = self._options()
        else:
            choices = self._choices(len(given))
            found = names(given) if choices is None else choices
        yield from sorted({it for it in found if it.startswith(begun)})

    def all_options(self) -> Iterator[str]:
        """Yield the long options of this parser and of its commands."""
        yield from self._options()
        for inner in self._commands().values():
            yield from inner.all_options()

    def _commands(self) -> dict[str, Parser]:
        found = (it.choices for it in self._actions if isinstance(it.choices, dict))
        return {
            name: inner
            for choices in found
            for name, inner in choices.items()
            if isinstance(inner, Parser)
        }

    def _options(self) -> Iterator[str]:
        for action in self._actions:
            yield from (it for it in action.option_strings if it.startswith("--"))

    def _takes_value(self, word: str) -> bool:
        action = self._option_string_actions.get(word)
        return action is not None and action.nargs is None

    def _values(self, option: str) -> Iterable[str]:
        return map(str, self._option_string_actions[option].choices or ())

    def _choices(self, index: int) -> Iterable[str] | None:
        """Return the choices of the positional argument at `index`, or None if it has none."""
        places = [it for it in self._actions if not it.option_strings]
        if index >= len(places):
            return ()
        choices = places[index].choices
        return None if choices is None else map(str, choices)


def shell(program: str, kind: str) -> str:
    """Return the script by which a shell, `bash` or `zsh`, asks the program for completions."""
    function = "_" + program.replace("-", "_")
    if kind == "zsh":
        return (
            f"#compdef {program}\n{function}() {{\n"
            f'  local found; found=("${{(@f)$({program} {COMPLETE} "${{(@)words[2,CURRENT]}}" '
            '2>/dev/null)}")\n'
            "  (( $#found )) && [[ -n $found[1] ]] && compadd -a found || _files\n"
            f"}}\ncompdef {function} {program}\n"
        )
    return (
        f"{function}() {{\n"
        f'  mapfile -t COMPREPLY < <({program} {COMPLETE} "${{COMP_WORDS[@]:1:COMP_CWORD}}" '
        "2>/dev/null)\n"
        f"}}\ncomplete -o default -F {function} {program}\n"
    )
