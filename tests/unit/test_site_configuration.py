"""That the site shows the titles of blocks, which are plain GitHub Markdown in the pages, and links
to a repository.
"""

import re
import runpy
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from sidecars.contract.project import VERSION
from tests.charts import examples

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def shown() -> Callable[[str], str]:
    """What Sphinx reads in place of a page."""
    captions = runpy.run_path(str(ROOT / "docs" / "conf.py"))["show_titles"]

    def read(text: str) -> str:
        source = [text]
        captions(None, "page", source)
        return source[0]

    return read


@pytest.mark.parametrize("title", examples.CHARTS)
def test_the_title_of_values_is_a_caption_with_their_chart(
    shown: Callable[[str], str], title: str
) -> None:
    page = shown(f'```yaml title="{title}"\na: b\n```\n')
    assert (
        page
        == f"```{{code-block}} yaml\n:caption: {title} of the chart {examples.CHARTS[title]}\na: "
        "b\n```\n"
    )


def test_the_title_of_another_file_is_its_caption(shown: Callable[[str], str]) -> None:
    assert (
        shown('```sh title="with-pods.sh"\necho\n```\n')
        == "```{code-block} sh\n:caption: with-pods.sh\necho\n```\n"
    )


def test_a_block_in_a_list_stays_in_it(shown: Callable[[str], str]) -> None:
    page = shown('1. Do:\n\n   ```yaml title="model.yaml"\n   a: b\n   ```\n')
    assert page == "1. Do:\n\n   ```{code-block} yaml\n   :caption: model.yaml\n   a: b\n   ```\n"


def test_a_block_without_a_title_stays_as_it_is(shown: Callable[[str], str]) -> None:
    assert shown("```yaml\na: b\n```\n") == "```yaml\na: b\n```\n"


@pytest.mark.parametrize(
    ("repository", "links"),
    [("https://github.com/owner/name", True), ("https://github.invalid/owner/name", False)],
)
def test_a_page_links_to_its_source_if_the_repository_exists(
    tmp_path: Path, repository: str, links: bool
) -> None:
    text = (ROOT / "docs" / "conf.py").read_text(encoding="utf-8")
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "conf.py").write_text(
        re.sub("^REPOSITORY = .*$", f'REPOSITORY = "{repository}"', text, flags=re.MULTILINE)
    )
    options = runpy.run_path(str(tmp_path / "docs" / "conf.py"))["html_theme_options"]
    assert options.get("source_repository") == (f"{repository}/" if links else None)


def test_the_site_shows_its_version_and_the_icon() -> None:
    found = runpy.run_path(str(ROOT / "docs" / "conf.py"))
    assert found["html_title"] == f"Slurm on Kubernetes {VERSION}"
    assert (ROOT / "docs" / found["html_logo"]).is_file()


def test_blocks_have_a_button_that_copies_commands_without_their_prompt_and_comments_whole() -> (
    None
):
    found = runpy.run_path(str(ROOT / "docs" / "conf.py"))
    assert "sphinx_copybutton" in found["extensions"]
    assert found["copybutton_prompt_text"] == "$ "
