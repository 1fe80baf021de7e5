"""`explain_nan`: one batch, of which every call and every node is looked at."""

from __future__ import annotations

from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from subgrad.apply.autograd_nodes import is_memory, values
from subgrad.apply.source_line import user_frame
from subgrad.audit import graphs
from subgrad.audit.backward import Backward, tell_first
from subgrad.audit.call_site import Site
from subgrad.audit.compare_batch import Parameters, eager, left_as_it_was, named_parameters
from subgrad.audit.modules import Modules
from subgrad.audit.nonfinite import entries
from subgrad.audit.nonfinite.finite import is_finite, reached
from subgrad.audit.nonfinite.lines import Lines, operator_of
from subgrad.audit.nonfinite.noting import Mark
from subgrad.audit.nonfinite.poles import POLES
from subgrad.audit.nonfinite.result import Line, Nonfinite, merged
from subgrad.audit.nonfinite.tracing import Around, findings
from subgrad.audit.nonfinite.walks import Walk
from subgrad.audit.result import Audit
from subgrad.torch_internals.autograd import next_sequence_nr, sequence_nr

# What writes numbers that a program has chosen, as -inf into a mask.
CHOSEN = ("full", "fill", "where", "masked_fill", "__setitem__", "index_put", "masked_scatter", "scatter", "new_full")

_OPERANDS = {0: "self", 1: "other"}


def explain_nan(closure: Callable[[], Any], params: Parameters) -> Audit:
    """Why the gradients of a batch are infinite or NaN: which line, which entry, which mask, and what to write instead.

    >>> import torch, subgrad
    >>> x = torch.tensor([0.0, 4.0], requires_grad=True)
    >>> found = subgrad.explain_nan(lambda: torch.where(x > 0, x.sqrt(), 0.0).sum(), {"x": x})
    >>> [(each.line.operator, each.line.entry, each.line.inputs, each.cotangent) for each in found.nonfinite]
    [('sqrt', (0,), (('self', '0'),), '0')]
    >>> found.nonfinite[0].mask.operator
    'where'

    The closure is run once, with compiled functions as they are written, and backward once for each time it calls it,
    or once for the loss it returns. All that backward passes on is kept meanwhile. Random generators, buffers of
    modules such as batch statistics, and ``.grad`` are as before afterwards; hooks of the program's are called.

    Args:
        closure: returns the loss, or calls ``backward()`` itself, as closures for optimizers do.
        params: a module, a mapping of names, an iterable of tensors, or ``named_parameters()``.

    Returns:
        An `Audit` whose ``nonfinite`` says what was found; it is empty if all gradients are finite.

    Raises:
        ValueError: for a closure that returns no number to differentiate.
    """
    named = named_parameters(params)
    explaining = _Explaining(named)
    with left_as_it_was(named), explaining.watching(), torch.enable_grad(), eager():
        for each in named.values():
            each.grad = None
        with explaining.calls:
            loss = closure()
        if not explaining.walked:
            if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
                raise ValueError("The closure must return a loss: one number that depends on the parameters.")
            loss.backward()
    return Audit(
        nonfinite=merged(explaining.found),
        steps=1,
        is_watched=True,
        every=0,
        torch=str(torch.__version__),
        unseen=tuple(explaining.unseen),
        notes=tuple(explaining.unseen),
    )


class _Calls(TorchFunctionMode):
    """Which nodes each call of torch has made, by the numbers that autograd gives them."""

    def __init__(self) -> None:
        super().__init__()
        self._starts: list[int] = []
        self._marks: list[tuple[int, Mark]] = []
        self._modules = Modules(None)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = next_sequence_nr()
        out = func(*args, **(kwargs or {}))
        after = next_sequence_nr()
        if after > before:
            frame = user_frame()
            code, number = (None, 0) if frame is None else (frame.f_code, frame.f_lineno)
            value, is_source = self._value(func, args, kwargs or {}, out, before, Site.of(frame))
            self._starts.append(before)
            self._marks.append((after, Mark(code, number, self._modules.path(), value, is_source)))
        return out

    def _value(self, func: Any, args: Any, kwargs: Any, out: Any, before: int, site: Site) -> tuple[Any, bool]:
        name = getattr(func, "__name__", str(func))
        results = [each for each in (out if isinstance(out, tuple | list) else (out,)) if isinstance(each, Tensor)]
        for each in results:
            if not each.requires_grad or not is_memory(each) or is_finite(each.detach()):
                continue
            with values():
                given = {_OPERANDS.get(place, f"argument {place}"): one for place, one in enumerate(args)} | dict(
                    kwargs
                )
                value = value_line(
                    operator_of(_steepest(each.grad_fn, before)), given, each, site, self._modules.path()
                )
                is_chosen = name.strip("_") in CHOSEN or name == "__setitem__"
                return value, value is not None and not is_chosen and is_source_of(value, given)
        return None, False

    def mark(self, node: Any) -> Mark | None:
        if not node.next_functions:
            return None
        number = sequence_nr(node)
        place = bisect(self._starts, number) - 1
        if place < 0 or number >= self._marks[place][0]:
            return None
        return self._marks[place][1]


