"""The atlas as a page of its own: by operation the function, the set, and who returns what at every kink."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape

from subgrad.report.atlas_data import (
    COMPOSED,
    GROUPS,
    JOINT,
    JUMPS,
    POLES,
    VERSIONS,
    Answer,
    Atlas,
    Operation,
    Spot,
    shown,
)
from subgrad.report.atlas_picture import curve, dots
from subgrad.report.document import asset, document
from subgrad.report.elements import number

OPEN = 3  # places of an operation that are not folded
MANY = 6  # weights that are written out
FILTERS = {
    "disagree": "Answers disagree",
    "changed": "Changed in torch 2.14",
    "breaks": "Torch breaks its rule",
}
SAID = {
    JOINT: "Ties inside a tensor, norms at zero, repeated eigenvalues. Drawn along one entry; the list has them all.",
    COMPOSED: "Functions of several operations, as people write them; some are smooth, and have one right answer.",
    JUMPS: "Discontinuous: there is no set, and nobody is wrong.",
    POLES: "The slope grows without end: no finite number is an element.",
}
LABELS = {"jax": "jx", "tensorflow": "tf", "mlx": "mx", "paddle": "pd", "tinygrad": "tg", "autograd": "ag"}
LEAD = """<p class="lead">A kink is a point where a function has no derivative, and automatic differentiation returns a
number all the same. Frameworks agree about the values there, and often not about that number. For every kink that
<span class="name">subgrad</span> knows: the function around it, the set of slopes that a generalised derivative may
have, and who returns which.</p>"""
READ = """<figure class="read"><figcaption><h2>How to read it</h2>
<ul>
<li><svg viewBox="0 0 34 14" aria-hidden="true"><path class="cone" d="M17 10L32 1V10Z"/>
<path class="slope" d="M17 10H32"/><path class="line" d="M1 10H17L32 1"/></svg> the function, with its slopes to both
sides; lines between them have the slopes of the set</li>
<li><svg viewBox="0 0 34 14" aria-hidden="true"><rect class="set" x="2" y="3" width="30" height="8" rx="3"/></svg>
the set of generalised derivatives</li>
<li><svg viewBox="0 0 34 14" aria-hidden="true"><circle class="least" cx="17" cy="7" r="3.6"/></svg>
its element of least norm, which PyTorch's documented rule asks for</li>
</ul>
<ul>
{dots}
</ul></figcaption></figure>"""
BEFORE = """torch 2.13 and 2.14 are what the conventions <code>torch-2.13</code> and <code>torch-2.14</code> return,
which are held against records of the real {} to the bit."""
ALONE = """No other framework was asked: <code>subgrad survey --html atlas.html --frameworks torch,jax,tensorflow</code>
asks some."""
CONTROLS = """<form id="controls" role="search" hidden>
<label class="search"><span class="sr">Search operations, calls and spellings</span>
<input id="search" type="search" placeholder="Search: clamp, jnp.clip, norm …" autocomplete="off"></label>
<div class="filters" role="group" aria-label="Show only places where">{buttons}</div>
<button type="button" id="theme" aria-pressed="false">Dark</button>
<p id="counted" role="status" aria-live="polite"></p>
</form>"""


def page(atlas: Atlas) -> str:
    """The whole page."""
    symbols = _symbols(atlas)
    groups = {name: [each for each in atlas.operations if each.group == name] for name in GROUPS}
    sections = "".join(_group(name, found, symbols) for name, found in groups.items() if found)
    body = "\n".join(
        (
            '<a class="skip" href="#operations">To the operations</a>',
            _definitions(symbols),
            f"<header><h1>The atlas of kinks</h1>{LEAD}{_measured(atlas)}{_summary(atlas)}</header>",
            READ.format(dots=_legend(atlas, symbols)),
            CONTROLS.format(buttons=_buttons(atlas)),
            _index(groups),
            f'<main id="operations">{sections}<p id="none" hidden>Nothing matches. '
            '<button type="button" id="clear">Show all</button></p></main>',
            "<footer><p>Made by <code>subgrad survey --html</code>. This page fetches nothing.</p></footer>",
        )
    )
    return document("The atlas of kinks", body, asset("page.css") + asset("atlas.css"), asset("atlas.js"))


# The head of the page.


def _measured(atlas: Atlas) -> str:
    asked = [f"{_named(atlas, source)}" for source, version in atlas.sources.items() if version]
    said = [
        f"Measured with {escape(', '.join(asked))}, on the CPU.",
        BEFORE.format(" and ".join(atlas.recorded) or "versions"),
    ]
    if len(asked) == 1 and not atlas.failed:
        said.append(ALONE)
    said += [f"{escape(name)} was not measured: {escape(why)}" for name, why in atlas.failed.items()]
    return "".join(f'<p class="soft">{each}</p>' for each in said)


def _summary(atlas: Atlas) -> str:
    """The counts that people ask for."""
    words = {
        "disagree": "where answers disagree",
        "changed": "changed in torch 2.14",
        "breaks": f"where torch {_short(atlas.torch)} breaks its rule",
    }
    counts = [("operations", len(atlas.operations)), ("places", len(atlas.spots))]
    counts += [(words[kind], count) for kind, count in _counts(atlas).items()]
    cards = "".join(f'<div class="card"><b>{count}</b>{escape(said)}</div>' for said, count in counts)
    return f'<div class="cards">{cards}</div>'


def _counts(atlas: Atlas) -> dict[str, int]:
    """Of how many places each filter holds, if of any."""
    counts = {kind: sum(kind in _kinds(spot) for spot in atlas.spots) for kind in FILTERS}
    return {kind: count for kind, count in counts.items() if count}


def _short(version: str) -> str:
    return ".".join(version.split(".")[:2])


def _symbols(atlas: Atlas) -> dict[str, str]:
    return {source: f"dot-{source.replace(' ', '-').replace('.', '-')}" for source in atlas.sources}


def _definitions(symbols: Mapping[str, str]) -> str:
    drawn = "".join(
        f'<symbol id="{symbol}" class="dot {_look(source)}" overflow="visible"><circle r="8.6"/>'
        f'<text y="3">{_label(source)}</text></symbol>'
        for source, symbol in symbols.items()
    )
    return f'<svg class="definitions" width="0" height="0" aria-hidden="true">{drawn}</svg>'


def _look(source: str) -> str:
    return f"of-{source.partition(' ')[0]}{' of-before' if source in VERSIONS else ''}"


def _label(source: str) -> str:
    """Of a version of torch its second number, of a framework two letters."""
    name, _, version = source.partition(" ")
    return version.split(".")[1] if name == "torch" else LABELS.get(name, name[:2])


def _legend(atlas: Atlas, symbols: Mapping[str, str]) -> str:
    return "".join(
        f'<li><svg viewBox="-17 -9 34 18" aria-hidden="true"><use href="#{symbol}"/></svg> '
        f"{escape(_named(atlas, source))}</li>"
        for source, symbol in symbols.items()
    )


def _named(atlas: Atlas, source: str) -> str:
    return f"{source.partition(' ')[0]} {atlas.sources[source]}" if atlas.sources[source] else source


def _buttons(atlas: Atlas) -> str:
    return "".join(
        f'<button type="button" data-filter="{kind}" aria-pressed="false">{FILTERS[kind]} <span>{count}</span></button>'
        for kind, count in _counts(atlas).items()
    )


def _index(groups: Mapping[str, Sequence[Operation]]) -> str:
    lists = "".join(
        f"<h3>{name}</h3><ul>{''.join(_link(each) for each in found)}</ul>" for name, found in groups.items() if found
    )
    count = sum(map(len, groups.values()))
    return f'<nav aria-label="Operations"><details><summary>All {count} operations</summary>{lists}</details></nav>'


def _link(operation: Operation) -> str:
    return f'<li><a href="#{_anchor(operation)}">{escape(operation.name)}</a></li>'


def _anchor(operation: Operation) -> str:
    """An identifier that is readable in an address."""
    kept = "".join(each if each.isalnum() else "-" for each in operation.name.lower())
    return "op-" + "-".join(part for part in kept.split("-") if part)


# Operations and their places.


def _group(name: str, found: Sequence[Operation], symbols: Mapping[str, str]) -> str:
    said = f'<p class="soft">{SAID[name]}</p>' if name in SAID else ""
    return (
        f'<section class="group"><h2>{name}</h2>{said}{"".join(_operation(each, symbols) for each in found)}</section>'
    )


def _operation(operation: Operation, symbols: Mapping[str, str]) -> str:
    anchor = _anchor(operation)
    first, rest = operation.spots[:OPEN], operation.spots[OPEN:]
    shown = "".join(_spot(each, symbols) for each in first)
    if rest:
        folded = "".join(_spot(each, symbols) for each in rest)
        count = f"{len(rest)} more place{'s' if len(rest) > 1 else ''} of {escape(operation.name)}"
        shown += f"<details><summary>{count}</summary>{folded}</details>"
    what = f'<p class="what">{escape(operation.what)}</p>' if operation.what else ""
    return (
        f'<article id="{anchor}" aria-labelledby="{anchor}-name"><h3 id="{anchor}-name">'
        f'<a href="#{anchor}">{escape(operation.name)}</a></h3>{what}{shown}</article>'
    )


def _kinds(spot: Spot) -> list[str]:
    holds = {"disagree": spot.disagrees, "changed": spot.changed, "breaks": spot.breaks}
    return [kind for kind, does in holds.items() if does]


def _spot(spot: Spot, symbols: Mapping[str, str]) -> str:
    kinds = _kinds(spot)
    marks = "".join(f'<li class="is-{kind}">{FILTERS[kind]}</li>' for kind in kinds)
    marked = f'<ul class="marks">{marks}</ul>' if marks else ""
    drawn = "" if spot.curve is None else curve(spot.curve, spot.reach is not None)
    words = f"<h4>{_code(spot.call)} at {_code(spot.where)}</h4>{marked}{_facts(spot)}"
    return (
        f'<div class="spot" data-is="{" ".join(kinds)}"><div class="words">{words}</div>'
        f'<div class="pictures">{drawn}{dots(spot, symbols)}</div>{_answers(spot)}</div>'
    )


def _facts(spot: Spot) -> str:
    found = "no set" if spot.set.startswith("none") else "set"
    words = spot.set.removeprefix("none ").strip("()") if found == "no set" else spot.set
    said = [f"{found}: {escape(words)}"]
    if spot.also:
        said.append(f"alike: {', '.join(map(_code, spot.also))}")
    if spot.held:
        said.append(f"{', '.join(map(_code, spot.held))} constant")
    if spot.cotangent:
        said.append(f"weighed with the cotangent {escape(_weights(spot.cotangent))}")
    if any(each.partition("[")[0] not in ("self", "x") for each in spot.names) or len(spot.names) > 1:
        said.append(f"weights of {', '.join(_code(each) for each in spot.names[:MANY])}")
    return f'<p class="soft">{"; ".join(said)}</p>'


def _code(text: str) -> str:
    return f"<code>{escape(text)}</code>"


def _answers(spot: Spot) -> str:
    """What the picture shows, in words: by element, who returns it."""
    groups: dict[str, list[Answer]] = {}
    for answer in spot.answers:
        groups.setdefault(answer.key if answer.weights is not None else "", []).append(answer)
    ordered = sorted(groups.values(), key=lambda group: _order(spot, group[0].weights))
    return f'<ul class="answers">{"".join(_group_of(spot, group) for group in ordered)}</ul>'


def _order(spot: Spot, weights: Sequence[float] | None) -> tuple[int, float]:
    """As in the picture from left to right, and what is nothing last."""
    if weights is None:
        return 2, 0.0
    weight = weights[spot.main]
    return (0, weight) if math.isfinite(weight) else (1, 0.0)


def _group_of(spot: Spot, group: Sequence[Answer]) -> str:
    weights = group[0].weights
    if weights is None:
        failed = "".join(f"<li><b>nothing</b> <span>{_who([each])}</span></li>" for each in group)
        return failed
    notes = []
    if spot.least is not None and _same(weights, spot.least):
        notes.append('<em class="rule">as the rule asks</em>')
    if spot.is_outside(group[0]):
        notes.append('<em class="outside">not in the set</em>')
    return f"<li><b>{_weights(weights)}</b> <span>{_who(group)} {' '.join(notes)}</span></li>"


def _same(weights: Sequence[float], least: Sequence[float]) -> bool:
    return all(abs(one - other) < 1e-4 for one, other in zip(weights, least, strict=True))


def _weights(weights: Sequence[float]) -> str:
    said = ", ".join(number(shown(each)) for each in weights[:MANY])
    return f"{said}, …" if len(weights) > MANY else said


def _who(group: Iterable[Answer]) -> str:
    """Sources with their spellings."""
    by_source: dict[str, list[str]] = {}
    for answer in group:
        by_source.setdefault(answer.source, []).append(_spelled(answer))
    return "; ".join(
        " ".join(
            filter(None, (f"<strong>{escape(source)}</strong>", ", ".join(filter(None, dict.fromkeys(spellings)))))
        )
        for source, spellings in by_source.items()
    )


def _spelled(answer: Answer) -> str:
    said = _code(answer.spelling) if answer.spelling else ""
    if answer.failed is not None:
        return f"{said}: {escape(answer.failed)}"
    if answer.weights is None:
        return f"{said}: no derivative"
    if isinstance(answer.forward, str):
        return f"{said} (no forward mode)"
    return f"{said} (forward mode: {_weights(answer.forward)})" if answer.forward is not None else said
