"""The section of a version in CHANGELOG.md: its state, its changes for Artifact Hub, and its text
for the release page.

Pure. Format: https://keepachangelog.com/en/1.1.0/
"""

import re
from dataclasses import dataclass

KINDS = ("added", "changed", "deprecated", "removed", "fixed", "security")
"""The headings of a section that list changes, in lower case. Artifact Hub has the same kinds."""


class ChangelogError(Exception):
    """The changelog has no section of a version. The message names the remedy."""


@dataclass(frozen=True)
class Section:
    """A version in the changelog. `date` is empty before the release."""

    version: str
    date: str
    text: str

    def changes(self) -> list[dict[str, str]]:
        """Return each change with its kind, as `artifacthub.io/changes` has them."""
        found = []
        for heading, body in re.findall(
            r"^### (\w+)\n(.*?)(?=^### |\Z)", self.text, re.MULTILINE | re.DOTALL
        ):
            if heading.lower() in KINDS:
                items = re.findall(r"^- (.*?)(?=^- |^$|\Z)", body, re.MULTILINE | re.DOTALL)
                found += [{"kind": heading.lower(), "description": _plain(item)} for item in items]
        return found

    def notes(self, blob: str) -> str:
        """Return the text with absolute links, for the release page. `blob` is the URL of the
        repository's files.
        """
        return re.sub(r"\]\((?!https?://|#)", f"]({blob}/", self.text).strip() + "\n"


def section(text: str, version: str) -> Section:
    """Return the section of a version. `(unreleased)` in its heading is no date."""
    pattern = rf"^## {re.escape(version)} \((.*?)\)\n(.*?)(?=^## |\Z)"
    found = re.search(pattern, text, re.MULTILINE | re.DOTALL)
    if found is None:
        raise ChangelogError(
            f"CHANGELOG.md: no section of {version}. Add the line `## {version} (unreleased)`."
        )
    date = found[1] if re.fullmatch(r"\d{4}-\d{2}-\d{2}", found[1]) else ""
    return Section(version, date, found[2])


def _plain(item: str) -> str:
    """Return a list item on one line, links replaced by their texts. A reference at the end is
    omitted.
    """
    line = " ".join(item.split())
    line = re.sub(r" *\(\[[^\]]*\]\([^)]*\)\)", "", line)
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line)
