"""What a program writes into besides its results: batch statistics, counters, buffers. Every pass starts from the same.

A program is run several times for one gradient. What it writes into is put back before each of them, and in the end it
is as after one run; if anything is raised, as before the first.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from functools import cached_property, partial
from typing import Any

import torch
from torch import Tensor

from subgrad.torch_internals.tensors import base_of, foreach_copy_, is_view, storage_pointer, storage_use_count
from subgrad.torch_internals.transforms import get_unwrapped, is_functorch_wrapped_tensor


class WritesIntoArgument(Exception):  # noqa: N818
    """The program is about to write into what it is differentiated in: it needs a copy."""


def _writing_methods() -> frozenset[Any]:
    not_values = ("requires_grad_", "detach_", "retain_grad_", "share_memory_", "rename_")
    found = [
        getattr(where, name)  # `Tensor.clamp_` and `torch.clamp_` are two functions of one name
        for where in (Tensor, torch)
        for name in dir(where)
        if name.endswith("_") and not name.startswith("_") and name not in not_values
    ]
    found = [each for each in found if callable(each)]
    operators = ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor", "lshift", "rshift")
    return frozenset([*found, Tensor.__setitem__, *(getattr(Tensor, f"__i{name}__") for name in operators)])


WRITING = _writing_methods()


def target(func: Any, args: Any, kwargs: Any) -> Any:
    """The tensor that a call writes into, if any."""
    if func in WRITING or kwargs.get("inplace"):
        return args[0] if args else kwargs.get("input", kwargs.get("self"))
    return kwargs.get("out")


class Written:
    """The tensors that a program was seen to write into, with what was in them before and after one run."""

    def __init__(self, leaves: Sequence[Tensor]):
        self._leaves = leaves
        self._before: dict[int, tuple[weakref.ref[Tensor], Tensor]] = {}  # by identity; temporary tensors may be gone
        self._after: list[tuple[weakref.ref[Tensor], Tensor]] = []
        self._memory_before: dict[int, tuple[weakref.ref[Tensor], Tensor]] = {}  # of what was given another memory
        self._memory_after: list[tuple[weakref.ref[Tensor], Tensor]] = []
        self._shared: list[Tensor] = []  # of these, what others see as well
        self._has_run = False  # and nothing has been put back since

    def __bool__(self) -> bool:
        return bool(self._before or self._memory_before)

    def keep(self, tensor: Any, its_memory: bool = False) -> None:
        """Before a write, or before it gets another memory, as by ``x.data = y``."""
        if tensor is None:
            return
        tensor = unwrapped(tensor)
        if not isinstance(tensor, Tensor) or tensor.layout is not torch.strided:
            return
        if _memory(tensor) in self._memories_of_leaves:
            raise WritesIntoArgument
        if its_memory:
            self._keep_memory(tensor)
            return
        base = base_of(tensor)
        whole = tensor if base is None else base
        is_result = whole.requires_grad and not whole.is_leaf  # made by the program itself
        number = id(whole)
        is_known = number in self._before and self._before[number][0]() is whole
        if not is_result and not is_known:
            gone = partial(self._before.pop, number)
            self._before[number] = weakref.ref(whole, lambda _: gone(None)), whole.detach().clone()
            if is_shared(whole):  # it may be gone, and not what it lies in
                self._shared.append(whole)

    @cached_property
    def _memories_of_leaves(self) -> frozenset[int]:
        return frozenset(map(_memory, self._leaves))

    def _keep_memory(self, tensor: Tensor) -> None:
        number = id(tensor)
        if number not in self._memory_before or self._memory_before[number][0]() is not tensor:
            gone = partial(self._memory_before.pop, number)
            self._memory_before[number] = weakref.ref(tensor, lambda _: gone(None)), tensor.detach()

    def restore(self) -> None:
        """Before another run."""
        if self._has_run:
            alive = [(each, each()) for each, _ in self._memory_before.values()]
            self._memory_after = [(each, tensor.detach()) for each, tensor in alive if tensor is not None]
            pairs = [(each, each()) for each, _ in self._before.values()]
            self._after = [(each, tensor.detach().clone()) for each, tensor in pairs if tensor is not None]
            self._has_run = False
        _give(self._memory_before.values())
        if self._before:  # what was kept first lies there in the end, where several share their memory
            _write(reversed(self._before.values()))

    def note_one_run(self) -> None:
        """All is as after one run; what that is, is kept if there is another."""
        self._has_run = True

    def settle(self) -> None:
        if not self._has_run:
            _give(self._memory_after)
            _write(self._after)


def unwrapped(tensor: Any) -> Any:
    """What a tensor is outside of `torch.func` transforms, which wrap it."""
    while isinstance(tensor, Tensor) and is_functorch_wrapped_tensor(tensor):
        tensor = get_unwrapped(tensor)
    return tensor


def is_shared(tensor: Tensor) -> bool:
    """Whether somebody else has the memory of a tensor, unknown to autograd: what it was detached from, say."""
    tensor = unwrapped(tensor)
    alone = 3 if is_view(tensor) else 2  # the tensor, the storage that is asked, and the base of a view
    return storage_use_count(storage_pointer(tensor.untyped_storage())) > alone


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr() or -1


def _give(pairs: Iterable[tuple[weakref.ref[Tensor], Tensor]]) -> None:
    for reference, memory in list(pairs):
        tensor = reference()
        if tensor is not None:
            tensor.data = memory


def _write(pairs: Iterable[tuple[weakref.ref[Tensor], Tensor]]) -> None:
    alive = [(tensor.detach(), value) for reference, value in list(pairs) if (tensor := reference()) is not None]
    with torch.no_grad():
        if len({_memory(tensor) for tensor, _ in alive}) < len(alive):  # some share theirs, and order matters
            for tensor, value in alive:
                tensor.copy_(value)
            return
        alike: dict[Any, tuple[list[Tensor], list[Tensor]]] = {}  # which are written at once
        for tensor, value in alive:
            tensors, values = alike.setdefault((tensor.dtype, tensor.device), ([], []))
            tensors.append(tensor)
            values.append(value)
        for tensors, values in alike.values():
            foreach_copy_(tensors, values)
