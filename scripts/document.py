"""Write the pages of the documentation that are made from the table and from what the installed torch returns."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "tests"))

from documented import filled  # noqa: E402
from recorded_atlas import recorded_atlas  # noqa: E402
from sections import with_section  # noqa: E402

from subgrad.report import atlas_page  # noqa: E402
from subgrad.report.conventions_table import conventions_table  # noqa: E402
from subgrad.report.kinks_page import kinks_page  # noqa: E402
from subgrad.survey import survey  # noqa: E402

DOCS = ROOT / "docs"


def write(name: str, content: str) -> None:
    page = DOCS / name
    page.write_text(content)
    print(f"{page.relative_to(ROOT)}: written")


write("kinks.md", kinks_page(list(survey())))
write("explain.md", filled((DOCS / "explain.md").read_text()))
write("conventions.md", with_section((DOCS / "conventions.md").read_text(), "elements", conventions_table()))
write("atlas.html", atlas_page.page(recorded_atlas()))
