"""Tests that a text names: `FILE`, `FILE::TEST`, or `FILE::it: TITLE` in a suite of
helm-unittest.
"""

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]


def exists(test: str, root: Path = ROOT) -> bool:
    """Whether the repository in `root` has the test. Its parameters are not checked."""
    file, _, title = test.partition("::")
    path = root / file
    if not path.is_file() or not file.startswith(("tests/", "charts/")):
        return False
    title = title.partition("[")[0]
    wanted = (
        rf"- {re.escape(title)}\n" if title.startswith("it: ") else rf"def {re.escape(title)}\("
    )
    return not title or re.search(wanted, path.read_text(encoding="utf-8")) is not None
