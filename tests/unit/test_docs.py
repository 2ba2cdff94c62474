"""That the pages of the documentation are whole: links lead somewhere, tables are one table, claims
name tests.

The site that `make docs` builds of them is checked by `tests.site`.
"""

import re
import subprocess
from pathlib import Path

import pytest
import yaml

from sidecars.__main__ import ROLES
from tests.charts import migration
from tests.support import named_tests

ROOT = Path(__file__).parents[2]
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]


def name(path: Path) -> str:
    """A page's path from the top of the repository."""
    return str(path.relative_to(ROOT))


def anchors(path: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub derives them."""
    headings = re.findall(r"^#+ (.*)$", path.read_text(encoding="utf-8"), re.MULTILINE)
    return {
        re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-") for heading in headings
    }


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


def broken_tables(text: str) -> list[str]:
    """Lines that Markdown doesn't show as a row of the table that they belong to.

    A table has a head, a line of dashes and rows, all with the same number of cells. A blank line
    ends it, and nothing else may touch it.
    """
    found = []
    for block in re.split(
        r"\n\s*\n", re.sub(r"^ *```.*?^ *```", "", text, flags=re.DOTALL | re.MULTILINE)
    ):
        lines = block.strip("\n").split("\n")
        if any(line.lstrip().startswith("|") for line in lines):
            if len(lines) < 2 or not re.fullmatch(r" *\|(:?-+:?\|)+", lines[1]):
                found.append(lines[0])
                continue
            found += [
                line for line in lines if not line.endswith("|") or cells(line) != cells(lines[1])
            ]
    return found


def cells(line: str) -> int:
    """Number of cells in a row of a table."""
    return len(re.findall(r"(?<!\\)\|", line)) - 1


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_to_a_file_and_a_heading(page: Path) -> None:
    assert broken_links(page, page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_table_is_whole(page: Path) -> None:
    assert broken_tables(page.read_text(encoding="utf-8")) == []


def test_every_page_is_once_in_the_navigation_of_the_site() -> None:
    contents = yaml.safe_load((ROOT / "docs/_toc.yml").read_text(encoding="utf-8"))
    entries = [entry for part in contents["subtrees"] for entry in part["entries"]]
    listed = [contents["root"], *(entry["file"] for entry in entries if "file" in entry)]
    pages = [
        str(path.relative_to(ROOT / "docs").with_suffix("")) for path in ROOT.glob("docs/**/*.md")
    ]
    assert sorted(listed) == sorted(pages)


def test_the_readme_shows_figures_that_were_measured() -> None:
    readme, performance = (
        (ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/performance.md")
    )
    figures = re.findall(r"^\| figure \| value \|\n\|[-|]+\|\n((?:\|.*\n)+)", readme, re.MULTILINE)
    (table,) = figures
    assert [row for row in table.splitlines() if f"\n{row}" not in performance] == []


PICTURES = sorted(ROOT.glob("docs/**/*.svg"))


@pytest.mark.parametrize("picture", PICTURES, ids=name)
def test_a_picture_has_text_as_text_and_a_background_of_its_own(picture: Path) -> None:
    text = picture.read_text(encoding="utf-8")
    assert "<title" in text
    assert "<desc" in text
    assert "</text>" in text
    assert re.search(r'<rect x="0.75" y="0.75" [^>]*fill="#f6f8fa"', text)
    assert not re.search(r"(href|src)=|@import|url\((?!#)", text), "loads something"


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_picture_has_an_alternative_text(page: Path) -> None:
    assert re.findall(r"!\[\s*\]\([^)]*\)", page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize("link", ["docs/missing.md", "CONTRIBUTING.md#missing", "#missing"])
def test_a_link_to_a_file_or_heading_that_does_not_exist_is_found(link: str) -> None:
    assert broken_links(ROOT / "README.md", f"See [this]({link}).") == [link]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("| a | b |\n|---|---|\n| 1 | 2 |\n\n| 3 | 4 |\n", "| 3 | 4 |"),
        ("| a | b |\n|---|---|\n| 1 | 2 | 3 |\n", "| 1 | 2 | 3 |"),
        ("| a | b |\n|---|---|\n| 1 |\n", "| 1 |"),
        ("| a | b |\n|---|---|\n| 1 | 2\n", "| 1 | 2"),
        ("| a | b |\n|---|---|\n| 1 | `x|y` |\n", "| 1 | `x|y` |"),
        ("| a | b |\n|---|\n| 1 |\n", "| a | b |"),
        ("| a | b |\n|---|---|\n| 1 | 2 |\nText.\n", "Text."),
        ("Text:\n| a | b |\n|---|---|\n| 1 | 2 |\n", "Text:"),
        ("| a | b |\n", "| a | b |"),
    ],
)
def test_a_table_that_is_cut_or_has_another_number_of_cells_in_a_row_is_found(
    text: str, line: str
) -> None:
    assert broken_tables(text) == [line]


def test_a_whole_table_is_accepted_also_in_a_list_and_with_an_escaped_bar() -> None:
    assert (
        broken_tables("- Item:\n\n  | a | b |\n  |---|:-:|\n  | `x\\|y` | 2 |\n\n```\n| 1\n```\n")
        == []
    )


@pytest.mark.parametrize("page", sorted(ROOT.glob("docs/reference/*.md")), ids=name)
def test_every_field_of_the_reference_has_a_meaning(page: Path) -> None:
    rows = re.findall(r"^\| `.*\|$", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert rows
    assert [row for row in rows if row.endswith("|  |")] == []


TARGETS = set(
    re.findall(
        r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
)
FOLDERS = "charts|docs|images|schemas|sidecars|release|requirements|tests|\\.github"
WRITTEN = "image-digests.yaml"
"""`make lock-images` writes files of this name, which the repository doesn't have until then."""


def missing(text: str) -> list[str]:
    """Make targets and paths of the repository in the code of a page that don't exist. NAME stands
    for any name.
    """
    code = re.findall(r"```.*?```|`[^`]+`", text, re.DOTALL)
    found = []
    for each in code:
        found += [
            f"make {name}"
            for name in re.findall(r"\bmake ([a-z][a-z0-9-]*)", each)
            if name not in TARGETS
        ]
        for path in re.findall(rf"(?<![\w/.:@$-])(?:{FOLDERS})/[\w./*-]+(?![\\\w./*-])", each):
            pattern = re.sub(r"[A-Z]{3,}", "*", path.rstrip("."))
            if not path.endswith(WRITTEN) and not any(ROOT.glob(pattern.rstrip("/"))):
                found.append(path)
    return found


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_make_target_and_every_path_that_a_page_names_exists(page: Path) -> None:
    assert missing(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Run `make missing`.", ["make missing"]),
        ("```sh\nhelm lint charts/missing\n```", ["charts/missing"]),
        ("Edit `docs/missing.md`.", ["docs/missing.md"]),
        ("Run `make docs`, which reads `docs/*.md` and `images/NAME/Containerfile`.", []),
        ("People make mistakes in charts/missing.", []),
    ],
)
def test_a_target_or_a_path_that_does_not_exist_is_found(text: str, found: list[str]) -> None:
    assert missing(text) == found


