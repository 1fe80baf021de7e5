"""A page of its own: nothing is fetched, and no script runs but its own."""

from __future__ import annotations

import base64
import hashlib
from functools import cache
from importlib.resources import files

# The page may run its own script and nothing else, whatever comes into it, and fetches nothing.
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{}'"
PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="{policy}">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>{style}</style>
</head>
<body>
{body}
<script>{script}</script>
</body>
</html>
"""


def document(title: str, body: str, style: str, script: str = "") -> str:
    """The whole page, of parts that are HTML already."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return PAGE.format(policy=POLICY.format(digest), title=title, style=style, script=script, body=body)


@cache
def asset(name: str) -> str:
    """A style or a script of this package."""
    return (files("subgrad.report") / "page" / name).read_text(encoding="utf-8")
