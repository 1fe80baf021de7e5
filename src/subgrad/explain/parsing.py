"""Texts of one expression: their trees, and mistakes that point at a place."""

from __future__ import annotations

import ast
import warnings

LONGEST = 2000  # characters
SHOWN = 66  # characters of a mistaken text, which fit a line of 80


class Mistake(ValueError):  # noqa: N818
    """What is wrong with an expression or a point, and where in it."""

    def __init__(self, text: str, start: int, end: int, why: str):
        self.text, self.start, self.end, self.why = text, start, end, why
        super().__init__(f"{why}\n{_pointed_at(text, start, end)}")


def _pointed_at(text: str, start: int, end: int) -> str:
    """The text, or the part of a long one that matters, with carets under the place."""
    first = max(0, min(start - SHOWN // 3, len(text) - SHOWN))
    before = "... " if first else ""
    shown = f"{before}{text[first : first + SHOWN]}{' ...' if first + SHOWN < len(text) else ''}"
    carets = "^" * max(1, min(end, first + SHOWN) - start)
    return f"  {shown}\n  {' ' * (len(before) + start - first)}{carets}"


def mistake(text: str, node: ast.AST, why: str) -> Mistake:
    start = getattr(node, "col_offset", 0)
    return Mistake(text, start, getattr(node, "end_col_offset", None) or len(text), why)


def parsed(text: str, longest: int = LONGEST) -> ast.expr:
    """The tree of a text that is one expression in one line."""
    if len(text) > longest:
        raise Mistake(text, longest, len(text), f"{len(text):,} characters: {longest:,} are the most.")
    strange = next((place for place, letter in enumerate(text) if not " " <= letter <= "~"), None)
    if strange is not None:
        shown = "".join(letter if " " <= letter <= "~" else "?" for letter in text)
        raise Mistake(shown, strange, strange + 1, f"{text[strange]!r}: write it in one line of plain ASCII.")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # Python has an opinion on numbers that end in letters
            return ast.parse(text, mode="eval").body
    except SyntaxError as error:
        start = min(max((error.offset or 1) - 1, 0), len(text))
        raise Mistake(text, start, start + 1, f"This is not an expression of Python: {error.msg}.") from None
    except (ValueError, MemoryError, RecursionError):
        raise Mistake(text, 0, len(text), "This is too deep to be read.") from None


def path(node: ast.AST) -> str | None:
    """``"torch.linalg.norm"`` for names with dots between them; None for anything else."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    return ".".join((node.id, *reversed(parts))) if isinstance(node, ast.Name) else None


def is_of_torch(full: str | None) -> bool:
    return full is not None and full.partition(".")[0] in ("torch", "F")
