"""Draw the pictures of the documentation, of what is measured here or recorded: docs/images/*.svg.

python scripts/pictures.py
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent))

from records import ROOT, stored
from speed import LARGE, ON_GPU, timings

import subgrad
from subgrad.report.elements import number

IMAGES = ROOT / "docs" / "images"
# Told apart also by those who see few colours (Okabe and Ito).
COLOURS = {
    "torch-2.13": "#d55e00",
    "torch-2.14": "#0072b2",
    "jax": "#cc79a7",
    "tensorflow": "#e69f00",
    "min-norm": "#009e73",
}
STYLE = """
  .ground { fill: #ffffff; stroke: #d9dee6; } text { fill: #1c2330; font-family: system-ui, sans-serif; }
  .soft { fill: #5b6675; } .line { stroke: #1c2330; } .grid { stroke: #d9dee6; } .set { fill: #cfd6e0; }
  @media (prefers-color-scheme: dark) {
    .ground { fill: #14181f; stroke: #333c49; } text { fill: #e6eaf0; } .soft { fill: #9aa5b4; }
    .line { stroke: #e6eaf0; } .grid { stroke: #333c49; } .set { fill: #475366; }
  }"""
FAVICON = """<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32">
<rect width="32" height="32" rx="6" fill="#3f51b5"/>
<path d="M4 22 H16 L27 8" fill="none" stroke="#fff" stroke-width="3.5" stroke-linecap="round"/>
<circle cx="16" cy="22" r="3.5" fill="#ff6e40"/></svg>
"""


def svg(title: str, width: int, height: int, drawn: Iterable[str]) -> str:
    """A picture on a ground of its own, light or dark as the reader's system is."""
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'role="img" aria-label="{escape(title)}"><title>{escape(title)}</title><style>{STYLE}\n</style>\n'
        f'<rect class="ground" x="0.5" y="0.5" width="{width - 1}" height="{height - 1}" rx="10"/>\n'
        + "\n".join(drawn)
        + "\n</svg>\n"
    )


def text(x: float, y: float, said: str, size: int = 18, anchor: str = "start", **given: str) -> str:
    rest = "".join(f' {name.rstrip("_").replace("_", "-")}="{value}"' for name, value in given.items())
    return f'<text x="{x:g}" y="{y:g}" font-size="{size}" text-anchor="{anchor}"{rest}>{escape(said)}</text>'


def line(start: tuple[float, float], end: tuple[float, float], width: float, **given: str) -> str:
    rest = "".join(f' {name.rstrip("_").replace("_", "-")}="{value}"' for name, value in given.items())
    (x1, y1), (x2, y2) = start, end
    return f'<line x1="{x1:g}" y1="{y1:g}" x2="{x2:g}" y2="{y2:g}" stroke-width="{width:g}"{rest}/>'


def slopes(f, at: float, conventions: Iterable[str]) -> dict[str, float]:
    """What conventions take there; asked, not looked up."""
    found = {}
    for convention in conventions:
        x = torch.tensor(at, requires_grad=True)
        with subgrad.use(convention):
            found[convention] = torch.autograd.grad(f(x), x)[0].item()
    return found


def spellings() -> str:
    """Three spellings of max(x, 0): one curve, and their slopes at 0."""
    zero = torch.tensor(0.0)
    functions = {
        "relu(x)": torch.relu,
        "clamp(x, min=0)": lambda x: torch.clamp(x, min=0),
        "maximum(x, 0)": lambda x: torch.maximum(x, zero),
    }
    shown = ("torch-2.13", "torch-2.14", "min-norm")
    drawn = [text(24, 36, "Three spellings of max(x, 0), and their gradients at 0", 20, font_weight="600")]
    size, top = 216, 62
    for place, (name, f) in enumerate(functions.items()):
        left = 24 + place * (size + 12)
        middle, ground = left + size / 2, top + 128
        drawn += [
            text(middle, top + 14, name, 19, "middle", font_family="ui-monospace, monospace"),
            line((left + 8, ground), (left + size - 8, ground), 1, class_="grid"),
            line((middle, top + 30), (middle, ground + 36), 1, class_="grid"),
            line((left + 12, ground), (middle, ground), 4, class_="line", stroke_linecap="round"),
            line((middle, ground), (middle + 86, ground - 86), 4, class_="line", stroke_linecap="round"),
        ]
        for row, (convention, slope) in enumerate(slopes(f, 0.0, shown).items()):
            length = 44 / (1 + slope**2) ** 0.5
            ends = [(middle + side * length, ground - side * length * slope) for side in (-1, 1)]
            drawn.append(line(*ends, 11 - 3 * row, stroke=COLOURS[convention], stroke_opacity="0.85"))
            y = ground + 66 + 27 * row
            drawn += [
                f'<circle cx="{left + 22}" cy="{y - 6}" r="6" fill="{COLOURS[convention]}"/>',
                text(left + 36, y, convention.replace("-2", " 2"), 18, class_="soft"),
                text(left + size - 22, y, number(slope), 20, "end", font_weight="600"),
            ]
    return svg("Three spellings of max(x, 0), and their gradients at 0", 720, 334, drawn)


def sets() -> str:
    """The sets of some corners as bars, with what versions and frameworks take of them."""
    from subgrad.report.conventions_table import PLACES

    rows = [each for each in PLACES if each[1].startswith("[")]
    names = tuple(COLOURS)
    left, right, top, step = 292, 690, 92, 50
    low, high = -1.0, 2.0

    def x(slope: float) -> float:
        return left + (slope - low) / (high - low) * (right - left)

    drawn = [text(24, 36, "What may be returned, and what is", 20, font_weight="600"), *_key(names, 24, 66)]
    bottom = top + step * len(rows)
    for mark in (-1, 0, 1, 2):
        drawn.append(line((x(mark), top - 8), (x(mark), bottom), 1, class_="grid"))
        drawn.append(text(x(mark), bottom + 22, str(mark), 16, "middle", class_="soft"))
    for place, (name, among, f, at) in enumerate(rows):
        start, end = (float(each) for each in among.strip("[]").split(","))
        y = top + step * place + step / 2
        drawn.append(text(24, y + 6, name.replace("`", ""), 16))
        drawn.append(
            f'<rect class="set" x="{x(start):g}" y="{y - 8:g}" width="{x(end) - x(start):g}" height="16" rx="4"/>'
        )
        found = slopes(f, at[0], names)
        for slope in sorted(set(found.values())):
            those = [each for each in names if found[each] == slope]
            for nth, convention in enumerate(those):
                up = (nth - (len(those) - 1) / 2) * 9  # above each other: beside would be another slope
                drawn.append(f'<circle cx="{x(slope):g}" cy="{y + up:g}" r="4.5" fill="{COLOURS[convention]}"/>')
    drawn.append(
        text((left + right) / 2, bottom + 46, "slope at the kink; the bar is the set", 16, "middle", class_="soft")
    )
    return svg("The sets of generalised derivatives of some operators, and what is returned", 720, bottom + 64, drawn)


def _key(names: Sequence[str], left: float, y: float) -> list[str]:
    drawn = []
    for name in names:
        drawn += [f'<circle cx="{left + 7}" cy="{y - 6}" r="6" fill="{COLOURS[name]}"/>', text(left + 20, y, name, 17)]
        left += 40 + 9.4 * len(name)
    return drawn


def speed() -> str:
    """Forward and backward of large tensors on a GPU, and what is kept for backward."""
    record = stored()["rows_h200"]
    found = timings(record, "bfloat16", LARGE)
    panels = {
        "ms, forward and backward": lambda each: each.both,
        "bytes kept an entry": lambda each: each.kept / each.size,
    }
    title = f"2^28 entries in bfloat16 on an {record['machine'].removeprefix('NVIDIA ')}"
    drawn = [text(24, 36, title, 20, font_weight="600")]
    for place, (name, colour) in enumerate((("torch", "#7f8a99"), ("min-norm", COLOURS["min-norm"]))):
        drawn.append(f'<rect x="{470 + 92 * place}" y="24" width="14" height="14" rx="3" fill="{colour}"/>')
        drawn.append(text(490 + 92 * place, 37, name, 17))
    top, step, width = 92, 44, 190
    for place, (label, of) in enumerate(panels.items()):
        left = 214 + place * 256
        most = max(of(found[row, "torch"]) for row in ON_GPU)
        drawn.append(text(left, top - 18, label, 15, class_="soft"))
        for row, name in enumerate(ON_GPU):
            y = top + step * row
            if not place:
                drawn.append(text(24, y + 22, name, 16, font_family="ui-monospace, monospace"))
            for nth, (who, colour) in enumerate((("torch", "#7f8a99"), ("subgrad", COLOURS["min-norm"]))):
                value = of(found[name, who])
                long = max(2.0, width * value / most)
                drawn.append(
                    f'<rect x="{left}" y="{y + 16 * nth}" width="{long:.1f}" height="14" rx="3" fill="{colour}"/>'
                )
                drawn.append(text(left + long + 6, y + 16 * nth + 12, f"{value:.3g}", 14))
    return svg(title, 720, top + step * len(ON_GPU) + 8, drawn)


def main() -> int:
    IMAGES.mkdir(exist_ok=True)
    for name, drawn in (("spellings", spellings()), ("sets", sets()), ("speed", speed()), ("favicon", FAVICON)):
        target = IMAGES / f"{name}.svg"
        target.write_text(drawn)
        print(f"{target.relative_to(ROOT)}: {len(drawn) // 1024 + 1} KiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
