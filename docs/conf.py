"""Configuration of the documentation's site, which `make docs` builds with Sphinx.

The pages are GitHub's Markdown, so that they look the same on GitHub and on the site. `_toc.yml` is the navigation.
"""

import posixpath
import re
from typing import Any

REPOSITORY = "https://github.com/slurm-charts/slurm-charts"

project = "Slurm on Kubernetes"
html_title = project
language = "en"
extensions = ["myst_parser", "sphinx_external_toc"]
# What GitHub doesn't know.
myst_disable_syntax = ["myst_role", "myst_target", "myst_line_comment", "myst_block_break"]
myst_heading_anchors = 4
highlight_language = "text"
html_theme = "furo"
html_theme_options = {
    "source_repository": f"{REPOSITORY}/",
    "source_branch": "main",
    "source_directory": "docs/",
}
html_copy_source = False


def link_to_repository(_app: object, page: str, source: list[str]) -> None:
    """Links that lead out of this folder lead to the repository."""

    def target(link: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), link[1]))
        return f"]({REPOSITORY}/blob/main/{path.removeprefix('../')})" if path.startswith("../") else link[0]

    source[0] = re.sub(r"\]\((\.\./[^)\s]+)\)", target, source[0])


def setup(app: Any) -> None:
    """Called by Sphinx."""
    app.connect("source-read", link_to_repository)
