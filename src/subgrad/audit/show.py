"""An audit is data; `report`, which is a later stage, shows it, and is imported when it is asked to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from subgrad.audit.data import Audit


def text(audit: Audit) -> str:
    from subgrad.report import audit_text

    return audit_text.text(audit)


def page(audit: Audit) -> str:
    from subgrad.report import audit_page

    return audit_page.page(audit)


def fragment(audit: Audit) -> str:
    from subgrad.report import audit_page

    return audit_page.fragment(audit)


def write(path: Path, content: str) -> None:
    """The whole file or nothing."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(content, encoding="utf-8")
    part.replace(path)