def _steepest(node: Any, before: int) -> Any:
    """Of the nodes that a call has made, the one with a pole: ``1 / x`` is a reciprocal, and a product behind it."""
    ahead = [node]
    while ahead:
        each = ahead.pop()
        if type(each).__name__ in POLES:
            return each
        behind = (one for one, _ in each.next_functions)
        ahead += [one for one in behind if one is not None and one.next_functions and sequence_nr(one) >= before]
    return node


class _Explaining:
    """The walks of a closure, recorded.

    Attributes:
        walked: how many there were.
    """

    def __init__(self, named: dict[str, Tensor]):
        self.calls = _Calls()
        self.found: list[Nonfinite] = []
        self.unseen: dict[str, None] = {}
        self.walked = 0
        self._named = named
        self._walks: list[tuple[Walk, list[Any]] | None] = []

    @contextmanager
    def watching(self) -> Iterator[None]:
        undo = tell_first(self._before, self._after)
        try:
            yield
        finally:
            undo()
            for walk, _ in filter(None, self._walks):
                walk.close()

    def _before(self, run: Backward) -> bool:
        if not all(is_memory(each) for each in (*_tensors(run), *run.cotangents) if each is not None):
            self._walks.append(None)  # inside of a transform, where no number can be read
            return True
        nodes = graphs.nodes(_tensors(run))
        for words in graphs.compiled_code(graphs.not_of_torch(nodes)):
            self.unseen[f"gradients depend on {words}"] = None
        self._walks.append((Walk(nodes, is_whole=True), nodes))
        return True

    def _after(self, run: Backward, given: Sequence[Any]) -> None:
        recorded = self._walks.pop()
        if recorded is None:
            return
        walk, nodes = recorded
        walk.close()
        self.walked += run.accumulates
        bad = self._reached(run, given)
        if bad:
            are_finite = all(is_finite(each.detach()) for each in _tensors(run) if is_memory(each))
            are_given_finite = all(each is None or is_finite(each) for each in run.cotangents)
            lines = Lines(nodes, self.calls.mark)
            around = Around(lines, Site.of(user_frame()), 0, bad, are_finite, are_given_finite)
            self.found += findings(walk, around)

    def _reached(self, run: Backward, given: Sequence[Any]) -> Any:
        if run.accumulates:
            return reached((name, each.grad) for name, each in self._named.items() if each.grad is not None)
        names = {id(each): name for name, each in self._named.items()}
        pairs = zip(run.inputs, given, strict=False)
        return reached(
            (names.get(id(each), f"tensor of {list(each.shape)}"), one)
            for each, one in pairs
            if isinstance(each, Tensor) and isinstance(one, Tensor) and is_memory(one)
        )


def _tensors(run: Backward) -> list[Tensor]:
    return [each for each in run.tensors if isinstance(each, Tensor)]


def value_line(operator: str, given: dict[str, Any], result: Tensor, site: Site, module: str = "") -> Line | None:
    """A call after which a value is not finite, with the first such entry and what it was called with there."""
    entry = entries.first_bad(result)
    if entry is None:
        return None
    found = entries.operands(given, entry, result.shape)
    return Line(
        site, operator, module, entry, (*found.items(), ("result", entries.text(entries.number(result, entry))))
    )


def is_source_of(value: Line, given: dict[str, Any]) -> bool:
    """Whether a value was finite before a call; infinity is taken for meant where a call makes NaN of it."""
    tensors = [each for each in given.values() if isinstance(each, Tensor) and each.is_floating_point()]
    if dict(value.inputs)["result"] == "nan":
        return not any(bool(each.isnan().any()) for each in tensors)
    return all(bool(each.isfinite().all()) for each in tensors)
