"""Running a program in double precision, whatever precision it was written for.

Quotients of values tell a derivative only as sharply as the values are known. Every floating-point tensor that a torch
function is given is therefore converted to double first, and so is every dtype that is named; constants that a
program holds itself, the parameters of a module say, are converted when they are first used, memory and all, so that
what is written into one is read from it later. What random numbers a program draws may depend on the dtype: a program
that draws some is only run so if it returns the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.overrides import TorchFunctionMode

from subgrad.apply.lost_arguments import LOST, whole
from subgrad.clarke.engine.given_to_functions import replacing_arguments
from subgrad.kinks.rounded import rounded
from subgrad.torch_internals.tensors import version_of
from subgrad.torch_internals.transforms import DisableTorchFunction

NARROW = frozenset((torch.float32, torch.float16, torch.bfloat16))
# Methods that name a dtype by their own name.
CASTS = {Tensor.float: torch.float32, Tensor.half: torch.float16, Tensor.bfloat16: torch.bfloat16}
DROPOUTS = frozenset((F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, torch.dropout, torch.feature_dropout))
# Numbers leave the program in the first; what is then made of numbers is made in double precision.
READS = frozenset((Tensor.item, Tensor.tolist, Tensor.numpy, Tensor.__float__, Tensor.__array__))
OF_NUMBERS = frozenset((torch.tensor, torch.as_tensor, torch.asarray, torch.scalar_tensor, torch.full))
_NUMBERS = frozenset((bool, int, float, type(None)))  # and nothing, which stay what they are
_ATTRIBUTE = "__get__"
_REPLACE = Tensor.data.__set__  # type: ignore[attr-defined]
# Functions whose numbers say where a kink lies: kernels round these to the precision of the tensor first.
_COMPARING = ("gt", "ge", "lt", "le", "eq", "ne", "greater", "greater_equal", "less", "less_equal", "not_equal", "sub")
_BOUNDING = (
    "clamp",
    "clamp_min",
    "clamp_max",
    "clip",
    "hardtanh",
    "hardshrink",
    "softshrink",
    "threshold",
    "where",
    "masked_fill",
    "full_like",
    "add",
)
BOUNDED = frozenset(
    form
    for name in (*_COMPARING, *_BOUNDING, "subtract", "rsub", "radd")
    for form in (name, f"{name}_", f"_{name}", f"__{name}__", f"__i{name}__")
)


@dataclass(frozen=True)
class Kind:
    """What has to be known of a function of torch to call it in double precision.

    Attributes:
        cast: the dtype that it names by its own name.
        gets: it gets an attribute.
        replaces: it sets ``x.data``.
        drops: it is a dropout.
        is_bounded: its numbers say where a kink lies.
        reads: it takes numbers out of the program.
        is_of_numbers: it makes a tensor of numbers.
    """

    cast: torch.dtype | None
    gets: bool
    replaces: bool
    drops: bool
    is_bounded: bool
    reads: bool
    is_of_numbers: bool

    @classmethod
    @lru_cache(maxsize=4096)
    def of(cls, func: Any) -> Kind:
        name = getattr(func, "__name__", "")
        where = name == _ATTRIBUTE, func == _REPLACE, func in DROPOUTS, name in BOUNDED, func in READS
        return cls(CASTS.get(func), *where, func in OF_NUMBERS)


class StandIn(TorchFunctionMode):
    """Give torch functions other tensors in the place of some, which a program may hold itself; in double if wide."""

    def __init__(self, others: Mapping[int, Tensor], wide: bool, dtype: torch.dtype):
        super().__init__()
        self.others, self.wide, self.has_read = others, wide, False
        self.dtype = dtype  # the widest that the program itself has computed in so far
        self.memories: dict[tuple[int, torch.dtype], _Memory] = {}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in LOST:
            args, kwargs = whole(func, args, kwargs)
        kind = Kind.of(func)
        if self.wide and kind.cast is not None:
            self._widen(kind.cast)
            func = Tensor.double
        elif kind.gets and not (args and id(args[0]) in self.others):
            return func(*args, **(kwargs or {}))
        if kind.replaces and id(args[0]) not in self.others:
            return self._replace(*args)
        if self.wide and kind.drops:
            return self._dropped(func, args, kwargs or {})
        with DisableTorchFunction():  # to ask for a dtype is a call of a torch function, too
            others = [each if type(each) in _NUMBERS else self._other(each) for each in args]
            named = {name: self._other(each) for name, each in kwargs.items()} if kwargs else {}
            if kind.is_bounded and self.wide and self.dtype in NARROW:
                others = [self._rounded(each) for each in others]
                named = {name: self._rounded(each) for name, each in named.items()}
        self.has_read |= kind.reads
        out = func(*others, **named)
        if self.wide and isinstance(out, Tensor) and out.dtype in NARROW and not any(map(_is_tensor, args)):
            # Made without a dtype; numbers that the program has read may have more digits.
            is_new = self.has_read and kind.is_of_numbers
            return func(*args, **{**(kwargs or {}), "dtype": torch.float64}) if is_new else out.double()
        return out

    def _replace(self, tensor: Tensor, other: Tensor) -> None:
        """``x.data = y`` of what is used from now on, and not of its copy; nothing if it only converts."""
        with DisableTorchFunction():
            before, given = self._other(tensor), self._other(other)
            if before.shape != given.shape or not torch.equal(before, given.to(before)):
                tensor.data = given

    def _dropped(self, func: Any, args: Any, kwargs: Any) -> Tensor:
        """In single precision other random numbers may be drawn: what is dropped there is dropped here."""
        x = self._other(args[0] if args else kwargs["input"])
        ones = torch.ones_like(x, dtype=torch.float32)
        kept = func(ones, *args[1:], **kwargs) if args else func(**{**kwargs, "input": ones})
        found = x * kept.double()
        return x.copy_(found) if kwargs.get("inplace") else found

    def other(self, given: Any) -> Any:
        with DisableTorchFunction():
            return self._other(given)

    def _other(self, given: Any) -> Any:
        if isinstance(given, Tensor):
            found = self.others.get(id(given), given) if self.others else given
            if not self.wide or found.dtype not in NARROW:
                return found
            if found.ndim:
                self._widen(found.dtype)
            return self._in_double(found)
        if isinstance(given, torch.dtype):
            if self.wide and given.is_floating_point:
                self._widen(given)
            return torch.float64 if self.wide and given in NARROW else given
        if type(given) in (list, tuple):
            return type(given)(map(self._other, given))
        return given

    def _widen(self, dtype: torch.dtype) -> None:
        self.dtype = torch.promote_types(self.dtype, dtype)

    def _rounded(self, given: Any) -> Any:
        return rounded(given, self.dtype) if type(given) is float else given

    def _in_double(self, tensor: Tensor) -> Tensor:
        """A view into the memory of a tensor, in double precision: views of one memory stay views of one memory."""
        is_held = tensor.grad_fn is None and type(tensor) in (Tensor, torch.nn.Parameter)
        if not is_held or tensor.layout is not torch.strided or tensor.is_inference():
            return tensor.double()
        key = tensor.untyped_storage().data_ptr(), tensor.dtype
        memory = self.memories.get(key)
        if memory is None or memory.is_old():
            memory = self.memories[key] = _Memory(tensor)
        return memory.seen_by(tensor)


class _Memory:
    """What a tensor lies in, in double precision, as long as nobody writes into the tensor itself."""

    def __init__(self, tensor: Tensor):
        self.tensor, self.version = tensor, version_of(tensor)
        whole = tensor.detach().as_strided((tensor.untyped_storage().nbytes() // tensor.element_size(),), (1,), 0)
        self.whole = whole.double()

    def is_old(self) -> bool:
        return version_of(self.tensor) != self.version

    def seen_by(self, tensor: Tensor) -> Tensor:
        return self.whole.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())


def _is_tensor(given: Any) -> bool:
    return isinstance(given, Tensor)


def standing_in(others: Mapping[int, Tensor], wide: bool, dtype: torch.dtype) -> AbstractContextManager[Any]:
    return _standing(StandIn(others, wide, dtype)) if wide or others else nullcontext()


@contextmanager
def _standing(mode: StandIn) -> Iterator[None]:
    with mode, replacing_arguments(mode.other):
        yield
