"""Text of a program in HTML."""

from __future__ import annotations

import re
from html import escape

_PARTS = re.compile(r"(?<=[._/\\])(?!py\b)(?=\w)")


def breakable(text: str) -> str:
    """Escaped, and broken, where it must be, between the parts of a name and not inside of a word."""
    return "<wbr>".join(escape(part) for part in _PARTS.split(text))
