"""A suite under the audit: what each test met as plain data, which travels between processes, and tables of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from subgrad.audit.effects import Effect, first_of, plural, size
from subgrad.audit.result import Audit
from subgrad.report.audit_text import SHOWN, aligned, share

Met = dict[str, Any]  # of one test


def met(audit: Audit) -> Met:
    """What a test met, as numbers and text."""
    with_hits = [row for row in audit.rows if row.total.hits]
    most = f"{with_hits[0].site} (`{with_hits[0].operator}`)" if with_hits else ""
    return {
        "hits": audit.hits,
        "entries": sum(row.total.entries for row in audit.rows),
        "lines": len({row.site for row in with_hits}),
        "most": most,
        "compared": len(audit.effects),
        "changes": [_change(effects) for effects in _by_pair(audit.effects)],
        "unseen": list(dict.fromkeys((*audit.unseen, *(each for effect in audit.effects for each in effect.unseen)))),
    }


def _by_pair(effects: Iterable[Effect]) -> Iterator[list[Effect]]:
    """Those that differ, for each pair of conventions."""
    found: dict[tuple[str, str], list[Effect]] = {}
    for effect in effects:
        if effect.differing:
            found.setdefault((effect.before, effect.after), []).append(effect)
    return iter(found.values())


def _change(effects: Sequence[Effect]) -> Met:
    """How far the gradients of a test differ, where they differ most, and because of which lines."""
    largest = max(effects, key=lambda effect: float("inf") if effect.relative is None else effect.relative)
    causes = {f"{cause.site} (`{cause.operator}`)": None for effect in effects for cause in effect.causes}
    return {
        "after": largest.after,
        "lines": list(causes) or [f"{largest.site} (not deterministic)"],
        "size": size(largest.relative),
        "differ": largest.differing,
        "entries": sum(change.entries for change in largest.changes),
        "flips": largest.flips,
    }


def hits(tests: Mapping[str, Met], is_verbose: bool) -> Iterator[str]:
    """The tests with the most hits, and what it comes to."""
    hit = sorted((item for item in tests.items() if item[1]["hits"]), key=lambda item: -item[1]["hits"])
    shown = hit if is_verbose else hit[:SHOWN]
    cells = [
        [
            name,
            f"{one['hits']:,}",
            f"{one['entries']:,}",
            share(one["hits"] / one["entries"]),
            str(one["lines"]),
            one["most"],
        ]
        for name, one in shown
    ]
    if cells:
        yield from aligned([["test", "hits", "entries", "share", "lines", "most of them"], *cells])
    if len(hit) > len(shown):
        yield f"{len(hit) - len(shown):,} more tests hit kinks: -v shows all."
    yield f"{sum(one['hits'] for one in tests.values()):,} hits, in {len(hit):,} of {plural(len(tests), 'test')}."


def changes(tests: Mapping[str, Met], is_verbose: bool) -> Iterator[str]:
    """The tests whose gradients depend on the convention, and which could not be compared as a whole."""
    several = len({change["after"] for one in tests.values() for change in one["changes"]}) > 1
    found = [(name, change) for name, one in tests.items() for change in one["changes"]]
    if found:
        yield from aligned(
            [["test", "size", "entries", "signs", "because of"], *(_row(*each, several) for each in found)]
        )
    compared = sum(one["compared"] > 0 for one in tests.values())
    depend = f"The gradients of {plural(len(dict(found)), 'test')} depend on it"
    yield f"{depend}, of {compared:,} that were compared, of {len(tests):,} in all."
    partly = {name: one["unseen"] for name, one in tests.items() if one["unseen"]}
    for name, unseen in list(partly.items())[: None if is_verbose else 5]:
        yield f"Not seen in {name}: {first_of(unseen)}."
    if len(partly) > 5 and not is_verbose:
        yield f"Not everything was seen in {len(partly) - 5:,} more: -v says why."


def _row(name: str, change: Met, several: bool) -> list[str]:
    said = f"{change['size']} ({change['after']})" if several else change["size"]
    return [
        name,
        said,
        f"{change['differ']:,} of {change['entries']:,}",
        f"{change['flips']:,}",
        ", ".join(change["lines"]),
    ]
