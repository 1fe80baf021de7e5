"""Gradients of one graph under several conventions, and the call sites that make them differ."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from math import isfinite
from typing import Any

import torch
from torch import Tensor

from subgrad.audit.call_site import Site
from subgrad.audit.effects import Cause, Change, Effect
from subgrad.audit.graphs import left_as_they_are
from subgrad.audit.switches import Line, Setting, Switchboard
from subgrad.conventions import Convention
from subgrad.torch_internals import settings

Gradients = list[Tensor | None]


@dataclass(frozen=True)
class Graph:
    """What backward is called on, and the parameters that it reaches.

    Attributes:
        nodes: all that it walks.
        unseen: what in it was not looked at, in words.
    """

    tensors: Sequence[Tensor]
    cotangents: Sequence[Tensor | None]
    parameters: Mapping[str, Tensor]
    board: Switchboard
    nodes: Sequence[Any]
    unseen: tuple[str, ...] = ()

    @cached_property
    def may_vary(self) -> bool:
        """Whether kernels may add up in another order each time: on other devices than the CPU."""
        return not all(each.is_cpu for each in self.parameters.values())

    def gradients(self, setting: Setting) -> Gradients:
        """With the elements that a setting says. ``.grad`` is left alone, and so are the hooks that fill it."""
        self.board.setting = setting
        leaves = list(self.parameters.values())
        try:
            with _repeatable() if self.may_vary else nullcontext(), left_as_they_are(self.nodes):
                found = torch.autograd.grad(self.tensors, leaves, self.cotangents, retain_graph=True, allow_unused=True)
        finally:
            self.board.setting = None
        return [None if each is None else each.to_dense() if each.is_sparse else each for each in found]


def _set_cudnn(deterministic: bool, benchmark: bool) -> None:
    settings.set_cudnn_deterministic(deterministic)
    settings.set_cudnn_benchmark(benchmark)


@contextmanager
def _repeatable() -> Iterator[None]:
    """As far as torch has kernels that give the same gradients twice, they are used."""
    kept = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    # Past `torch.backends.cudnn`, whose flags may be frozen.
    chosen = settings.get_cudnn_deterministic(), settings.get_cudnn_benchmark()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        settings.set_deterministic_algorithms(True, warn_only=True)
        _set_cudnn(True, False)
        try:
            yield
        finally:
            _set_cudnn(*chosen)
            settings.set_deterministic_algorithms(kept[0], warn_only=kept[1])


def effects(graph: Graph, conventions: Sequence[Convention], step: int, site: Site) -> list[Effect]:
    """The first of the conventions against each of the others. Random generators are as before afterwards."""
    first, *others = conventions
    devices = sorted({each.device.index or 0 for each in graph.parameters.values() if each.is_cuda})
    with torch.random.fork_rng(devices):  # hooks and functions of the program's own may draw
        before = graph.gradients(lambda line: first)
        is_cpu = all(each.is_cpu for each in graph.parameters.values())
        repeats = is_cpu or not differ(before, graph.gradients(lambda line: first))
        return [_effect(graph, before, first, each, step, site, repeats) for each in others]


def _effect(
    graph: Graph, before: Gradients, one: Convention, other: Convention, step: int, site: Site, repeats: bool
) -> Effect:
    after = graph.gradients(lambda line: other)
    names = [name for name, a, b in zip(graph.parameters, before, after, strict=True) if not (a is None and b is None)]
    changes, relative = changed(list(graph.parameters), before, after)
    changes = tuple(change for change in changes if change.parameter in names)
    is_changed = any(change.differ for change in changes)
    causes = responsible(graph, before, after, one, lambda line: other) if is_changed and repeats else ()
    return Effect(str(one), str(other), step, site, changes, relative, causes, repeats, graph.unseen)


def responsible(
    graph: Graph, before: Gradients, after: Gradients, one: Convention | None, other: Setting
) -> tuple[Cause, ...]:
    """The call sites that change the gradients, found by switching them to another setting, one by one and by groups.

    Those that change something alone; and if that is not all there is to it, what cannot be left out of all of them.
    """

    def switched(lines: Sequence[Line]) -> Gradients:
        return graph.gradients(lambda line: other(line) if line in lines else one)

    def acting(lines: list[Line]) -> list[Line]:
        """Those of a group that change something alone. A group that changes nothing is not searched."""
        if not lines or not differ(before, switched(lines)):
            return []
        half = len(lines) // 2
        return lines if len(lines) == 1 else [*acting(lines[:half]), *acting(lines[half:])]

    everywhere = list(graph.board.lines)
    alone = acting(everywhere)
    causes = {line: _cause(line, graph, before, switched([line]), True) for line in alone}
    if not alone or differ(switched(alone), after):
        needed = everywhere
        for line in reversed(everywhere):
            without = [each for each in needed if each != line]
            if line not in alone and not differ(switched(without), after):
                needed = without
        for line in needed:
            without = switched([each for each in needed if each != line])
            causes.setdefault(line, _cause(line, graph, without, after, False))
    return tuple(causes[line] for line in everywhere if line in causes)


def _cause(line: Line, graph: Graph, before: Gradients, after: Gradients, alone: bool) -> Cause:
    changes, relative = changed(list(graph.parameters), before, after)
    changes = [change for change in changes if change.differ]
    site, operator = line
    differing, flips = sum(each.differ for each in changes), sum(each.flips for each in changes)
    return Cause(site, operator, len(changes), differing, flips, alone, relative)


def differ(one: Gradients, other: Gradients) -> bool:
    """Whether any entry is not the same; read once."""
    pairs = [_filled(a, b) for a, b in zip(one, other, strict=True) if not (a is None and b is None)]
    flags = [_unequal(a, b).any() for a, b in pairs]
    return bool(torch.stack([flag.to(flags[0].device) for flag in flags]).any()) if flags else False


def changed(names: list[str], one: Gradients, other: Gradients) -> tuple[tuple[Change, ...], float | None]:
    """What changes in each parameter, and over all the norm of the difference in that of the gradients."""
    rows, sizes = [], []
    for a, b in zip(one, other, strict=True):
        if a is None and b is None:
            rows.append(torch.zeros(6, dtype=torch.float64))
            sizes.append(0)
            continue
        a, b = _filled(a, b)
        broken, mended = a.isfinite() & ~b.isfinite(), b.isfinite() & ~a.isfinite()
        counts = (_unequal(a, b).sum(), ((a.sign() * b.sign()) < 0).sum(), broken.sum(), mended.sum())
        norms = ((b.double() - a.double()).norm(), a.double().norm())
        rows.append(torch.stack([each.double() for each in (*counts, *norms)]))
        sizes.append(a.numel())
    numbers = torch.stack([row.to(rows[0].device) for row in rows]).tolist() if rows else []
    changes = tuple(
        Change(name, size, int(count), _relative(distance, norm), *map(int, others))
        for name, size, (count, *others, distance, norm) in zip(names, sizes, numbers, strict=True)
    )
    total = [sum(row[column] ** 2 for row in numbers) ** 0.5 for column in (4, 5)]
    return changes, _relative(*total)


def _relative(distance: float, norm: float) -> float | None:
    return distance / norm if norm > 0 and isfinite(distance) and isfinite(norm) else None


def _filled(one: Tensor | None, other: Tensor | None) -> tuple[Tensor, Tensor]:
    """What has no gradient under one of them has a zero one."""
    one = torch.zeros_like(other) if one is None else one  # type: ignore[arg-type]
    both = one.detach(), (torch.zeros_like(one) if other is None else other).detach()
    return (torch.view_as_real(both[0]), torch.view_as_real(both[1])) if one.is_complex() else both


def _unequal(one: Tensor, other: Tensor) -> Tensor:
    return (one != other) & ~((one != one) & (other != other))
