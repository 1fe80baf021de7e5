"""Write the pages of the documentation that are made from the table and from what the installed torch returns."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from documented import filled  # noqa: E402
from recorded_atlas import recorded_atlas  # noqa: E402

from subgrad.report import atlas_page  # noqa: E402
from subgrad.report.kinks_page import kinks_page  # noqa: E402
from subgrad.survey import survey  # noqa: E402


def write(name: str, content: str) -> None:
    page = ROOT / "docs" / name
    page.write_text(content)
    print(f"{page.relative_to(ROOT)}: written")


write("kinks.md", kinks_page(list(survey())))
write("explain.md", filled((ROOT / "docs" / "explain.md").read_text()))
write("atlas.html", atlas_page.page(recorded_atlas()))
