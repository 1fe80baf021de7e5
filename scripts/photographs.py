"""Photograph pages in Chromium, on a desk and on a phone, light and dark: the atlas, and the report of an audit.

python scripts/photographs.py
"""

from __future__ import annotations

import io
import runpy
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
DESK, PHONE = {"width": 1280, "height": 1100}, {"width": 390, "height": 844}
ATLAS, REPORT = "atlas", "report"
# A name, the page, the size, light or dark, and what is scrolled into view.
PHOTOGRAPHS = (
    ("atlas", ATLAS, DESK, "light", None),
    ("atlas-dark", ATLAS, DESK, "dark", "#op-clamp"),
    ("atlas-phone", ATLAS, PHONE, "light", "#op-clamp"),
    ("report", REPORT, DESK, "light", None),
    ("report-dark", REPORT, DESK, "dark", None),
    ("report-phone", REPORT, PHONE, "light", None),
)


def report(folder: Path) -> Path:
    """The report of examples/audit_walkthrough.py."""
    page, given = folder / "report.html", sys.argv
    sys.argv = ["audit_walkthrough.py", str(page)]
    try:
        runpy.run_path(str(ROOT / "examples" / "audit_walkthrough.py"), run_name="__main__")
    finally:
        sys.argv = given
    return page


def photograph(page: Any, path: Path, shown: str | None) -> Image.Image:
    page.goto(path.as_uri())
    if shown:
        page.evaluate("selector => document.querySelector(selector).scrollIntoView()", shown)
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    with sync_playwright() as playwright, tempfile.TemporaryDirectory() as folder:
        pages = {ATLAS: ROOT / "docs" / "atlas.html", REPORT: report(Path(folder))}
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, which, viewport, scheme, shown in PHOTOGRAPHS:
            page = browser.new_page(viewport=viewport, color_scheme=scheme)
            target = IMAGES / f"{name}.png"
            photograph(page, pages[which], shown).quantize(256).save(target, optimize=True)
            print(f"{target.relative_to(ROOT)}: {target.stat().st_size // 1024} KiB")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
