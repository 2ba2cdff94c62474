"""The animation of the README: a terminal that shows recorded commands and their outputs, as SVG.

tests.cluster.recording records them from a real cluster, in terminal_recording.json. Nothing moves
for readers who prefer that: they see the last scene.
"""

import json
from html import escape
from pathlib import Path
from textwrap import wrap
from typing import TypedDict

FILE = Path(__file__).parent / "terminal_recording.json"
SECONDS = 30.0
"""Of one round."""
COLUMNS, ROWS = 108, 22
"""Of the terminal."""
_WIDTH, _HEIGHT = 7.2, 18
"""Pixels of a character and a line."""
_LEFT, _TOP = 24, 72
_FRAME = 16


class Step(TypedDict):
    """A command and the lines that it has printed."""

    command: str
    output: list[str]


class Scene(TypedDict):
    """What the terminal shows before it is cleared."""

    title: str
    steps: list[Step]


def read() -> list[Scene]:
    """Return the recording."""
    found: list[Scene] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def write(scenes: list[Scene]) -> None:
    """Keep a recording."""
    FILE.write_text(json.dumps(scenes, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")


def lines(step: Step) -> list[str]:
    """Return the lines of the terminal for a step: long ones continue on the next."""
    printed = [
        part
        for line in step["output"]
        for part in wrap(
            line, COLUMNS, subsequent_indent="    ", drop_whitespace=False, break_on_hyphens=False
        )
        or [""]
    ]
    command = wrap(f"$ {step['command']}", COLUMNS, subsequent_indent="    ")
    return [*command, *printed]


def svg(scenes: list[Scene]) -> str:
    """Return the picture."""
    body, rules = [], []
    each = SECONDS / len(scenes)
    for number, scene in enumerate(scenes):
        begin, end = number * each, (number + 1) * each
        last = number == len(scenes) - 1
        body.append(_text(scene["title"], 0, "title", f"a{number}"))
        rules.append(_rule(f"a{number}", begin, end, last))
        row, pause = 0, each / (len(scene["steps"]) + 1)
        for place, step in enumerate(scene["steps"]):
            name = f"b{number}{place}"
            rules.append(_rule(name, begin + place * pause, end, last))
            for position, line in enumerate(lines(step)):
                style = "command" if position == 0 else "output"
                body.append(_text(line, row + 1, style, name))
                row += 1
        if row > ROWS:
            raise ValueError(f"{scene['title']!r} has {row} lines, and the terminal {ROWS}")
    width = _LEFT * 2 + COLUMNS * _WIDTH
    height = _TOP + (ROWS + 1) * _HEIGHT + _FRAME
    description = "; ".join(scene["title"] for scene in scenes)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height}" role="img" '
        'aria-labelledby="title desc">\n'
        '  <title id="title">A terminal with a local cluster</title>\n'
        f'  <desc id="desc">{escape(description)}.</desc>\n'
        f"  <style>{_STYLE}{''.join(rules)}  </style>\n"
        f'  <rect x="0.75" y="0.75" width="{width - 1.5:g}" height="{height - 1.5:g}" rx="12" '
        'fill="#f6f8fa" stroke="#d0d7de" stroke-width="1.5"/>\n'
        f'  <rect x="8" y="8" width="{width - 16:g}" height="{height - 16:g}" rx="8" '
        'fill="#0d1117"/>\n' + "".join(body) + "</svg>\n"
    )


_STYLE = """
    text { font: 12px ui-monospace, Menlo, Consolas, 'DejaVu Sans Mono', monospace }
    text { white-space: pre }
    .title { font-size: 15px; font-weight: 600; fill: #f0f6fc }
    .command { fill: #7ee787 }
    .output { fill: #c9d1d9 }
"""


def _text(line: str, row: int, style: str, name: str) -> str:
    y = _TOP + row * _HEIGHT - (24 if row == 0 else 0)
    return (
        f'  <text class="{style} {name}" x="{_LEFT}" y="{y}" xml:space="preserve">'
        f"{escape(line, quote=False)}</text>\n"
    )


def _rule(name: str, begin: float, end: float, last: bool) -> str:
    """Return the style of what is visible from `begin` to `end` of each round."""
    first, second = (f"{100 * it / SECONDS:.4g}%" for it in (begin, end))
    still = "visible" if last else "hidden"
    before = "0% { visibility: hidden } " if begin else ""
    after = "" if last else f" {second} {{ visibility: hidden }}"
    return (
        f"    .{name} {{ visibility: {still} }}\n"
        f"    @keyframes {name} {{ {before}{first} {{ visibility: visible }}{after} }}\n"
        "    @media (prefers-reduced-motion: no-preference) "
        f"{{ .{name} {{ animation: {name} {SECONDS:g}s step-end infinite }} }}\n"
    )