@pytest.mark.parametrize(
    "image",
    [
        "registry.invalid/slurm-charts/slurmd:26.05",
        "registry.invalid/slurm-charts/slurmd:26.05@sha256:ab",
    ],
)
def test_an_image_that_is_copied_as_the_page_about_air_gapped_sites_shows_keeps_its_tag(
    image: str, tmp_path: Path
) -> None:
    """Of the lists in the repository and on the release page. A copy to a name with a digest would
    have no tag.
    """
    page = (ROOT / "docs/air-gapped.md").read_text(encoding="utf-8")
    (loop,) = (
        block
        for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL)
        if "crane copy" in block
    )
    (tmp_path / "images.txt").write_text(f"{image}\n")
    script = f'crane() {{ echo "$@"; }}\n{loop}'
    done = subprocess.run(
        ["sh", "-euc", script], cwd=tmp_path, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == f"copy {image} registry.example:5000/slurm/slurmd:26.05\n"


def claims_without_tests(text: str) -> list[str]:
    """Items of the lists `Prevented` that don't end in `— FILE` or `— FILE::TEST` of this
    repository.

    A test of a suite for Helm charts is named by its title: `FILE::it: TITLE`.
    """
    found = []
    for section in re.findall(r"^### Prevented\n(.*?)(?=^#|\Z)", text, re.MULTILINE | re.DOTALL):
        for item in re.split(r"^- ", section, flags=re.MULTILINE)[1:]:
            claim, _, tests = " ".join(item.split()).partition(" — ")
            names = re.findall(r"`([^`]+)`", tests)
            if not names or not all(map(named_tests.exists, names)):
                found.append(claim)
    return found


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    named = re.findall(r"`(tests/[\w/]+\.py::[^`]+)`", page.read_text(encoding="utf-8"))
    assert [test for test in named if not named_tests.exists(test)] == []


def test_each_claim_of_the_threat_model_names_its_test() -> None:
    text = (ROOT / "docs/security-tests.md").read_text(encoding="utf-8")
    assert text.count("### Prevented") == 4
    assert claims_without_tests(text) == []
    model = (ROOT / "docs/security.md").read_text(encoding="utf-8")
    assert re.findall(r"(?m)^## (.*)$", text) == re.findall(
        r"(?m)^## (.*)\n(?:(?!^## ).*\n)*?### Prevented$", model
    )


@pytest.mark.parametrize(
    "item",
    [
        "A claim.",
        "A claim — a sentence",
        "A claim — `tests/unit/test_missing.py`",
        "A claim — `tests/unit/test_docs.py::test_missing`",
        (
            "A claim — `tests/unit/test_docs.py::test_every_table_is_whole`, "
            "`tests/unit/test_missing.py`"
        ),
        "A claim — `docs/security.md`",
        "A claim — `charts/slurm-operator/tests/operator/rbac_test.yaml::it: missing`",
    ],
)
def test_a_claim_without_a_test_is_found(item: str) -> None:
    assert claims_without_tests(f"### Prevented\n\n- {item}\n\n### Not prevented\n") == [
        item.partition(" — ")[0]
    ]


MIGRATION = r"tests/configurations/migration/([\w.-]+)\.yaml\)"
"""Link to a values file in the shape of SchedMD's charts, which `make charts` renders and compares.
"""


def rows_without_files(page: str, section: str, *, refused: bool) -> list[str]:
    """Rows of a section's table that link to no values file, to a missing one, or to one with the
    other result.
    """
    cases = {case.name: case.expected for case in migration.cases()}
    text = re.search(rf"^## {section}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert text, f"no section {section!r}"
    found = []
    for row in re.findall(r"^\|.*", text.group(1), re.MULTILINE)[2:]:
        files = re.findall(MIGRATION, row.split("|")[-2])
        results = [(file in cases, "refused" in cases.get(file, {})) for file in files]
        if not files or any(result != (True, refused) for result in results):
            found.append(row)
    return found


def unproven_claims(text: str) -> list[str]:
    """Paragraphs and rows that call something of SchedMD's unchanged, without a link to the list of
    what is, or a " "file.
    """
    blocks = re.split(r"\n\s*\n|\n(?=\|)", text)
    claims = [
        " ".join(block.split())
        for block in blocks
        if "unchanged" in block and re.search("SchedMD|Slinky", block)
    ]
    return [
        claim
        for claim in claims
        if not re.search(rf"#values-that-work-unchanged\)|{MIGRATION}", claim)
    ]


def test_each_row_of_values_that_work_unchanged_or_are_refused_names_files_that_are_tested() -> (
    None
):
    page = (ROOT / "docs/compatibility.md").read_text(encoding="utf-8")
    assert rows_without_files(page, "Values that work unchanged", refused=False) == []
    assert rows_without_files(page, "Values that are refused", refused=True) == []


@pytest.mark.parametrize(
    "files",
    [
        "none",
        "[a](../tests/configurations/migration/missing.yaml)",
        "[a](../tests/configurations/migration/base.yaml)",
        "[a](../tests/configurations/migration/keys-of-1.0.yaml)",
        (
            "[a](../tests/configurations/migration/workers.yaml), "
            "[a](../tests/configurations/migration/missing.yaml)"
        ),
    ],
    ids=["none", "missing", "not rendered", "refused", "one of two missing"],
)
def test_a_row_without_a_file_that_proves_it_is_found(files: str) -> None:
    row = f"| `nodesets` | {files} |"
    assert rows_without_files(
        f"## Same\n\n| values | files |\n|---|---|\n{row}\n", "Same", refused=False
    ) == [row]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_claim_that_something_of_schedmd_is_unchanged_leads_to_what_proves_it(
    page: Path,
) -> None:
    assert unproven_claims(page.read_text(encoding="utf-8")) == []


def test_a_claim_that_something_is_unchanged_without_a_proof_is_found() -> None:
    assert unproven_claims("Text.\n\nValues of SchedMD's\ncharts are unchanged.\n") == [
        "Values of SchedMD's charts are unchanged."
    ]


def rows(header: str) -> list[list[str]]:
    """Return the cells of a table of CONTRIBUTING.md that begins with this line."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    lines = text.split(f"\n{header}\n")[1].split("\n\n")[0].splitlines()
    return [line.strip("|").split("|") for line in lines[1:]]


def quoted(cell: str) -> list[str]:
    """Return the words in backquotes."""
    return re.findall(r"`([^`]+)`", cell)


def test_the_map_of_the_repository_names_each_folder() -> None:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.splitlines()
    folders = {it.split("/")[0] for it in listed if "/" in it and not it.startswith(".")}
    places = [quoted(row[0])[0] for row in rows("| where | what |")]
    assert {it.split("/")[0] for it in places} == folders
    assert [it for it in places if not (ROOT / it).is_dir()] == []


def test_the_map_of_the_programs_names_each_package_and_its_roles() -> None:
    packages = {
        it.stem
        for it in (ROOT / "sidecars").iterdir()
        if it.suffix == ".py" or (it / "__init__.py").is_file()
    } - {"__init__", "__main__"}
    table = rows("| where | roles | what |")
    assert {name for row in table for name in quoted(row[0])} == packages
    roles = {role: name for row in table for name in quoted(row[0]) for role in quoted(row[1])}
    assert roles == {role: it.module.split(".")[1] for role, it in ROLES.items()}
