"""That the pages of the documentation are whole: links lead somewhere, tables are one table, claims name tests."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted(ROOT.glob("docs/**/*.md"))]


def name(path: Path) -> str:
    """A page's path from the top of the repository."""
    return str(path.relative_to(ROOT))


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub derives them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path, text: str) -> list[str]:
    """Links within the repository that lead to no file or to no heading."""
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", text):
        if link.startswith("https://"):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            broken.append(link)
    return broken


def headless_tables(text: str) -> list[str]:
    """First rows of tables without a head, which Markdown shows as text."""
    blocks = re.split(r"\n\s*\n", re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE))
    tables = [re.findall(r"^ *\|.*", block, re.MULTILINE) for block in blocks]
    return [rows[0] for rows in tables if rows and not (len(rows) > 1 and re.fullmatch(r" *\|[-|]+\|", rows[1]))]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert broken_links(page, page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_table_has_its_head(page: Path) -> None:
    assert headless_tables(page.read_text(encoding="utf-8")) == []


def test_every_page_is_listed_in_the_readme() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [name(path) for path in ROOT.glob("docs/*.md") if f"({name(path)})" not in readme] == []


@pytest.mark.parametrize("link", ["docs/missing.md", "CONTRIBUTING.md#missing", "#missing"])
def test_a_link_to_a_file_or_heading_that_does_not_exist_is_found(link: str) -> None:
    assert broken_links(ROOT / "README.md", f"See [this]({link}).") == [link]


def test_a_table_that_a_blank_line_cuts_is_found() -> None:
    assert headless_tables("| a | b |\n|---|---|\n| 1 | 2 |\n\n| 3 | 4 |\n") == ["| 3 | 4 |"]


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/reference/*.md")), ids=name)
def test_every_field_of_the_reference_has_a_meaning(page: Path) -> None:
    rows = re.findall(r"^\| `.*\|$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows
    assert [row for row in rows if row.endswith("|  |")] == []


def claims_without_tests(text: str) -> list[str]:
    """Items of the lists `Prevented` that don't end in `— FILE` or `— FILE::TEST` of this repository.

    A test of a suite for Helm charts is named by its title: `FILE::it: TITLE`.
    """
    found = []
    for section in re.findall(r"^### Prevented\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL):
        for item in re.split(r"^- ", section, flags=re.MULTILINE)[1:]:
            claim, _, tests = " ".join(item.split()).partition(" — ")
            names = re.findall(r"`([^`]+)`", tests)
            if not names or not all(map(_test_exists, names)):
                found.append(claim)
    return found


def _test_exists(test: str) -> bool:
    file, _, title = test.partition("::")
    path = ROOT / file
    if not path.is_file() or not file.startswith(("tests/", "charts/")):
        return False
    title = title.partition("[")[0]
    wanted = rf"- {re.escape(title)}\n" if title.startswith("it: ") else rf"def {re.escape(title)}\("
    return not title or re.search(wanted, path.read_text(encoding="utf-8")) is not None


def test_each_claim_of_the_threat_model_names_its_test() -> None:
    text = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    assert text.count("### Prevented") == 4
    assert claims_without_tests(text) == []


@pytest.mark.parametrize(
    "item",
    [
        "A claim.",
        "A claim — a sentence",
        "A claim — `tests/unit/test_missing.py`",
        "A claim — `tests/unit/test_docs.py::test_missing`",
        "A claim — `tests/unit/test_docs.py::test_every_table_has_its_head`, `tests/unit/test_missing.py`",
        "A claim — `docs/security.md`",
        "A claim — `charts/slurm-operator/tests/operator/rbac_test.yaml::it: missing`",
    ],
)
def test_a_claim_without_a_test_is_found(item: str) -> None:
    assert claims_without_tests(f"### Prevented\n\n- {item}\n\n### Not prevented\n") == [item.partition(" — ")[0]]
