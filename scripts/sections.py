"""Pages that several scripts write, each its own part: what stands between the marks of a name."""

from __future__ import annotations

from pathlib import Path


def write_section(page: Path, name: str, text: str) -> None:
    """Replace the part of a page; one that is not there yet comes last."""
    page.write_text(with_section(page.read_text() if page.exists() else "", name, text))


def with_section(page: str, name: str, text: str) -> str:
    """The text of a page with its part of this name replaced, or put last."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    part = f"{begin}\n{text.strip()}\n{end}"
    if begin in page and end in page:
        head, rest = page.split(begin, 1)
        return f"{head}{part}{rest.split(end, 1)[1]}"
    return f"{page.rstrip()}\n\n{part}\n".lstrip()
