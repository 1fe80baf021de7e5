"""How a private name of torch is looked up: once, when subgrad is imported, and one that is missing raises when used.

What is found is handed on itself and not wrapped, since some of these are called for every operator.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from operator import attrgetter, methodcaller
from pkgutil import resolve_name
from typing import Any

import torch

from subgrad.torch_internals.versions import tried


class UnavailableError(RuntimeError):
    """The installed torch lacks a private name that is needed."""


@dataclass(frozen=True)
class PrivateName:
    """One private name of torch.

    Attributes:
        path: the module, a colon, and the name in it: ``"torch:Tensor._version"``.
        purpose: what it is for.
    """

    path: str
    purpose: str

    def __str__(self) -> str:
        return self.path.replace(":", ".")


NAMES: list[PrivateName] = []  # all that were looked up


class Missing:
    """In the place of a name that the installed torch lacks: whoever uses it is told."""

    def __init__(self, name: PrivateName):
        self.__dict__["of"] = name

    def _raise(self, *_: object, **__: object) -> Any:
        raise UnavailableError(
            f"torch {torch.__version__} has no {self.of}, which subgrad needs: {self.of.purpose}. "
            f"subgrad was tried on torch {tried()}: install one of these, or a newer subgrad."
        )

    __call__ = __enter__ = __exit__ = __iter__ = __bool__ = __eq__ = __instancecheck__ = __mro_entries__ = _raise
    __setattr__ = _raise
    __hash__ = object.__hash__

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):  # whoever inspects modules asks for these
            raise AttributeError(attribute)
        return self._raise()


def require(found: Any) -> None:
    """Raise if a name is missing, on which something depends that does not call it."""
    if isinstance(found, Missing):
        found()


def private(path: str, purpose: str) -> Any:
    """What has this name in torch, itself."""
    return _found(path, purpose, lambda found: found)


def attribute(path: str, purpose: str) -> Callable[[Any], Any]:
    """A function that reads the attribute of an object: of ``"torch:Tensor._version"``, the version of a tensor."""
    return _found(path, purpose, lambda _: attrgetter(path.rpartition(".")[2]))


def method(path: str, purpose: str) -> Callable[[Any], Any]:
    """A function that calls the method of an object, without arguments."""
    return _found(path, purpose, lambda _: methodcaller(path.rpartition(".")[2]))


def variable(path: str, purpose: str) -> Callable[[], Any]:
    """A function that reads a variable of a module, which may change."""
    module, _, name = path.partition(":")
    return _found(path, purpose, lambda _: partial(getattr, resolve_name(module), name))


def _found(path: str, purpose: str, made: Callable[[Any], Any]) -> Any:
    name = PrivateName(path, purpose)
    NAMES.append(name)
    try:
        return made(resolve_name(path))
    except (ImportError, AttributeError):
        return Missing(name)
