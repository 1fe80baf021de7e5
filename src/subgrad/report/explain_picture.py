"""Values and slopes around a point, drawn with matplotlib."""

from __future__ import annotations

import io
from collections.abc import Sequence
from math import isfinite
from typing import Any

from subgrad.explain.profile import Profile
from subgrad.explain.program import INSTALLED
from subgrad.report.elements import number

COLOURS = ("#0072b2", "#d55e00")
OWN = "#009e73"
LONGEST = 60  # characters of an expression


def picture(drawn: Sequence[Profile], form: str = "svg") -> bytes:
    """Values above, slopes below, of one expression or two; a dot for every slope that a convention takes at the point.

    Args:
        form: ``"svg"`` or ``"png"``.
    """
    from matplotlib.figure import Figure  # without pyplot, which keeps figures and looks for a screen

    figure = Figure(figsize=(7.0, 6.0), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    for profile, colour in zip(drawn, COLOURS, strict=False):
        _curve(above, profile, profile.values, colour, _short(profile.text))
        above.plot([profile.at], [profile.value], "o", color=colour, markersize=5)
        _curve(below, profile, profile.slopes, colour)
        _picks(below, profile, colour)
    for plot, name in ((above, "value"), (below, "slope")):
        plot.axvline(drawn[0].at, color="#cccccc", linewidth=0.8, zorder=0)
        plot.set_ylabel(name)
        plot.spines[["top", "right"]].set_visible(False)
    below.set_xlabel(drawn[0].axis)
    figure.legend(*above.get_legend_handles_labels(), loc="outside upper left", frameon=False)
    if any(profile.own for profile in drawn):
        below.legend(loc="best", frameon=False)
    written = io.BytesIO()
    figure.savefig(written, format=form, dpi=150)
    return written.getvalue()


def _curve(plot: Any, profile: Profile, heights: Sequence[float], colour: str, label: str | None = None) -> None:
    """Both sides by themselves: nothing joins them over the point."""
    middle = len(profile.places) // 2
    plot.plot(profile.places[:middle], heights[:middle], color=colour, label=label)
    plot.plot(profile.places[middle:], heights[middle:], color=colour)


def _picks(plot: Any, profile: Profile, colour: str) -> None:
    """A dot for each slope, with the conventions that take it; a cross for the expression's own."""
    groups: dict[float, list[str]] = {}
    for name in sorted(profile.picks, key=lambda name: (name != INSTALLED, not name.startswith("torch-"))):
        if isfinite(profile.picks[name]):
            groups.setdefault(profile.picks[name] + 0.0, []).append("torch here" if name == INSTALLED else name)
    if groups:
        plot.plot([profile.at] * 2, [min(groups), max(groups)], color=colour, linewidth=1, linestyle=":")
    for slope, names in groups.items():
        plot.plot([profile.at], [slope], "o", color=colour, markersize=5)
        plot.annotate(
            f"{number(slope)}: {', '.join(names)}",
            (profile.at, slope),
            xytext=(7, 3),
            textcoords="offset points",
            fontsize=7,
            color=colour,
        )
    own = [slope for slope in profile.own if isfinite(slope)]
    label = f"own, {_short(profile.text)}"
    plot.plot([profile.at] * len(own), own, "x", color=OWN, markersize=9, label=label if own else None)


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]} ..."
