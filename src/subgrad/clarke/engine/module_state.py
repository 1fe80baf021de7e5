"""What a program puts into the place of something in its modules: buffers that are assigned, counters, what is cached.

Nobody is told of an assignment, as of a write into a tensor. So what the modules hold that a program can reach is noted
before the first run, and put back before each of the others: their attributes and buffers, and what is in the lists,
dicts, sets and deques among these. Other objects, and globals, are not looked after.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from functools import lru_cache, partial
from operator import is_
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

from torch import Tensor, dtype, nn
from torch.nn.modules.lazy import LazyModuleMixin

MOST = 1000  # things that are looked at for modules; larger containers are full of data
LONGEST = 100_000  # of what a module holds: what is longer takes too long to note
_PARALLEL = ("torch.distributed", "torch.nn.parallel")  # which keep accounts of their own, in step with other processes
_OF_TORCH = frozenset(vars(nn.Module())) - {"_buffers"}
_WITHOUT_MODULES = (Tensor, str, bytes, int, float, complex, ModuleType, BuiltinFunctionType, dtype, type(None))

_CONTAINERS = (dict, list, set, deque)

Held = dict[Any, Any] | list[Any] | set[Any] | deque[Any]


class ModuleState:
    """What the modules of a program hold, before and after one run of it."""

    def __init__(self, reached_from: Iterable[Any]):
        self._before = [each for module in modules(reached_from) for each in _state(module)]
        self._after: list[tuple[Held, Held]] = []
        self._has_run = False  # and nothing has been put back since

    def restore(self) -> None:
        """Before another run."""
        if self._has_run:
            self._after = [(held, held.copy()) for held, _ in self._before]
            self._has_run = False
        _put_back(self._before)

    def note_one_run(self) -> None:
        self._has_run = True

    def settle(self) -> None:
        if not self._has_run:
            _put_back(self._after)


def modules(reached_from: Iterable[Any]) -> Iterator[nn.Module]:
    """The modules that a program can reach: by its closure, its globals, the objects whose methods it is, and so on."""
    ahead, seen = deque(reached_from), set[int]()
    while ahead and len(seen) < MOST:
        each = ahead.popleft()
        if isinstance(each, _WITHOUT_MODULES) or id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, nn.Module):
            yield from _with_children(each)
        else:
            ahead.extend(_held_by(each))


def _with_children(module: nn.Module) -> Iterator[nn.Module]:
    found = {id(module): module}
    ahead = [module]
    while ahead:
        for child in vars(ahead.pop()).get("_modules", {}).values():
            if child is not None and id(child) not in found:
                found[id(child)] = child
                ahead.append(child)
    return iter(found.values())


def _held_by(thing: Any) -> Iterable[Any]:
    if isinstance(thing, FunctionType):
        return _named_by(thing)
    if isinstance(thing, MethodType):
        return thing.__self__, thing.__func__
    if isinstance(thing, partial):
        return thing.func, *thing.args, *thing.keywords.values()
    if isinstance(thing, type):  # what its methods may share; the methods are those of all that are like it
        return (
            []
            if _is_of_torch(thing)
            else [each for each in vars(thing).values() if isinstance(each, (nn.Module, *_CONTAINERS))]
        )
    if isinstance(thing, dict | list | tuple | set | frozenset):
        return () if len(thing) > MOST else thing.values() if isinstance(thing, dict) else thing
    return getattr(thing, "__dict__", {}).values()


def _named_by(function: FunctionType) -> Iterator[Any]:
    """What a function can call by name; of other files' functions what they close over, as decorators do."""
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:  # not assigned yet
            continue
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    if _is_of_torch(function):
        return
    here = function.__globals__
    for name in _names(function.__code__):
        found = here.get(name)
        if not isinstance(found, FunctionType) or found.__globals__ is here:
            yield found


def _is_of_torch(thing: Any) -> bool:
    return (thing.__module__ or "builtins").partition(".")[0] in ("torch", "subgrad", "builtins")


@lru_cache(maxsize=1024)
def _names(code: CodeType) -> frozenset[str]:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return frozenset(code.co_names).union(*map(_names, inner))


def _state(module: nn.Module) -> Iterator[tuple[Held, Held]]:
    """The attributes of a module, and the containers among them and in these, with what is in them."""
    attributes = vars(module)
    becomes_another = isinstance(module, LazyModuleMixin)  # in its first run
    if becomes_another or type(module).__module__.startswith(_PARALLEL):
        return
    yield attributes, attributes.copy()
    ahead = [value for name, value in attributes.items() if name not in _OF_TORCH]
    seen: set[int] = set()
    while ahead and len(seen) < MOST:
        value = ahead.pop()
        if isinstance(value, _CONTAINERS) and len(value) <= LONGEST and id(value) not in seen:
            seen.add(id(value))
            yield value, value.copy()
            ahead.extend(_contents(value) if len(value) <= MOST else ())


def _put_back(state: Iterable[tuple[Held, Held]]) -> None:
    for held, kept in state:
        if len(held) == len(kept) and all(map(is_, _contents(held), _contents(kept))):
            continue
        if isinstance(held, list):
            held[:] = kept
        elif isinstance(held, deque):
            held.clear()
            held.extend(kept)
        elif isinstance(held, set):
            held.clear()
            held.update(kept)
        else:
            for name in [name for name in held if name not in kept]:
                del held[name]
            held.update(kept)


def _contents(held: Held) -> Iterable[Any]:
    return held.values() if isinstance(held, dict) else held
