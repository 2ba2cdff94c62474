"""The animation of the README: the recorded commands and outputs, each in its time."""

import re
import xml.etree.ElementTree as ET

import pytest

from schemas import terminal_picture
from schemas.terminal_picture import SECONDS, Scene, svg

SPACE = "{http://www.w3.org/2000/svg}"
SCENES: list[Scene] = [
    {"title": "First", "steps": [{"command": "date <now>", "output": ["Monday", ""]}]},
    {"title": "Second", "steps": [{"command": "id", "output": ["root"]}]},
]


def texts(picture: str) -> dict[str, list[str]]:
    """The lines by the class of their moments."""
    found: dict[str, list[str]] = {}
    for it in ET.fromstring(picture).iter(f"{SPACE}text"):  # noqa: S314
        found.setdefault(it.get("class", "").split()[1], []).append(it.text or "")
    return found


def visible(picture: str, name: str) -> list[tuple[float, str]]:
    """The moments, in seconds of a round, at which lines appear and disappear."""
    [frames] = re.findall(rf"@keyframes {name} {{ (.*?) }}\n", picture)
    found = re.findall(r"([\d.]+)% { visibility: (\w+) }", frames)
    return [(round(float(at) * SECONDS / 100, 1), what) for at, what in found]


def test_each_scene_has_its_title_commands_and_outputs() -> None:
    assert texts(svg(SCENES)) == {
        "a0": ["First"],
        "b00": ["$ date <now>", "Monday", ""],
        "a1": ["Second"],
        "b10": ["$ id", "root"],
    }


def test_a_scene_is_visible_in_its_part_of_the_round_and_its_commands_come_one_by_one() -> None:
    scene: Scene = {"title": "One", "steps": [{"command": it, "output": []} for it in "ab"]}
    picture = svg([scene, scene])
    assert visible(picture, "b00") == [(0, "visible"), (15, "hidden")]
    assert visible(picture, "b01") == [(0, "hidden"), (5, "visible"), (15, "hidden")]
    # The last scene stays until the round begins again.
    assert visible(picture, "b11") == [(0, "hidden"), (20, "visible")]


def test_without_motion_the_last_scene_is_shown_alone() -> None:
    still = re.findall(r"^ *\.(\w+) { visibility: (\w+) }$", svg(SCENES), re.MULTILINE)
    assert dict(still) == {"a0": "hidden", "b00": "hidden", "a1": "visible", "b10": "visible"}
    motion = "@media (prefers-reduced-motion: no-preference)"
    assert svg(SCENES).count("animation:") == svg(SCENES).count(motion) == len(still)


def test_a_long_line_continues_on_the_next_one() -> None:
    scene: Scene = {"title": "Long", "steps": [{"command": "id", "output": ["word " * 40]}]}
    [_, *lines] = texts(svg([scene]))["b00"]
    assert max(map(len, lines)) <= terminal_picture.COLUMNS
    assert "".join(lines).split() == ["word"] * 40


def test_a_scene_that_the_terminal_has_no_room_for_is_an_error() -> None:
    scene: Scene = {"title": "Tall", "steps": [{"command": "seq 99", "output": ["1"] * 99}]}
    with pytest.raises(ValueError, match="'Tall' has 100 lines"):
        svg([scene])


def test_the_recording_shows_a_scale_in_that_waits_a_refusal_and_an_explanation() -> None:
    waits, refusal, explanation = terminal_picture.read()
    assert any(
        "its jobs are still running" in it for step in waits["steps"] for it in step["output"]
    )
    assert any("did you mean" in it for step in refusal["steps"] for it in step["output"])
    assert any(
        "It would start now:" in it for step in explanation["steps"] for it in step["output"]
    )
