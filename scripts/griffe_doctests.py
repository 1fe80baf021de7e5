"""For the reference: examples in docstrings are shown as code, wherever they stand."""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"(?m)^>>> .*\n(?:.+(?:\n|\Z))*")


class Doctests(griffe.Extension):
    """Put each example between fences, so that it is not read as a quotation."""

    def on_object(self, *, obj: griffe.Object, **given: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = EXAMPLE.sub(
                lambda found: f"```pycon\n{found[0].rstrip()}\n```\n", obj.docstring.value
            )
