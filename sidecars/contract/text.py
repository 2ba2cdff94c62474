"""Texts of other programs, as they are quoted in conditions, events and logs. Standard library
only.
"""

LONGEST = 500
"""Characters of a quotation."""

LONGEST_LINE = 4096
"""Characters of a line that is printed or logged."""


def printable(text: str, longest: int = LONGEST) -> str:
    """Return the text on one line, at most `longest` characters long, without characters that
    control a terminal.

    Slurm and its users choose such texts: nothing in them may forge a line of a log or fill a
    status.
    """
    if len(text) > longest:
        text = f"{text[: longest - 1]}…"
    if text.isprintable():
        return text
    return "".join(
        character if character.isprintable() else _replacement(character) for character in text
    )


def _replacement(character: str) -> str:
    return " " if character.isspace() else "\N{REPLACEMENT CHARACTER}"
