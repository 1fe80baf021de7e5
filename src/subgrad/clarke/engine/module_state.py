"""What a program puts into the place of something in its modules: buffers that are assigned, counters, what is cached.

Nobody is told of an assignment, as of a write into a tensor. So what the modules hold that a program can reach is noted
before the first run, and put back before each of the others: their attributes and buffers, and what is in the lists,
dicts, sets and deques among these. Other objects, and globals, are not looked after.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
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
_SIMPLE = frozenset((bool, int, float, str, tuple, type(None), Tensor))  # what most attributes are

Held = dict[Any, Any] | list[Any] | set[Any] | deque[Any]


class ModuleState:
    """What the modules of a program hold, before and after one run of it."""

    def __init__(self, reached_from: Iterable[Any]):
        found = [each for module in modules(reached_from) for each in _containers_of(module)]
        self._before: list[tuple[Held, Held]] = [(held, held.copy()) for held in found]
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


def modules(reached_from: Iterable[Any]) -> list[nn.Module]:
    """The modules that a program can reach: by its closure, its globals, the objects whose methods it is, and so on."""
    ahead, seen, found = deque(reached_from), set[int](), list[nn.Module]()
    while ahead and len(seen) < MOST:
        each = ahead.popleft()
        if isinstance(each, _WITHOUT_MODULES) or id(each) in seen:
            continue
        seen.add(id(each))
        if isinstance(each, nn.Module):
            found += _with_children(each)
        else:
            ahead.extend(_held_by(each))
    return found


def _with_children(module: nn.Module) -> list[nn.Module]:
    found, seen = [module], {id(module)}
    for each in found:
        for child in vars(each).get("_modules", {}).values():
            if child is not None and id(child) not in seen:
                seen.add(id(child))
                found.append(child)
    return found


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


def _named_by(function: FunctionType) -> list[Any]:
    """What a function can call by name; of other files' functions what they close over, as decorators do."""
    found = []
    for cell in function.__closure__ or ():
        try:
            found.append(cell.cell_contents)
        except ValueError:  # not assigned yet
            continue
    found += function.__defaults__ or ()
    found += (function.__kwdefaults__ or {}).values()
    if not _is_of_torch(function):
        here = function.__globals__
        named = [here.get(name) for name in _names(function.__code__)]
        found += [each for each in named if not isinstance(each, FunctionType) or each.__globals__ is here]
    return found


def _is_of_torch(thing: Any) -> bool:
    return (thing.__module__ or "builtins").partition(".")[0] in ("torch", "subgrad", "builtins")


@lru_cache(maxsize=1024)
def _names(code: CodeType) -> frozenset[str]:
    inner = (each for each in code.co_consts if isinstance(each, CodeType))
    return frozenset(code.co_names).union(*map(_names, inner))


def _containers_of(module: nn.Module) -> list[Held]:
    """The attributes of a module, and the containers among them and in these."""
    if _is_left_alone(type(module)):
        return []
    attributes = vars(module)
    found: list[Held] = [attributes]
    ahead = [each for name, each in attributes.items() if type(each) not in _SIMPLE and name not in _OF_TORCH]
    seen: set[int] = set()
    for each in ahead:
        if isinstance(each, _CONTAINERS) and len(each) <= LONGEST and id(each) not in seen and len(seen) < MOST:
            seen.add(id(each))
            found.append(each)
            if 0 < len(each) <= MOST:
                ahead += _contents(each)
    return found


@lru_cache(maxsize=1024)
def _is_left_alone(kind: type) -> bool:
    """Lazy modules become others in their first run; parallel ones keep accounts."""
    return issubclass(kind, LazyModuleMixin) or kind.__module__.startswith(_PARALLEL)


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
