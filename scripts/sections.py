"""Pages that several scripts write, each its own part: what stands between the marks of a name."""

from __future__ import annotations

from pathlib import Path


def write_section(page: Path, name: str, text: str) -> None:
    """Replace the part of a page; one that is not there yet comes last."""
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before = page.read_text() if page.exists() else ""
    part = f"{begin}\n{text.strip()}\n{end}"
    if begin in before and end in before:
        head, rest = before.split(begin, 1)
        page.write_text(f"{head}{part}{rest.split(end, 1)[1]}")
    else:
        page.write_text(f"{before.rstrip()}\n\n{part}\n".lstrip())
