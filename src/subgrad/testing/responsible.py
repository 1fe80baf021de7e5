"""Which operators and lines of a program meet kinks at a point: those that answer for its gradient there."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from subgrad.apply.current_pass import running
from subgrad.apply.graph_nodes import is_marked, nodes, not_of_torch
from subgrad.audit.modules import Modules
from subgrad.audit.recording import Recording
from subgrad.audit.result import Row
from subgrad.testing.program import Program, Tape
from subgrad.torch_internals.autograd import forward_class_of

MOST = 6  # lines that are named


def recorded(program: Program) -> tuple[Tape, Recording]:
    """A run that counts what it meets. An audit that is running takes no notice of it."""
    Recording.install()
    recording = Recording(Modules(None), 0)
    with running(recording):
        tape = program.run()
    recording.is_on = False
    recording.close(0)
    return tape, recording


def hits(recording: Recording) -> list[Row]:
    return [row for row in recording.rows() if row.total.hits]


def responsible(program: Program) -> tuple[str, ...]:
    """In words: operators with entries on a kink, and functions that have a backward of their own."""
    tape, recording = recorded(program)
    found = [words(row) for row in hits(recording)]
    found += own_backwards(tape)
    return (*found[:MOST], *([f"and {len(found) - MOST} more"] if len(found) > MOST else []))


def words(row: Row) -> str:
    """``file.py:12: relu at self == 0, where the set is [0, 1]: 1 of 3 entries    y = torch.relu(x)``"""
    source = f"    {row.site.source}" if row.site.source else ""
    counted = f"{row.total.hits:,} of {row.total.entries:,}"
    where = "" if row.kind == "comparison" else f", where the set is {row.set}"
    return f"{row.site}: {row.operator} at {row.kink}{where}: {counted}{source}"


def own_backwards(tape: Tape) -> list[str]:
    """The functions in a graph whose backward somebody wrote, each with the line of its class."""
    walked: Iterable[Any] = nodes([each for each in tape.tensors if each.requires_grad])
    found: dict[str, None] = {}
    for node in not_of_torch(walked):
        written = None if is_marked(node) else forward_class_of(node)
        if written is not None and written.__module__.partition(".")[0] not in ("torch", "subgrad"):
            found[f"{_defined(written)}: {written.__qualname__}, with a backward of its own"] = None
    return list(found)


def _defined(written: type) -> str:
    try:
        file, line = inspect.getsourcefile(written), inspect.getsourcelines(written)[1]
    except (OSError, TypeError):  # typed in, or made as it runs
        return written.__module__
    return f"{Path(file or '').name}:{line}"
