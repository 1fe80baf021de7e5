"""Every operator that has a choice, with its convention spelled out, independent of what is in force around it.

>>> import torch, subgrad
>>> x = torch.tensor([0.0, 3.0, 6.0], requires_grad=True)
>>> torch.autograd.grad(subgrad.functional.clamp(x, 0, 6, convention="pass-through").sum(), x)
(tensor([1., 1., 1.]),)
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from subgrad.apply.scopes import Scope
from subgrad.apply.scripted import scripted
from subgrad.apply.traced import is_recorded_to_run, recorded, warn_of_export, warn_of_script
from subgrad.conventions import Convention
from subgrad.conventions import convention as as_convention
from subgrad.kinks import KINKS
from subgrad.kinks.overloads import is_torchs, overload
from subgrad.kinks.sets import Jump
from subgrad.torch_internals.dispatcher import schema_of


def _torch_function(name: str) -> Callable[..., Any]:
    """The function that users call: ``torch.linalg.svdvals`` for ``linalg_svdvals``."""
    family, _, rest = name.partition("_")
    homes = [(torch.nn.functional, name), (torch, name)]
    if family in ("linalg", "special"):
        homes.append((getattr(torch, family), rest))
    return next(getattr(home, each) for home, each in homes if hasattr(home, each))


@torch.compiler.allow_in_graph  # pyright: ignore[reportUnknownMemberType]
def _call(name: str, like: str | Convention, *args: Any, **kwargs: Any) -> Tensor:
    """Run a torch function under a convention of its own; a single node of compiled graphs."""
    chosen = as_convention(like)
    with Scope(chosen):
        return _torch_function(name)(*args, **kwargs)


def _spelling(name: str) -> Callable[..., Tensor]:
    original = _torch_function(name)

    def function(*args: Any, convention: str | Convention = "min-norm", **kwargs: Any) -> Tensor:
        if is_recorded_to_run():
            warn_of_export(convention)
            return original(*args, **kwargs)
        node = recorded(function, as_convention(convention), args, kwargs)
        return _call(name, convention, *args, **kwargs) if node is None else node

    function.__name__ = function.__qualname__ = name
    function.__doc__ = _doc(name, original)
    function.original = original  # type: ignore[attr-defined]
    function.__prepare_scriptable__ = lambda: _prepared(name, original)  # type: ignore[attr-defined]
    function.__signature__ = _signature(name, original)  # type: ignore[attr-defined]
    return function


def _prepared(name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    """Asked for by `torch.jit.script`."""
    warn_of_script(f"subgrad.functional.{name}")
    return scripted(name, original, KINKS[COMPOSED.get(name, name)][0].op)


def _doc(name: str, original: Callable[..., Tensor]) -> str:
    places = "\n".join(f"    {kink.place}: {kink.set}" for kink in KINKS[COMPOSED.get(name, name)])
    return (
        f"As ``{original.__module__ or 'torch'}.{name}``, with the element that ``convention`` picks at its kinks.\n\n"
        f"Kinks, and the generalised derivatives there:\n\n{places}\n\n"
        f"{inspect.cleandoc(original.__doc__ or '')}"
    )


def _signature(name: str, original: Callable[..., Tensor]) -> inspect.Signature:
    """Torch's own signature, or for built-in functions that of the overload, and the convention."""
    try:
        parameters = list(inspect.signature(original).parameters.values())
    except ValueError:
        parameters = [
            inspect.Parameter(
                "input" if argument.name == "self" else argument.name,
                inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=argument.default_value if argument.has_default_value() else inspect.Parameter.empty,
            )
            for argument in schema_of(overload(KINKS[COMPOSED.get(name, name)][0].op)).arguments
        ]
    chosen = inspect.Parameter(
        "convention", inspect.Parameter.KEYWORD_ONLY, default="min-norm", annotation="str | Convention"
    )
    rest = [each for each in parameters if each.kind is inspect.Parameter.VAR_KEYWORD]
    named = [each for each in parameters if each.kind is not inspect.Parameter.VAR_KEYWORD]
    return inspect.Signature([*named, chosen, *rest], return_annotation=Tensor)


if TYPE_CHECKING:

    def __getattr__(name: str) -> Callable[..., Tensor]: ...


# Functions of torch that call one operator of the table.
COMPOSED = {
    "max_pool1d": "max_pool2d",
    "adaptive_max_pool1d": "adaptive_max_pool2d",
    "l1_loss": "abs",
    "hinge_embedding_loss": "clamp_min",
    "margin_ranking_loss": "clamp_min",
}
_GOVERNED = dict.fromkeys(kink.name for kink in KINKS if is_torchs(kink.op) and not isinstance(kink.set, Jump))
__all__ = [*_GOVERNED, "clip", "absolute", *COMPOSED]  # noqa: F822  # pyright: ignore[reportUnsupportedDunderAll]
globals().update({name: _spelling(name) for name in __all__})


def __dir__() -> list[str]:
    return sorted(__all__)
