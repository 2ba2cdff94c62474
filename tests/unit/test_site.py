"""That the check of the documentation's built site finds links that lead nowhere, and what other
hosts serve.
"""

from pathlib import Path

import pytest

from tests import site


def of(body: str) -> list[str]:
    """What is found in a page with `body`, beside another page with one anchor."""
    return site.problems(
        {"index.html": body, "a/page.html": "<h2 id='there'>x</h2>", "a/logo.svg": ""}
    )


@pytest.mark.parametrize(
    "link",
    [
        "a/page.html",
        "a/page.html#there",
        "./a/page.html#there",
        "a/logo.svg",
        "#",
        "https://example.com/x#y",
    ],
)
def test_a_link_that_leads_somewhere_is_fine(link: str) -> None:
    assert of(f'<a href="{link}">x</a>') == []


@pytest.mark.parametrize("link", ["page.html", "a/page.html#missing", "#missing", "../index.html"])
def test_a_link_that_leads_nowhere_is_found(link: str) -> None:
    assert [link in problem for problem in of(f'<a href="{link}">x</a>')] == [True]


@pytest.mark.parametrize(
    "element",
    [
        '<script src="https://cdn.example.com/a.js"></script>',
        '<script src="//cdn.example.com/a.js"></script>',
        '<link rel="stylesheet" href="https://fonts.example.com/css">',
        '<link rel="preconnect" href="https://fonts.example.com">',
        '<img src="https://example.com/a.png">',
        '<iframe src="https://example.com/"></iframe>',
    ],
)
def test_what_another_host_serves_is_found(element: str) -> None:
    assert len(of(element)) == 1


@pytest.mark.parametrize(
    "rule", ["@import 'https://example.com/a.css';", "a { background: url(//example.com/a.png) }"]
)
def test_styles_and_fonts_of_another_host_are_found(rule: str) -> None:
    assert len(site.problems({"a.css": rule})) == 1


def test_the_canonical_address_and_links_to_other_sites_load_nothing() -> None:
    assert (
        of('<link rel="canonical" href="https://example.com/"><a href="https://example.com/">x</a>')
        == []
    )


def test_an_image_that_is_missing_is_found() -> None:
    assert of('<img src="a/missing.svg">') == ["index.html: a/missing.svg leads to no file"]


def test_a_folder_without_a_site_is_no_site(tmp_path: Path) -> None:
    assert site.main([str(tmp_path)]) == 1


def test_a_table_of_fields_without_room_for_its_columns_is_found() -> None:
    head = '<thead><tr><th class="head"><p>Field</p></th></tr></thead></table>'
    assert of(f'<table class="fields docutils align-default">{head}') == []
    (problem,) = of(f'<table class="docutils align-default">{head}')
    assert "too wide to be read" in problem
