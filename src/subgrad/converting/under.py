"""Modules whose own code runs under a convention: the class of a module is replaced by one made of it.

Parameters, buffers, hooks and identity stay, and `isinstance` too.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from subgrad.apply.use import use
from subgrad.conventions import Convention

Module = torch.nn.Module


class Under:
    """What such classes have in common.

    Attributes:
        convention: the one their code runs under.
        plain: the class they are made of.
    """

    convention: Convention
    plain: type[Module]

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        """Classes made as a program runs cannot be pickled, but can be made again."""
        make, arguments, *rest = super().__reduce_ex__(protocol)
        arguments = tuple(self.plain if each is type(self) else each for each in arguments)
        return (_made, (make, arguments, self.convention), *rest)

    def extra_repr(self) -> str:
        return ", ".join(filter(None, (super().extra_repr(), f"convention={self.convention}")))  # type: ignore[misc]

    def __prepare_scriptable__(self) -> Module:
        raise RuntimeError(
            f"torch.jit.script cannot compile {self.plain.__name__}, whose code runs under {self.convention}: it holds "
            "operators alone. Give it subgrad.unconvert(model), which has the same ones, or use torch.jit.trace."
        )


@functools.lru_cache(maxsize=1024)
def under(plain: type[Module], convention: Convention) -> type[Module]:
    """The class of modules that are as those of ``plain``, with their forward under a convention."""
    body = {
        "__module__": plain.__module__,
        "__qualname__": plain.__qualname__,
        "__doc__": plain.__doc__,
        "convention": convention,
        "plain": plain,
        "forward": _forward(plain, convention),
    }
    if hasattr(plain, "__deepcopy__"):
        body["__deepcopy__"] = _deepcopy
    return type(plain.__name__, (Under, plain), body)


def _forward(plain: type[Module], convention: Convention) -> Callable[..., Any]:
    @functools.wraps(plain.forward)
    def forward(self: Module, *args: Any, **kwargs: Any) -> Any:
        with use(convention):
            return plain.forward(self, *args, **kwargs)

    return forward


def _deepcopy(self: Any, memo: dict[int, Any]) -> Any:
    """As the class does it that this one is made of, which looks at the classes of what it copies."""
    mine, self.__class__ = type(self), self.plain
    try:
        copied = self.__deepcopy__(memo)
    finally:
        self.__class__ = mine
    copied.__class__ = under(type(copied), mine.convention)
    return copied


def _made(make: Callable[..., Any], arguments: tuple[Any, ...], convention: Convention) -> Any:
    module = make(*arguments)
    module.__class__ = under(type(module), convention)
    return module
