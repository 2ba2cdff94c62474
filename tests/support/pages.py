"""The blocks of code in the documentation."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Fenced:
    """One block of a page, without its indentation. `title` is "" without one."""

    line: int
    language: str
    title: str
    text: str


def fenced(text: str, *languages: str) -> Iterator[Fenced]:
    """Yield the blocks in these languages, in order."""
    fence = rf'^( *)```({"|".join(languages)})(?: title="([^"]+)")?\n(.*?)^\1```$'
    for it in re.finditer(fence, text, re.MULTILINE | re.DOTALL):
        content = re.sub(rf"^{it[1]}", "", it[4], flags=re.MULTILINE)
        yield Fenced(text.count("\n", 0, it.start()) + 1, it[2], it[3] or "", content)


def of_folder(root: Path, docs: str = "*.md") -> dict[str, str]:
    """The texts of the README, of the documentation's pages, and of the charts, by path."""
    found = [
        root / "README.md",
        *sorted(root.glob(f"docs/{docs}")),
        *sorted(root.glob("charts/*/README.md")),
    ]
    return {str(it.relative_to(root)): it.read_text(encoding="utf-8") for it in found}
