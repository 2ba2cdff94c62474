"""That tests/integration/README.md lists every scenario of the conformance list, with tests that
exist.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIST = ROOT / "tests/integration/README.md"

NODESETS = (
    *(
        31,
        32,
        33,
        35,
        36,
        37,
        39,
        40,
        42,
        44,
        45,
        46,
        48,
        49,
        51,
        53,
        55,
        56,
        57,
        59,
        60,
        61,
        63,
        64,
        65,
        67,
        68,
        69,
    ),
    *(71, 72, 73, 75, 76, 77, 79, 80, 81, 83, 84, 85, 87, 88, 89, 91, 92, 93, 95, 96, 97),
)
"""Numbers of the scenarios that concern NodeSets and what surrounds them; the list has gaps."""


def rows() -> list[tuple[str, str]]:
    """Numbers and tests of each row."""
    cells = (line.split("|") for line in LIST.read_text().splitlines() if line.startswith("| C"))
    return [(row[1].strip(), row[3].strip()) for row in cells]


def test_each_scenario_is_listed_once() -> None:
    listed = [int(number) for numbers, _ in rows() for number in re.findall(r"C(\d+)", numbers)]
    assert sorted(set(listed)) == sorted(listed)
    assert set(NODESETS) <= set(listed)


def test_each_test_that_is_listed_is_there() -> None:
    missing = []
    for numbers, tests in rows():
        module = ""
        for word, fragment in re.findall(r"(?:(test_\w+) )?`([^`]+)`", tests):
            module = word or module
            places = list(ROOT.glob(f"tests/*/operator/{module}.py")) + [
                ROOT / path for path in re.findall(r"tests/e2e/\w+\.py", tests)
            ]
            name = fragment.strip("…")
            if not any(re.search(rf"def test_\w*{name}", path.read_text()) for path in places):
                missing.append(f"{numbers}: {module} {fragment}")
        paths = re.findall(r"tests/[\w/.]+", tests)
        missing += [f"{numbers}: {path}" for path in paths if not (ROOT / path).exists()]
    assert missing == []
