"""A baseline: the lines on which gradients are known to depend, in a file that is committed beside the code.

A line is told by what is written there, not by its number: file, function, operator and source text, for a pair of
conventions. So edits elsewhere in the file do not concern it, and the same text twice in a function is two lines.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath

from subgrad.audit.call_site import INSTALLED
from subgrad.gate.findings import DEPENDS, Finding, Line, line_of

FORMAT = "subgrad.baseline/1"


@dataclass(frozen=True, order=True)
class Key:
    """What tells a line apart from others, whatever its number."""

    file: str
    function: str
    operator: str
    source: str
    before: str
    after: str

    @classmethod
    def of(cls, line: Line, root: Path) -> Key:
        site, operator, before, after = line
        return cls(portable(site.file, root), site.function, operator, " ".join(site.source.split()), before, after)


def portable(file: str, root: Path) -> str:
    """The name of a file that is the same on another machine: as installed, or as seen from the baseline's folder."""
    inside = installed(file)
    if inside is not None:
        return inside
    if not Path(file).is_absolute():  # code that was made as it ran has no file
        return file
    return PurePath(os.path.relpath(file, root)).as_posix()


def installed(file: str) -> str | None:
    """The name of a file among the installed packages, if it is one of theirs."""
    parts = PurePath(file).parts
    for folder in INSTALLED:
        if folder in parts:
            return PurePath(*parts[len(parts) - parts[::-1].index(folder) :]).as_posix()
    return None


@dataclass(frozen=True)
class Baseline:
    """How many lines of each key are known, seen from a folder."""

    root: Path
    lines: Counter[Key]

    @classmethod
    def read(cls, path: Path) -> Baseline:
        """Read a file.

        Raises:
            ValueError: if it is none that `write` has written.
        """
        try:
            given = json.loads(path.read_bytes())
            if given["format"] != FORMAT:
                raise ValueError
            counted = {Key(**{k: v for k, v in each.items() if k != "lines"}): each["lines"] for each in given["known"]}
            if not all(isinstance(number, int) for number in counted.values()):
                raise ValueError
        except (ValueError, KeyError, TypeError, AttributeError):
            raise ValueError(f"{str(path)!r} is no baseline that subgrad wrote") from None
        return cls(path.absolute().parent, Counter(counted))

    @classmethod
    def of(cls, findings: Iterable[Finding], path: Path) -> Baseline:
        """Of what was found, to be written beside the code."""
        root = path.absolute().parent
        return cls(root, Counter(Key.of(line_of(each), root) for each in findings if each.rule == DEPENDS))

    def write(self, path: Path) -> None:
        """A key in each entry, in an order that does not depend on the run, so that a diff shows what changed."""
        known = [{**asdict(key), "lines": number} for key, number in sorted(self.lines.items())]
        path.write_text(json.dumps({"format": FORMAT, "known": known}, indent=2) + "\n", encoding="utf-8")

    def known(self, lines: Iterable[Line]) -> set[Line]:
        """Those of the lines that are known: of a key, as many as there were, the first in the file."""
        left = self.lines.copy()
        found = set()
        for line in sorted(set(lines), key=lambda line: (line[0].file, line[0].line)):
            key = Key.of(line, self.root)
            if left[key] > 0:
                left[key] -= 1
                found.add(line)
        return found
