"""`python -m tests.site FOLDER`: that a built site is whole, and needs nobody else's servers.

Each link within the site leads to a file and to an anchor in it. Scripts, styles, images and fonts
are part of the site: a reader's browser connects to no other host.
"""

import posixpath
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

LOADED_LINKS = {
    "stylesheet",
    "icon",
    "preload",
    "prefetch",
    "preconnect",
    "dns-prefetch",
    "modulepreload",
    "manifest",
}


@dataclass
class Page(HTMLParser):
    """What one page links to, loads, and has as anchors."""

    links: list[str] = field(default_factory=list)
    loads: list[str] = field(default_factory=list)
    anchors: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        super().__init__()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect from one element."""
        values = {name: value or "" for name, value in attrs}
        self.anchors.update(values[name] for name in ("id", "name") if name in values)
        if tag == "a" and "href" in values:
            self.links.append(values["href"])
        elif tag == "link" and LOADED_LINKS & set(values.get("rel", "").split()):
            self.loads.append(values.get("href", ""))
        elif tag != "a":
            self.loads += [values[name] for name in ("src", "srcset", "data") if name in values]


def problems(files: Mapping[str, str]) -> list[str]:
    """What is wrong with a site, given the text of its pages and styles, and "" for each other
    file.
    """
    pages = {path: Page() for path in files if path.endswith(".html")}
    for path, page in pages.items():
        page.feed(files[path])
    found = [
        f"{path}: {problem}"
        for path, page in pages.items()
        for problem in _of_page(path, page, files, pages)
    ]
    found += [
        f"{path}: a table of fields is without the class `fields`, and too wide to be read"
        for path in pages
        if files[path].count("<p>Field</p></th>") != files[path].count('<table class="fields ')
    ]
    for path, text in files.items():
        if path.endswith(".css"):
            loads = re.findall(r"url\(['\"]?([^'\")]+)|@import\s+['\"]([^'\"]+)", text)
            found += [f"{path}: loads {url}" for each in loads for url in each if _foreign(url)]
    return found


def _of_page(
    path: str, page: Page, files: Mapping[str, str], pages: Mapping[str, Page]
) -> list[str]:
    found = [f"loads {url}" for url in page.loads if _foreign(url)]
    for url in [*page.links, *(url for url in page.loads if not _foreign(url))]:
        parts = urlsplit(url)
        if parts.scheme or parts.netloc:
            continue
        target = (
            posixpath.normpath(posixpath.join(posixpath.dirname(path), unquote(parts.path)))
            if parts.path
            else path
        )
        if target not in files:
            found.append(f"{url} leads to no file")
        elif (
            parts.fragment
            and target in pages
            and unquote(parts.fragment) not in pages[target].anchors
        ):
            found.append(f"{url} leads to no anchor")
    return found


def _foreign(url: str) -> bool:
    return urlsplit(url).scheme in {"http", "https"} or url.startswith("//")


def read(folder: Path) -> dict[str, str]:
    """The files of a site by their paths."""
    return {
        str(path.relative_to(folder)): path.read_text(encoding="utf-8")
        if path.suffix in {".html", ".css"}
        else ""
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def main(arguments: list[str]) -> int:
    """The command; 0 means that the site is whole."""
    files = read(Path(arguments[0]))
    found = problems(files) if files else [f"{arguments[0]} contains no site"]
    print(
        "\n".join(found)
        or f"{sum(path.endswith('.html') for path in files)} pages, every link leads somewhere"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
