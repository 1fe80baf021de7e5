"""Assertions about the gradient of a function at given inputs, for test suites."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.scopes import active
from subgrad.audit import graphs
from subgrad.audit.attribution import responsible as switched_lines
from subgrad.audit.compare_batch import graph_of
from subgrad.clarke.engine.environment import eager
from subgrad.conventions import Convention, convention
from subgrad.testing.check import Check
from subgrad.testing.complaint import Complaint, number, vector
from subgrad.testing.corners import corners_near
from subgrad.testing.inputs import Inputs
from subgrad.testing.nonfinite import where_it_begins
from subgrad.testing.program import Program, nonconstant, undisturbed
from subgrad.testing.responsible import hits, own_backwards, recorded, responsible, words
from subgrad.testing.tolerance import BY_DTYPE, Tolerance, for_equality, for_quotients

Function = Callable[..., Any]


def assert_same_gradient(
    f: Function,
    g: Function,
    inputs: Any,
    *,
    near: float = 1.0,
    atol: float | None = None,
    rtol: float | None = None,
    seed: int = 0,
) -> None:
    """Assert that two spellings of one function have the same values and gradients: here, and at the kinks near here.

    >>> import subgrad, torch
    >>> from subgrad.testing import assert_same_gradient
    >>> with subgrad.use("min-norm"):  # torch's own gradients are the same from 2.14 on
    ...     assert_same_gradient(torch.relu, lambda x: torch.clamp(x, min=0), torch.tensor([-1.0, 0.0, 2.0]))

    Both are run under the convention in force. Cotangents are random, and not constant.

    Args:
        f, g: functions of the inputs.
        inputs: a tensor, or a tuple of arguments, each a tensor, a pytree of tensors, or anything else. Those that
            require grad are differentiated; all of floating point if none does.
        near: how far around each entry kinks of both are looked for, to the floating-point number; 0 for not at all.
        atol, rtol: what values and gradients may differ by; by default what their dtype allows.
        seed: of cotangents, and of the entries from which kinks are looked for, where there are many.

    Raises:
        AssertionError: where they differ, with the point, both gradients, the set of f there, and the lines.
    """
    given = Inputs(inputs)
    tolerance = for_equality(given, atol, rtol)
    with undisturbed(given):
        pair = _Pair(Program(f, given, seed), Program(g, given, seed), tolerance)
        _fail(pair.differ(given.vector))
        if near:
            for program in (pair.f, pair.g):
                for point in corners_near(program, near):
                    found = pair.differ(point)
                    if found is not None and pair.meet_there(point):
                        _fail(found)


class _Pair:
    """Two functions of the same inputs."""

    def __init__(self, f: Program, g: Program, tolerance: Tolerance):
        self.f, self.g, self.tolerance = f, g, tolerance
        if f.shapes != g.shapes:
            shapes = [[list(shape) for shape in each.shapes] for each in (f, g)]
            _fail(Complaint(f"f returns tensors of shapes {shapes[0]}, and g {shapes[1]}."))

    def differ(self, point: Tensor) -> Complaint | None:
        one, other = self.f.run(point), self.g.run(point)
        wrong = _unequal(one.value, other.value, self.tolerance)
        if bool(wrong.any()):
            entry = int(wrong.nonzero()[0])
            facts = [("f", number(one.value[entry])), ("g", number(other.value[entry]))]
            return self.about("f and g return different values.", point, entry, (), facts, names_lines=False)
        cotangent = nonconstant(self.f.size, self.f.generator)
        if not bool(_unequal(one.pulled(cotangent), other.pulled(cotangent), self.tolerance).any()):
            return None
        for entry in range(self.f.size):
            rows = one.row(entry), other.row(entry)
            columns = _unequal(*rows, self.tolerance).nonzero()[:, 0].tolist()
            if columns:
                facts = [(name, vector(row, columns)) for name, row in zip("fg", rows, strict=True)]
                facts += self.sets(point, entry, rows, columns)
                return self.about("f and g return different gradients.", point, entry, columns, facts)
        products = one.pulled(cotangent), other.pulled(cotangent)
        columns = _unequal(*products, self.tolerance).nonzero()[:, 0].tolist()
        facts = [(name, vector(product, columns)) for name, product in zip("fg", products, strict=True)]
        facts = [("cotangent", vector(cotangent)), *facts]
        return self.about("f and g return different gradients.", point, 0, columns, facts)

    def meet_there(self, point: Tensor) -> bool:
        """Whether both lie on a kink: where rounding puts those of two spellings beside each other, they may differ."""
        return all(_meets(each.at(point)) for each in (self.f, self.g))

    def sets(self, point: Tensor, entry: int, rows: Sequence[Tensor], columns: Sequence[int]) -> list[tuple[str, str]]:
        """The set of f at the point, and which of the two gradients are in it."""
        if self.f.inputs.dtype not in BY_DTYPE:
            return []
        check = Check(self.f.at(point), for_quotients(self.f.inputs, None, None, None))
        found = check.set_in_words(entry, rows, columns)
        return [] if found is None else [("set", found)]

    def about(
        self,
        what: str,
        point: Tensor,
        entry: int,
        columns: Sequence[int],
        facts: list[tuple[str, str]],
        names_lines: bool = True,
    ) -> Complaint:
        """A complaint about one entry of the result. Kinks answer for gradients, and not for values."""
        inputs, pair = self.f.inputs, zip("fg", (self.f, self.g) if names_lines else (), strict=False)
        words = inputs.in_words(point, list(columns) or list(range(inputs.size)))
        if not torch.equal(point, self.f.here):
            words += "\na kink near the inputs that were given"
        lines = [f"{name}: {line}" for name, each in pair for line in responsible(each.at(point))]
        return Complaint(what, (("of", self.f.name(entry)), ("point", words), *facts), tuple(lines))


def assert_convention(
    f: Function,
    inputs: Any,
    like: str | Convention,
    *,
    atol: float | None = None,
    rtol: float | None = None,
    seed: int = 0,
) -> None:
    """Assert that the gradient of a function is that of a convention, whatever makes it so.

    >>> import torch, subgrad
    >>> from subgrad.testing import assert_convention
    >>> f = lambda x: subgrad.functional.clamp(x, 0, 6, convention="pass-through")
    >>> assert_convention(f, torch.tensor([0.0, 6.0]), "pass-through")

    The function is run once, under the convention in force, and its backward twice: as it is, and with the element of
    the other convention at every kink that it meets, also inside of a `subgrad.use` of its own.

    Args:
        f, inputs, atol, rtol, seed: as for `assert_same_gradient`.
        like: the convention.

    Raises:
        AssertionError: where they differ, with the point, both gradients and the line; and where something that the
            gradient depends on cannot be looked at.
    """
    given, chosen = Inputs(inputs), convention(like)
    tolerance = for_equality(given, atol, rtol)
    with undisturbed(given):
        program = Program(f, given, seed)
        leaves = given.copies()
        named = {given.paths[k]: leaf for k, leaf in zip(given.chosen, leaves, strict=True)}
        weights = nonconstant(program.size, program.generator)

        def closure() -> Tensor:
            outputs = [each.flatten() for each in program.outputs_of(leaves)]
            parts = weights.split([len(each) for each in outputs])
            return sum((each @ part.to(each) for each, part in zip(outputs, parts, strict=True)), leaves[0].sum() * 0)

        graph = graph_of(closure, named, (chosen,))
        before, after = graph.gradients(lambda line: None), graph.gradients(lambda line: chosen)
        own = [f"the inside of {each}" for each in own_backwards(program.run())]
        _fail(_not_looked_at((*graph.unseen, *own)))
        found, wanted = (
            torch.cat([torch.zeros_like(leaf).flatten() if each is None else each.flatten() for each, leaf in pairs])
            for pairs in (list(zip(each, leaves, strict=True)) for each in (before, after))
        )
        wrong = _unequal(found.double().cpu(), wanted.double().cpu(), tolerance).nonzero()[:, 0].tolist()
        if not wrong:
            return
        causes = switched_lines(graph, before, after, None, lambda line: chosen)
        lines = [f"{each.site}: {each.operator}, {_entries(each.differ)}    {each.site.source}" for each in causes]
        facts = (
            ("point", given.in_words(program.here, wrong)),
            ("cotangent", vector(weights)),
            ("returned", vector(found, wrong)),
            (str(chosen), vector(wanted, wrong)),
        )
        what = f"The gradient is not that of {chosen}; in force is {active()}."
        _fail(Complaint(what, facts, tuple(each.rstrip() for each in lines)))


def assert_in_subdifferential(
    f: Function,
    inputs: Any,
    *,
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    seed: int = 0,
) -> None:
    """Assert that the gradient of each entry of the result is an element of its set of generalised derivatives.

    >>> import torch
    >>> from subgrad.testing import assert_in_subdifferential
    >>> assert_in_subdifferential(lambda x: x.abs().sum(), torch.zeros(3, dtype=torch.float64))

    Where the function has a derivative, however it is written, that one is right alone. Gradients are those under the
    convention in force. It is the first half of `gradcheck`, which also compares modes.

    Args:
        f, inputs: as for `assert_same_gradient`; the tensors in double or single precision.
        eps, atol, rtol, seed: as for `gradcheck`. In single precision 2e-3, 1e-2 and 1e-2.

    Raises:
        AssertionError: where it is not, with the point, the gradient, the set, and the line.
    """
    given = Inputs(inputs)
    tolerance = for_quotients(given, eps, atol, rtol)
    with undisturbed(given):
        _fail(Check(Program(f, given, seed), tolerance).complaint())


def assert_no_hits(f: Function, inputs: Any, *, comparisons: bool = True) -> None:
    """Assert that a function meets no kink at the inputs: its gradient depends on no convention there.

    >>> import torch
    >>> from subgrad.testing import assert_no_hits
    >>> assert_no_hits(torch.relu, torch.tensor([-1.0, 0.5]))

    Args:
        f, inputs: as for `assert_same_gradient`.
        comparisons: whether a tie of ``>``, ``==`` and the like counts, of which masks and branches are made.

    Raises:
        AssertionError: for each kink that is met, with its line; and where something cannot be looked at.
    """
    given = Inputs(inputs)
    with undisturbed(given), eager():
        tape, recording = recorded(Program(f, given))
        walked = graphs.nodes([each for each in tape.tensors if each.requires_grad])
        own = [f"the inside of {each}" for each in own_backwards(tape)]
        _fail(_not_looked_at((*recording.unseen, *graphs.compiled_code(walked), *graphs.on_lists(walked), *own)))
        found = [row for row in hits(recording) if comparisons or row.kind != "comparison"]
        if found:
            _fail(Complaint("The function meets kinks here.", (), tuple(map(words, found))))


def assert_finite_gradient(f: Function, inputs: Any, *, seed: int = 0) -> None:
    """Assert that no entry of the gradient is nan or infinite.

    >>> import torch
    >>> from subgrad.testing import assert_finite_gradient
    >>> assert_finite_gradient(lambda x: x.norm(), torch.zeros(3))

    Args:
        f, inputs, seed: as for `assert_same_gradient`.

    Raises:
        AssertionError: where one is, with the entries, and the operator and line at which it begins.
    """
    given = Inputs(inputs)
    with undisturbed(given):
        program = Program(f, given, seed)
        gradient = program.run().pulled(program.weights)
        wrong = (~gradient.isfinite()).nonzero()[:, 0].tolist()
        if wrong:
            names = [f"{given.name(each)} = {number(program.here[each])}" for each in wrong[:8]]
            facts = (
                ("point", "\n".join(names)),
                ("returned", vector(gradient, wrong)),
                ("value", vector(program.value)),
            )
            _fail(Complaint("The gradient is not finite.", facts, where_it_begins(program)))


# What they share.


def _fail(complaint: Complaint | None) -> None:
    if complaint is not None:
        raise AssertionError(str(complaint))


def _entries(count: int) -> str:
    return f"{count:,} {'entry' if count == 1 else 'entries'}"


def _not_looked_at(what: Sequence[str]) -> Complaint | None:
    if not what:
        return None
    return Complaint("Something here cannot be looked at, and so nothing is known of it.", (), tuple(what))


def _meets(program: Program) -> bool:
    """Whether a function lies on a kink, or may: it has a backward of its own, and nobody sees inside."""
    tape, recording = recorded(program)
    return bool(hits(recording)) or bool(own_backwards(tape))


def _unequal(one: Tensor, other: Tensor, tolerance: Tolerance) -> Tensor:
    allowed = tolerance.of(torch.maximum(one.abs(), other.abs()))
    same = (one == other) | ((one - other).abs() <= allowed) | (one.isnan() & other.isnan())
    return ~same
