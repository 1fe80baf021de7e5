"""What an audit finds, as frozen data: call sites and their kinks, counts step by step, and what merges two of them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from functools import reduce
from pathlib import Path
from typing import Any

from subgrad.audit.call_site import Site
from subgrad.audit.effects import Effect, first_of, plural
from subgrad.audit.nonfinite import result as nonfinite_result
from subgrad.audit.nonfinite.result import Nonfinite

FORMAT = "subgrad.audit/1"
# Bounds of the histogram of distances to the nearest kink, as powers of ten; the outer bins are open.
DECADES = tuple(range(-12, 4))


@dataclass(frozen=True)
class Count:
    """What one step met at one kink.

    Attributes:
        calls: of the operator.
        entries: places looked at: entries of the result, or lines and windows for ties inside a tensor.
        hits: how many of them lie exactly on the kink.
        near: how many lie beside it, within the units in the last place that were asked for.
    """

    step: int
    calls: int
    entries: int
    hits: int
    near: int = 0

    def __add__(self, other: Count) -> Count:
        return Count(
            min(self.step, other.step),
            self.calls + other.calls,
            self.entries + other.entries,
            self.hits + other.hits,
            self.near + other.near,
        )


NOTHING = Count(0, 0, 0, 0)


@dataclass(frozen=True)
class Row:
    """One kink at one call site, in one module.

    Attributes:
        site: the line of the program.
        module: the path of the innermost module, ``""`` outside of all.
        operator: as users name it; ``kind`` says what its kink is: corner, tie, norm, joint, jump or comparison.
        kink: where it is, in words of the operator's arguments.
        set: of the generalised derivatives there, in words.
        series: what each recorded step met.
        distances: how many of a sample of entries lie in each decade of distance to the nearest kink, as ``DECADES``.
    """

    site: Site
    module: str
    operator: str
    kind: str
    kink: str
    set: str
    series: tuple[Count, ...] = ()
    distances: tuple[int, ...] = ()

    @property
    def total(self) -> Count:
        return sum(self.series, replace(NOTHING, step=self.series[0].step)) if self.series else NOTHING

    def __str__(self) -> str:
        total, module = self.total, f" in {self.module}" if self.module else ""
        entries = plural(total.entries, "entry", "entries")
        return f"{self.site}{module}: `{self.operator}` at {self.kink}: {total.hits:,} hits among {entries}"

    @property
    def share(self) -> float:
        """Hits among entries."""
        total = self.total
        return total.hits / total.entries if total.entries else 0.0

    @property
    def key(self) -> tuple[Any, ...]:
        return (self.site, self.module, self.operator, self.kind, self.kink)

    def merged(self, other: Row) -> Row:
        """Counts of the same step, on another rank, are added."""
        steps = {each.step: each for each in self.series}
        for each in other.series:
            steps[each.step] = steps[each.step] + each if each.step in steps else each
        longer, shorter = sorted((self.distances, other.distances), key=len, reverse=True)
        distances = tuple(a + b for a, b in zip(longer, (*shorter, *[0] * len(longer)), strict=False))
        return replace(self, series=tuple(steps[step] for step in sorted(steps)), distances=distances)


@dataclass(frozen=True)
class Audit:
    """Where a run meets kinks, and what that does to its gradients.

    Attributes:
        rows: kinks by call site, those with the most hits first.
        effects: gradients under the conventions that were compared, one for each comparison.
        steps: how many steps the run took, recorded or not.
        recorded: the steps that were.
        every, ulps: as asked for; ``every`` is 0 where kinks were not counted.
        convention: in force when the audit began.
        torch: the version.
        ranks: how many processes this is of.
        notes: what could not be looked at, and why, and what else there is to know.
        unseen: those of the notes that say what no verdict covers.
        compared: the conventions that were to be.
        nonfinite: why gradients became infinite or NaN, one for each line and way. Empty if none did, or if the run was
            not watched for that, as ``is_watched`` says.
    """

    rows: tuple[Row, ...] = ()
    effects: tuple[Effect, ...] = ()
    steps: int = 0
    recorded: tuple[int, ...] = ()
    every: int = 1
    ulps: int = 0
    convention: str = "torch"
    torch: str = ""
    ranks: int = 1
    notes: tuple[str, ...] = ()
    unseen: tuple[str, ...] = ()
    compared: tuple[str, ...] = ()
    nonfinite: tuple[Nonfinite, ...] = ()
    is_watched: bool = False

    @property
    def hits(self) -> int:
        return sum(row.total.hits for row in self.rows)

    @property
    def verdicts(self) -> tuple[str, ...]:
        """One for each pair of conventions, about the step in which they differ most, and what it does not cover."""
        found = {pair: effect.verdict for pair, effect in self.worst.items()}
        why = f": {first_of(self.unseen)}" if self.unseen else ""
        asked = [(self.compared[0], other) for other in self.compared[1:]]
        return tuple(
            found.get(pair, f"No gradients were compared under {pair[0]} and {pair[1]}{why}.")
            for pair in dict.fromkeys((*asked, *found))
        )

    @property
    def worst(self) -> dict[tuple[str, str], Effect]:
        """For each pair of conventions the comparison in which they differ most, with all that was not seen."""
        most: dict[tuple[str, str], Effect] = {}
        for effect in self.effects:
            pair = (effect.before, effect.after)
            if pair not in most or effect.differing > most[pair].differing:
                most[pair] = effect
        return {pair: replace(effect, unseen=self._not_covered(effect)) for pair, effect in most.items()}

    @property
    def is_partial(self) -> bool:
        """Whether the gradients that were compared depend on something that was not seen."""
        return bool(self.unseen) or any(effect.unseen for effect in self.effects)

    def _not_covered(self, effect: Effect) -> tuple[str, ...]:
        return tuple(dict.fromkeys((*effect.unseen, *self.unseen)))

    @classmethod
    def merge(cls, audits: Iterable[Audit]) -> Audit:
        """One audit of those of several ranks, or of several parts of a run.

        Raises:
            ValueError: if there is none.
        """
        given = list(audits)
        if not given:
            raise ValueError("There is no audit to merge.")
        return reduce(_merged, given)

    def to_json(self, path: str | Path | None = None) -> str:
        """The audit as JSON, also into a file if one is named."""
        text = json.dumps({"format": FORMAT, **asdict(self)}, allow_nan=False)
        if path is not None:
            _write(Path(path), text)
        return text

    @classmethod
    def from_json(cls, text: str | bytes) -> Audit:
        """The audit that ``to_json`` wrote.

        Raises:
            ValueError: for anything else.
        """
        try:
            given = json.loads(text)
            if given.pop("format") != FORMAT:
                raise ValueError
            rows = tuple(_row(each) for each in given.pop("rows"))
            effects = tuple(Effect.of(each) for each in given.pop("effects"))
            nonfinite = tuple(Nonfinite.of(each) for each in given.pop("nonfinite", ()))  # not in older files
            lists = {name: tuple(given.pop(name)) for name in ("recorded", "notes")}
            lists |= {name: tuple(given.pop(name, ())) for name in ("unseen", "compared")}  # not in older files
            return cls(rows=rows, effects=effects, nonfinite=nonfinite, **lists, **given)
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError("This is no audit that subgrad wrote.") from None

    def to_html(self, path: str | Path | None = None) -> str:
        """A page of its own, which needs no network; also into a file if one is named."""
        from subgrad.report import audit_page  # a later stage, imported when it is asked to show this data

        text = audit_page.page(self)
        if path is not None:
            _write(Path(path), text)
        return text

    def __str__(self) -> str:
        from subgrad.report import audit_text

        return audit_text.text(self)

    def __repr__(self) -> str:
        said: list[str] = []
        if self.every:
            said += [f"{plural(self.hits, 'hit')} at {plural(len(self.rows), 'kink')} in {len(self.recorded)} of them"]
            said += [plural(len(self.effects), "comparison")]
        if self.is_watched:
            said += [f"{plural(len(self.nonfinite), 'line')} that made a gradient infinite or NaN"]
        return f"<Audit of {plural(self.steps, 'step')}: {', '.join(said)}>"

    def _repr_html_(self) -> str:
        from subgrad.report import audit_page

        return audit_page.fragment(self)


def ordered(rows: Iterable[Row]) -> tuple[Row, ...]:
    """Those with the most hits first."""
    return tuple(sorted(rows, key=lambda row: (-row.total.hits, row.site.file, row.site.line, row.module, row.kink)))


def _merged(one: Audit, other: Audit) -> Audit:
    rows = {row.key: row for row in one.rows}
    for row in other.rows:
        rows[row.key] = rows[row.key].merged(row) if row.key in rows else row
    return replace(
        one,
        rows=ordered(rows.values()),
        effects=(*one.effects, *other.effects),
        steps=max(one.steps, other.steps),
        recorded=tuple(sorted({*one.recorded, *other.recorded})),
        ranks=one.ranks + other.ranks,
        notes=tuple(dict.fromkeys((*one.notes, *other.notes))),
        unseen=tuple(dict.fromkeys((*one.unseen, *other.unseen))),
        compared=one.compared or other.compared,
        nonfinite=nonfinite_result.merged((*one.nonfinite, *other.nonfinite)),
        is_watched=one.is_watched or other.is_watched,
    )


def _row(given: dict[str, Any]) -> Row:
    site, series = Site(**given.pop("site")), given.pop("series")
    return Row(site=site, series=_counts(series), distances=tuple(given.pop("distances")), **given)


def _counts(given: Sequence[dict[str, int]]) -> tuple[Count, ...]:
    return tuple(Count(**each) for each in given)


def _write(path: Path, content: str) -> None:
    """The whole file or nothing."""
    part = path.with_name(f"{path.name}.part")
    part.write_text(content, encoding="utf-8")
    part.replace(path)
