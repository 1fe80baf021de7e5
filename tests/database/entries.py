"""PyTorch's own operator database: the entries that call what the table has rows for, and their samples as cases."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any

import numpy
import torch
from met import Met, meeting
from torch import Tensor
from torch.utils._pytree import tree_flatten, tree_unflatten

DEVICE = "cpu"
CHECKED = torch.float64  # finite differences need it
SEED = 1234  # torch's own, so that the samples are those of its tests
LOOKED_AT = 60  # samples, to find the ways in which an entry meets the table: pools have a thousand
FORWARD = (torch.float64, torch.float32, torch.bfloat16)


@dataclass(frozen=True)
class Case:
    """One sample of one entry, called as a function or in place."""

    info: Any  # torch's OpInfo
    in_place: bool
    dtype: torch.dtype
    index: int
    sample: Any = field(repr=False)  # torch's SampleInput

    def __str__(self) -> str:
        called = f"{self.info.formatted_name}{'_' if self.in_place else ''}"
        return f"{called} #{self.index} {str(self.dtype).removeprefix('torch.')}"

    @cached_property
    def _flat(self) -> tuple[list[Any], Any]:
        return tree_flatten((self.sample.input, self.sample.args, self.sample.kwargs))

    @cached_property
    def inputs(self) -> tuple[Tensor, ...]:
        """What is differentiated."""
        return tuple(leaf for leaf in self._flat[0] if isinstance(leaf, Tensor) and leaf.requires_grad)

    @property
    def tensors(self) -> list[Tensor]:
        return [leaf for leaf in self._flat[0] if isinstance(leaf, Tensor)]

    def forward(self) -> Any:
        """The plain call, with everything it returns."""
        return self._variant(self.sample.input, *self.sample.args, **self.sample.kwargs)

    def function(self, *inputs: Tensor) -> Any:
        """The call as a function of the differentiated inputs, as torch's own `_check_helper` poses it to gradcheck."""
        leaves, structure = self._flat
        given = iter(inputs)
        leaves = [next(given) if isinstance(leaf, Tensor) and leaf.requires_grad else leaf for leaf in leaves]
        input, args, kwargs = tree_unflatten(leaves, structure)
        output = self.info.gradcheck_wrapper(self._variant, input, *args, **kwargs)
        return self.sample.output_process_fn_grad(output)

    @property
    def _variant(self) -> Callable[..., Any]:
        if not self.in_place:
            return self.info.get_op()
        # On a clone: a leaf cannot be overwritten.
        return lambda input, *args, **kwargs: self.info.get_inplace()(input.clone(), *args, **kwargs)

    def met_by_forward(self) -> Met:
        """What the call itself meets; nothing where torch refuses it."""
        return _met(self.forward)

    def met(self) -> Met:
        """What the function meets that gradcheck gets: also by what the database does to inputs and results."""
        return _met(lambda: self.function(*self.inputs))

    @property
    def size(self) -> int:
        return sum(each.numel() for each in self.inputs)


def _met(call: Callable[[], Any]) -> Met:
    try:
        with meeting() as met:
            seed()
            call()
    except Exception:
        if _is_refused(call):
            return Met()
        raise  # torch runs it: the mistake is in how we listen
    return met


def _is_refused(call: Callable[[], Any]) -> bool:
    try:
        seed()
        call()
    except Exception:
        return True
    return False


def seed() -> None:
    """The same random numbers in every call."""
    random.seed(SEED)
    numpy.random.seed(SEED)
    torch.default_generator.manual_seed(SEED)  # torch.manual_seed keeps a traceback for each device it might meet later


@cache
def database() -> dict[str, Any]:
    """The differentiable entries by name. Importing them takes 15 seconds."""
    from torch.testing._internal.common_methods_invocations import op_db

    return {
        info.formatted_name: info
        for info in op_db
        if info.supports_autograd and CHECKED in info.supported_backward_dtypes(DEVICE)
    }


def cases(name: str, dtype: torch.dtype = CHECKED, *, in_place: bool = False) -> list[Case]:
    """All samples of an entry, the same ones every time; those that can be called in place, if so asked."""
    info = database()[name]
    if dtype not in info.supported_backward_dtypes(DEVICE) or (in_place and not info.get_inplace()):
        return []
    return [
        Case(info, in_place, dtype, index, sample)
        for index, sample in enumerate(_samples(info, dtype))
        if not (in_place and (sample.broadcasts_input or not isinstance(sample.input, Tensor)))
    ]


def _samples(info: Any, dtype: torch.dtype) -> list[Any]:
    """Those of `OpInfo.sample_inputs`, which reads the whole stack for every one to know which test it is in."""
    seed()
    drawn, found = iter(info.sample_inputs_func(info, DEVICE, dtype, requires_grad=True)), []
    while True:
        seed()  # as torch: each sample is drawn afresh
        try:
            found.append(next(drawn))
        except StopIteration:
            return found


@cache
def covered() -> dict[str, Met]:
    """The entries that call overloads of the table in any sample, and what they meet in all of them."""
    found = {name: Met() for name in database()}
    for name, met in found.items():
        for case in cases(name):
            met.add(case.met_by_forward())
    return {name: met for name, met in found.items() if met.overloads}


def all_cases(name: str) -> list[Case]:
    """As a function and in place; those to differentiate, and in other types, of which only the forward is compared."""
    return [case for dtype in FORWARD for in_place in (False, True) for case in cases(name, dtype, in_place=in_place)]


def smallest(among: Sequence[Case], count: int) -> list[Case]:
    """The smallest cases for each way to meet the table: by overloads, on a kink or not, in place or not."""
    differentiable = [case for case in among if case.dtype is CHECKED and case.inputs]
    ways: dict[Any, list[Case]] = {}
    for case in sorted(differentiable, key=lambda case: (case.size == 0, case.size, case.index))[:LOOKED_AT]:
        met = case.met()
        if met.overloads:
            ways.setdefault((frozenset(met.overloads), bool(met.hits), case.in_place), []).append(case)
    return [case for found in ways.values() for case in found[:count]]
