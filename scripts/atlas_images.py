"""Photograph docs/atlas.html in Chromium, on a desk and on a phone, light and dark: docs/images."""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

DOCS = Path(__file__).resolve().parent.parent / "docs"
DESK, PHONE = {"width": 1280, "height": 1100}, {"width": 390, "height": 844}
# A name, the size, light or dark, and the operation that is in view.
IMAGES = (
    ("atlas", DESK, "light", None),
    ("atlas-dark", DESK, "dark", "clamp"),
    ("atlas-phone", PHONE, "light", "clamp"),
)


def photograph(page: Any, operation: str | None) -> Image.Image:
    page.goto((DOCS / "atlas.html").as_uri())
    if operation:
        page.evaluate("name => document.getElementById(`op-${name}`).scrollIntoView()", operation)
    return Image.open(io.BytesIO(page.screenshot())).convert("RGB")


def main() -> None:
    (DOCS / "images").mkdir(exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        for name, viewport, scheme, operation in IMAGES:
            page = browser.new_page(viewport=viewport, color_scheme=scheme)
            target = DOCS / "images" / f"{name}.png"
            photograph(page, operation).quantize(256).save(target, optimize=True)
            print(f"{target.relative_to(DOCS.parent)}: {target.stat().st_size // 1024} KiB")
            page.close()
        browser.close()


if __name__ == "__main__":
    main()
