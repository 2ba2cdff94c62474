"""Configuration of the documentation's site, which `make docs` builds with Sphinx.

The pages are GitHub's Markdown, so that they look the same on GitHub and on the site. `_toc.yml` is
the navigation.
"""

import posixpath
import re
import tomllib
from pathlib import Path
from typing import Any

REPOSITORY = "https://github.invalid/slurm-charts/slurm-charts"

project = "Slurm on Kubernetes"
release = tomllib.loads(Path(__file__).parent.with_name("pyproject.toml").read_text("utf-8"))[
    "project"
]["version"]
html_title = f"{project} {release}"
html_logo = html_favicon = "../.github/icon.svg"
language = "en"
extensions = ["myst_parser", "sphinx_copybutton", "sphinx_external_toc"]
# Not "# ": a block of YAML may begin with a comment.
copybutton_prompt_text = "$ "
# What GitHub doesn't know.
myst_disable_syntax = ["myst_role", "myst_target", "myst_line_comment", "myst_block_break"]
myst_heading_anchors = 4
highlight_language = "text"
html_theme = "furo"
# The theme refuses the address of the tree, which is no repository. The release writes one.
html_theme_options = (
    {"source_repository": f"{REPOSITORY}/", "source_branch": "main", "source_directory": "docs/"}
    if REPOSITORY.startswith("https://github.com/")
    else {}
)
html_copy_source = False
html_static_path = ["css"]
html_css_files = ["fields.css"]


def link_to_repository(_app: object, page: str, source: list[str]) -> None:
    """Links that lead out of this folder lead to the repository."""

    def target(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link[1]))
        return (
            f"]({REPOSITORY}/blob/main/{path.removeprefix('../')})"
            if path.startswith("../")
            else link[0]
        )

    source[0] = re.sub(r"\]\((\.\./[^)\s]+)\)", target, source[0])


def show_titles(_app: object, _page: str, source: list[str]) -> None:
    """The title of a block becomes its caption, with the chart whose values it has."""

    def directive(block: re.Match[str]) -> str:
        indent, language, title = block[1], block[2], block[3]
        values = re.fullmatch(r"(?:([a-z]+)-)?values\.yaml", title)
        chart = f" of the chart {'-'.join(filter(None, ('slurm', values[1])))}" if values else ""
        return f"{indent}```{{code-block}} {language}\n{indent}:caption: {title}{chart}\n"

    source[0] = re.sub(r'^( *)```(\w+) title="([^"]+)"\n', directive, source[0], flags=re.MULTILINE)


def mark_fields(_app: object, document: Any) -> None:
    """Tables of the reference get a class for `fields.css`, and each row the anchor `field-NAME`,
    to which it links.
    """
    # Only Sphinx' environment has docutils.
    from docutils import nodes

    used = set()
    for table in document.findall(nodes.table):
        head, *rows = table.findall(nodes.row)
        if head.astext().split() != ["Field", "Type", "Default", "Meaning"]:
            continue
        table["classes"].append("fields")
        for row in rows:
            name = next(row.findall(nodes.literal))
            anchor = nodes.make_id(f"field {name.astext()}")
            if anchor in used:
                # Several custom resources have a field of this name.
                anchor = f"{anchor}-of-{table.parent['ids'][0]}"
            used.add(anchor)
            row["ids"].append(anchor)
            for cell in row.findall(nodes.entry):
                if not cell.astext():
                    cell["classes"].append("empty")
            name.replace_self(nodes.reference("", "", name.deepcopy(), refid=anchor))


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("doctree-read", mark_fields)
    app.connect("source-read", link_to_repository)
    app.connect("source-read", show_titles)
