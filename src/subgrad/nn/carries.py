"""What every module of `subgrad.nn` has beyond its counterpart in ``torch.nn``: a convention."""

# Annotations are types here and not strings: torch 2.11 cannot pickle what `torch.fx` traces of the latter.
import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F  # noqa: F401  # as what `torch.jit.script` reads calls it
from torch import Tensor

from subgrad import functional
from subgrad.apply.traced import warn_of_script
from subgrad.conventions import Convention
from subgrad.conventions import convention as as_convention


class Carries(torch.nn.Module):
    """A module that runs one function of `subgrad.functional` under a convention of its own.

    Attributes:
        counterpart: the class in ``torch.nn``; set by subclasses, as the others.
        function: the function's name.
        given: the attributes of the module that the function takes, by the same names.
        convention: which element it takes at kinks.
        is_converted: it was its counterpart, and is so again after `subgrad.unconvert`.
    """

    counterpart: type[torch.nn.Module]
    function: str
    given: tuple[str, ...] = ()
    is_converted = False

    def __init_subclass__(cls, function: str = "", given: str = "", **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if not function:
            return
        cls.__module__ = "subgrad.nn"  # where it is imported from, and so pickled by
        cls.counterpart = next(base for base in cls.__bases__ if not issubclass(base, Carries))
        cls.function, cls.given = function, tuple(given.split())
        cls.forward = _forward(cls.counterpart)

    def __init__(self, *args: Any, convention: str | Convention = "min-norm", **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.convention = as_convention(convention)

    def _run(self, *inputs: Tensor) -> Any:
        run = getattr(functional, self.function)
        return run(*inputs, **{name: getattr(self, name) for name in self.given}, convention=self.convention)

    def extra_repr(self) -> str:
        return ", ".join(filter(None, (super().extra_repr(), f"convention={self.convention}")))

    def __prepare_scriptable__(self) -> "Carries":
        """Asked for by `torch.jit.script`."""
        if self.convention.interferes:
            warn_of_script(f"{type(self).__name__}(convention={self.convention})")
        return self


def _forward(counterpart: type[torch.nn.Module]) -> Callable[..., Any]:
    """Runs the function. `torch.jit.script`, which holds operators alone, reads torch's in its place."""
    inputs = len(inspect.signature(counterpart.forward).parameters) - 1
    one: Callable[..., Any] = lambda self, input: self._run(input)  # noqa: E731
    two: Callable[..., Any] = lambda self, input, target: self._run(input, target)  # noqa: E731
    three: Callable[..., Any] = lambda self, input1, input2, target: self._run(input1, input2, target)  # noqa: E731
    return functools.wraps(counterpart.forward)((one, two, three)[inputs - 1])
