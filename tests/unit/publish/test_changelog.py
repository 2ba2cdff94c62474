"""Reading CHANGELOG.md for a release."""

from pathlib import Path

import pytest

from release import changelog, versions

ROOT = Path(__file__).parents[3]
TEXT = """\
# Changelog

## 0.2.0 (unreleased)

### Added

- A line that continues
  in the next one ([NodeSets](docs/nodesets.md#drain)).
- A [link](docs/keys.md) in the text.

### Security

- A hole is closed.

### Restarts

- Login nodes.

| pods | effect |
|---|---|

## 0.1.0 (2026-01-31)

### Fixed

- A fault.
"""


def test_the_changes_of_a_version_have_their_kind_and_plain_text() -> None:
    assert changelog.section(TEXT, "0.2.0").changes() == [
        {"kind": "added", "description": "A line that continues in the next one."},
        {"kind": "added", "description": "A link in the text."},
        {"kind": "security", "description": "A hole is closed."},
    ]


def test_a_section_ends_where_the_next_version_begins() -> None:
    assert changelog.section(TEXT, "0.1.0").changes() == [
        {"kind": "fixed", "description": "A fault."}
    ]
    assert "A fault" not in changelog.section(TEXT, "0.2.0").text


@pytest.mark.parametrize(("version", "date"), [("0.2.0", ""), ("0.1.0", "2026-01-31")])
def test_a_section_without_a_date_is_not_released(version: str, date: str) -> None:
    assert changelog.section(TEXT, version).date == date


def test_the_notes_have_absolute_links_and_keep_tables() -> None:
    notes = changelog.section(TEXT, "0.2.0").notes("https://example.com/v0.2.0")
    assert "(https://example.com/v0.2.0/docs/nodesets.md#drain)" in notes
    assert "| pods | effect |" in notes


def test_a_link_within_the_page_or_to_another_site_stays() -> None:
    text = "## 1.0.0 (unreleased)\n[a](#a) [b](https://example.com/b)\n"
    assert (
        changelog.section(text, "1.0.0").notes("https://x")
        == "[a](#a) [b](https://example.com/b)\n"
    )


def test_a_version_without_a_section_is_an_error_that_names_the_line_to_add() -> None:
    with pytest.raises(
        changelog.ChangelogError, match=r"no section of 0\.3\.0\. Add the line `## 0\.3\.0 \(unrel"
    ):
        changelog.section(TEXT, "0.3.0")


def test_every_change_of_the_present_version_is_one_plain_line() -> None:
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    changes = changelog.section(text, versions.version(ROOT)).changes()
    assert changes
    assert [change for change in changes if not change["description"].endswith((".", ")"))] == []
    assert [
        change
        for change in changes
        if "](" in change["description"] or "\n" in change["description"]
    ] == []
