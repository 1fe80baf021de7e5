"""Saying no, by name and with the line of the program."""

from __future__ import annotations

from subgrad.apply.lines import here, where_raised

__all__ = ["Refused", "here", "where_raised"]


class Refused(RuntimeError):  # noqa: N818
    """The program has no generalised gradient here, or none that can be found."""
