"""Check a built site: every link inside it leads somewhere, and no page fetches anything from elsewhere.

python scripts/site_links.py build/site
"""

from __future__ import annotations

import sys
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {("script", "src"), ("img", "src"), ("link", "href"), ("iframe", "src"), ("source", "src")}


class Page(HTMLParser):
    """The links of a page, what it fetches, and the places in it that can be linked to."""

    def __init__(self, path: Path):
        super().__init__()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.anchors: set[str] = set()
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.anchors |= {given[name] for name in ("id", "name") if name in given}
        for name, value in given.items():
            is_fetched = (tag, name) in FETCHED and given.get("rel") not in ("canonical", "prev", "next")
            if is_fetched:
                self.fetched.append(value)
            if is_fetched or (tag, name) == ("a", "href"):
                self.links.append(value)


page = cache(Page)


def broken(path: Path, site: Path) -> list[str]:
    """What is wrong on one page."""
    found = [f"fetches {each}" for each in page(path).fetched if urlsplit(each).netloc]
    for link in page(path).links:
        parts = urlsplit(link)
        if parts.scheme or parts.netloc:
            continue
        target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
        if parts.path.startswith("/"):  # the page for what is not found
            target = site / parts.path.lstrip("/")
        if target.is_dir():
            target = target / "index.html"
        if not target.exists():
            found.append(f"links to {link}, which is not there")
        elif parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in page(target).anchors:
            found.append(f"links to {link}, which has no such place")
    return found


def main(site: Path) -> int:
    pages = sorted(site.resolve().rglob("*.html"))
    wrong = [f"{path.relative_to(site.resolve())} {each}" for path in pages for each in broken(path, site.resolve())]
    print("\n".join([*wrong, f"{len(pages)} pages, {sum(len(page(path).links) for path in pages):,} links"]))
    return 1 if wrong or not pages else 0


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1])))
