"""Where a gradient that is not finite begins: the operator whose backward makes it of a finite one, and its line."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.graph_nodes import nodes
from subgrad.apply.source_line import is_a_users_file
from subgrad.testing.program import Program

FRAME = re.compile(r'File "(?P<file>.*)", line (?P<line>\d+), in .*\n\s*(?P<source>.*)')


def where_it_begins(program: Program) -> tuple[str, ...]:
    """In words, for each operator at which it does."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Anomaly Detection has been enabled")
        with torch.autograd.set_detect_anomaly(True, check_nan=False):  # nodes then keep where they were made
            tape = program.run()
    begun: dict[str, None] = {}
    walked = nodes([each for each in tape.tensors if each.requires_grad])
    hooks = [node.register_hook(_noting(node, begun)) for node in walked]
    try:
        tape.pulled(program.weights)
    finally:
        for hook in hooks:
            hook.remove()
    return tuple(begun)


def _noting(node: Any, begun: dict[str, None]) -> Callable[[Sequence[Tensor | None], Sequence[Tensor | None]], None]:
    def note(found: Sequence[Tensor | None], given: Sequence[Tensor | None]) -> None:
        if _are_finite(given) and not _are_finite(found):
            begun[f"{_line(node)}: {node.name()} makes it of a finite one{_source(node)}"] = None

    return note


def _are_finite(tensors: Sequence[Tensor | None]) -> bool:
    return all(each is None or bool(each.isfinite().all()) for each in tensors)


def _frame(node: Any) -> re.Match[str] | None:
    frames = (FRAME.search(each) for each in reversed(node.metadata.get("traceback_", ())))
    return next((each for each in frames if each is not None and is_a_users_file(each["file"])), None)


def _line(node: Any) -> str:
    frame = _frame(node)
    return "no line of Python" if frame is None else f"{Path(frame['file']).name}:{frame['line']}"


def _source(node: Any) -> str:
    frame = _frame(node)
    return "" if frame is None or not frame["source"] else f"    {frame['source'].strip()}"
