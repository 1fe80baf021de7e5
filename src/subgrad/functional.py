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

from subgrad.apply.fake_quantize import Grid
from subgrad.apply.fake_quantize import fake_quantize as fake_quantized
from subgrad.apply.scopes import Scope
from subgrad.apply.scripted import scripted, unscriptable
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


def _not_scripted(name: str) -> Callable[[], Any]:
    def prepare() -> Any:
        raise RuntimeError(unscriptable(name))

    return prepare


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


def fake_quantize(
    input: Tensor,
    scale: float | Tensor,
    zero_point: int | Tensor,
    quant_min: int,
    quant_max: int,
    axis: int | None = None,
    *,
    grad_factor: float = 1.0,
    convention: str | Convention = "pass-through",
) -> Tensor:
    """Round to the levels of a quantised type and back, with the gradient that ``convention`` gives, on every torch.

    The value is torch's own, of ``torch.fake_quantize_per_tensor_affine`` and its relatives, to the bit:
    ``scale * (clamp(round(input / scale) + zero_point, quant_min, quant_max) - zero_point)``.

    Rounding is differentiated as the identity. At an entry that is rounded to the first or the last level the slope is
    that of the convention for ``clamp`` at its bound: 1 under ``pass-through``, as torch's own; 0 under ``min-norm``,
    as a quantiser has it that is written with ``torch.clamp`` since torch 2.14. An entry beyond the levels has slope 0,
    and 1 under ``straight-through``, which is a surrogate. ``torch``, ``torch-2.13`` and ``torch-2.14`` are torch's own
    derivative, which passes on both levels in all versions.

    >>> import torch, subgrad
    >>> x = torch.tensor([-1.2, -0.8, 0.3, 0.7, 0.9], requires_grad=True)
    >>> for convention in ("min-norm", "pass-through", "straight-through"):
    ...     y = subgrad.functional.fake_quantize(x, 0.1, 0, -8, 7, convention=convention)
    ...     print(*torch.autograd.grad(y.sum(), x)[0].tolist())
    0.0 0.0 1.0 0.0 0.0
    0.0 1.0 1.0 1.0 0.0
    1.0 1.0 1.0 1.0 1.0

    A scale that requires grad is learned, and so is a zero point of floating point, which is rounded to a level first.
    With the slope w of an entry, and q the level it is given, their gradients are the sums of
    ``(q - zero_point - w * input / scale)`` and ``(w - 1) * scale`` times the cotangent, times ``grad_factor``: the
    rule of learned step sizes, as ``torch._fake_quantize_learnable_per_tensor_affine`` and ``per_channel`` have it.

    Args:
        input: the tensor, of floating point.
        scale, zero_point: numbers, or tensors of one entry; with an axis, tensors of one entry for each channel.
        quant_min, quant_max: the first and the last level.
        axis: of the channels.
        grad_factor: what the gradients of scale and zero point are multiplied with.
        convention: the name of a convention, or a ``Convention``: what it takes for ``clamp``.
    """
    arguments = (scale, zero_point, quant_min, quant_max, axis)
    if is_recorded_to_run():
        warn_of_export(convention)
        return Grid.of(*arguments, grad_factor).torchs_own(input)
    options = {"grad_factor": grad_factor}
    node = recorded(fake_quantize, as_convention(convention), (input, *arguments), options)
    return _fake_quantized(convention, input, *arguments, grad_factor) if node is None else node


fake_quantize.__prepare_scriptable__ = _not_scripted("fake_quantize")  # type: ignore[attr-defined]


@torch.compiler.allow_in_graph  # pyright: ignore[reportUnknownMemberType]
def _fake_quantized(like: str | Convention, input: Tensor, *arguments: Any) -> Tensor:
    """A single node of compiled graphs."""
    chosen = as_convention(like)
    return fake_quantized(input, Grid.of(*arguments), chosen)


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
SPELLED = (*_GOVERNED, "clip", "absolute", *COMPOSED)  # of one function of torch each
__all__ = [*SPELLED, "fake_quantize"]  # pyright: ignore[reportUnsupportedDunderAll]
globals().update({name: _spelling(name) for name in SPELLED})


def __dir__() -> list[str]:
    return sorted(__all__)
