"""Values and slopes around a point, drawn with matplotlib."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from math import isfinite
from typing import Any, NamedTuple

from subgrad.explain.profile import Profile
from subgrad.explain.program import INSTALLED
from subgrad.report.elements import number


class Look(NamedTuple):
    """How one of the expressions is drawn, and on which side of the point its slopes are named."""

    colour: str
    line: str
    side: str
    edge: float


LOOKS = (Look("#0072b2", "-", "right", 0.99), Look("#d55e00", "--", "left", 0.01))
LINE = 0.05  # of the height of a plot
OWN = "#009e73"
LONGEST = 60  # characters of an expression
BESIDE = 46  # characters of what is beside a dot


def picture(drawn: Sequence[Profile], form: str = "svg") -> bytes:
    """Values above, slopes below, of one expression or two; a dot for every slope that a convention takes at the point.

    Args:
        form: ``"svg"`` or ``"png"``.
    """
    from matplotlib.figure import Figure  # without pyplot, which keeps figures and looks for a screen

    figure = Figure(figsize=(7.0, 6.0), layout="constrained")
    above, below = figure.subplots(2, 1, sharex=True)
    for profile, look in zip(drawn, LOOKS, strict=False):
        _curve(above, profile, profile.values, look, _short(profile.text))
        above.plot([profile.at], [profile.value], "o", color=look.colour, markersize=5)
        _curve(below, profile, profile.slopes, look)
        _picks(below, profile, look)
        _own(below, profile)
    for plot, name in ((above, "value"), (below, "slope")):
        for profile in drawn[:1]:
            plot.axvline(profile.at, color="#cccccc", linewidth=0.8, zorder=0)
            plot.set_xlabel(profile.axis if plot is below else "")
        plot.set_ylabel(name)
        plot.margins(y=0.15)
        plot.spines[["top", "right"]].set_visible(False)
    for profile, look in zip(drawn, LOOKS, strict=False):
        _names(below, profile, look)
    pairs = [pair for plot in (above, below) for pair in zip(*plot.get_legend_handles_labels(), strict=True)]
    by_label = {label: handle for handle, label in pairs}
    if by_label:
        figure.legend(by_label.values(), by_label.keys(), loc="outside upper left", frameon=False)
    written = io.BytesIO()
    figure.savefig(written, format=form, dpi=150)
    return written.getvalue()


def _curve(plot: Any, profile: Profile, heights: Sequence[float], look: Look, label: str | None = None) -> None:
    """Both sides by themselves: nothing joins them over the point."""
    middle = len(profile.places) // 2
    plot.plot(profile.places[:middle], heights[:middle], look.line, color=look.colour, label=label)
    plot.plot(profile.places[middle:], heights[middle:], look.line, color=look.colour)


def _picks(plot: Any, profile: Profile, look: Look) -> None:
    """A dot for each slope that a convention takes, and a line between them."""
    slopes = list(_takers(profile))
    if slopes:
        plot.plot([profile.at] * 2, [min(slopes), max(slopes)], color=look.colour, linewidth=1, linestyle=":")
    plot.plot([profile.at] * len(slopes), slopes, "o", color=look.colour, markersize=5)


def _takers(profile: Profile) -> dict[float, list[str]]:
    """Who takes each slope, the installed torch first; slopes that are not finite cannot be drawn."""
    groups: dict[float, list[str]] = {}
    for name in sorted(profile.picks, key=lambda name: (name != INSTALLED, not name.startswith("torch-"))):
        if isfinite(profile.picks[name]):
            groups.setdefault(profile.picks[name] + 0.0, []).append("torch here" if name == INSTALLED else name)
    return groups


def _names(plot: Any, profile: Profile, look: Look) -> None:
    """The takers at the edge, as high as their dots but never over each other, and joined to them."""
    low, high = plot.get_ylim()
    bottom = LINE
    for slope, names in sorted(_takers(profile).items()):
        who = "every convention" if len(names) == len(profile.picks) else ", ".join(names)
        lines = textwrap.wrap(f"{number(slope)}: {who}", BESIDE, break_on_hyphens=False)
        height = len(lines) * LINE
        middle = max((slope - low) / (high - low), bottom + height / 2)
        bottom = middle + height / 2
        said = plot.annotate(
            "\n".join(lines),
            (profile.at, slope),
            xytext=(look.edge, middle),
            textcoords="axes fraction",
            horizontalalignment=look.side,
            verticalalignment="center",
            fontsize=7,
            color=look.colour,
            bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1},
            arrowprops={"arrowstyle": "-", "color": look.colour, "linewidth": 0.5, "shrinkB": 3},
        )
        said.set_in_layout(False)


def _own(plot: Any, profile: Profile) -> None:
    """A cross for each slope of the expression's own."""
    own = [slope for slope in profile.own if isfinite(slope)]
    if own:
        plot.plot([profile.at] * len(own), own, "x", color=OWN, markersize=9, label="slopes of their own")


def _short(text: str) -> str:
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 4]} ..."
