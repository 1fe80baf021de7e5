"""Write the pages of the documentation that are made from the table and from what the installed torch returns."""

from __future__ import annotations

from pathlib import Path

from subgrad.report.kinks_page import kinks_page
from subgrad.survey import survey

ROOT = Path(__file__).resolve().parent.parent

page = ROOT / "docs" / "kinks.md"
page.parent.mkdir(exist_ok=True)
page.write_text(kinks_page(list(survey())))
print(f"{page.relative_to(ROOT)}: written")
