"""The site of the documentation: every page is in its navigation, and the check of its links finds what is wrong."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINKS = runpy.run_path(str(ROOT / "scripts" / "site_links.py"))


def test_every_page_is_in_the_navigation_once() -> None:
    _, _, nav = (ROOT / "mkdocs.yml").read_text().partition("\nnav:\n")
    listed = re.findall(r": (\S+\.md)$", nav, re.MULTILINE)
    pages = [str(path.relative_to(ROOT / "docs")) for path in (ROOT / "docs").rglob("*.md")]
    assert sorted(listed) == sorted(page for page in pages if not re.match(r"records/(?!index)", page))


def test_every_picture_that_a_page_shows_is_there_and_every_picture_is_shown() -> None:
    texts = [path.read_text() for path in (ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), ROOT / "mkdocs.yml")]
    shown = {Path(each).name for text in texts for each in re.findall(r"images/[\w.-]+", text)}
    there = {path.name for path in (ROOT / "docs" / "images").iterdir()}
    assert shown <= there
    # Beside each photograph, the same in the dark and on a phone.
    assert {name for name in there if not re.search(r"-(dark|phone)\.png$", name)} <= shown


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ('<a href="other.html#there">', None),
        ('<a href="https://example.org/x">', None),
        ('<a href="#here">', None),
        ('<a href="missing.html">', "a.html links to missing.html, which is not there"),
        ('<a href="other.html#gone">', "a.html links to other.html#gone, which has no such place"),
        ('<img src="gone.png">', "a.html links to gone.png, which is not there"),
        ('<script src="https://example.org/x.js"></script>', "a.html fetches https://example.org/x.js"),
        ('<link rel="stylesheet" href="//example.org/x.css">', "a.html fetches //example.org/x.css"),
    ],
)
def test_links_that_lead_nowhere_and_what_is_fetched_are_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], body: str, found: str | None
) -> None:
    (tmp_path / "a.html").write_text(f'<p id="here">{body}</p>')
    (tmp_path / "other.html").write_text('<p id="there"></p>')
    assert LINKS["main"](tmp_path) == (found is not None)
    assert capsys.readouterr().out.splitlines()[:-1] == ([found] if found else [])
