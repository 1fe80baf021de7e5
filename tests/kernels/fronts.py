"""With and without the front: what both must agree on, and how to see that it answers."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from kernels.calls import CALLS, CONVENTIONS, IN_PLACE, assert_same_bits, every_number, outcome
from kernels.processes import run_apart
from torch import Tensor

import subgrad
from subgrad.kernels.native import build

ONCE_ONLY = ("hardsigmoid",)  # torch has no second derivative
PACKAGE = str(Path(subgrad.__file__).parent)


@contextmanager
def without_front() -> Iterator[None]:
    before = build._mode
    subgrad.kernels.set_front("never")
    try:
        yield
    finally:
        subgrad.kernels.set_front(before)


def python_run_by(call: Callable[[], Any]) -> list[str]:
    """The functions of subgrad that a call runs."""
    seen: list[str] = []

    def note(frame: Any, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            seen.append(frame.f_code.co_qualname if sys.version_info >= (3, 11) else frame.f_code.co_name)

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return seen


def run_unwatched(device: str) -> None:
    """The tests in `unwatched.py` for a device, in a process of their own."""
    run_apart("unwatched.py", "-k", device)


def assert_same_as_in_python(name: str, dtype: torch.dtype, device: str) -> None:
    """Values, gradients and second derivatives of every number of 16 bits, under every convention."""
    call, x = (CALLS | IN_PLACE)[name], every_number(dtype, device)
    further = (lambda *_: ()) if name in ONCE_ONLY else second_derivatives
    for convention in CONVENTIONS:
        with subgrad.use(convention):
            outcome(call, x)  # asks Python
            found = *outcome(call, x), *further(call, x)
            with without_front():
                wanted = *outcome(call, x), *further(call, x)
        for one, other in zip(found, wanted, strict=True):
            assert_same_bits(one, other)
            assert one.stride() == other.stride()


def second_derivatives(call: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    """Of the product of the call with its cotangent, once in the cotangent and once in the input."""
    leaf = x.nan_to_num(0.5, 1.0, -1.0)[::7].requires_grad_()
    out = call(leaf * 1)
    weights = (torch.arange(out.numel(), dtype=x.dtype, device=x.device) % 13 - 6).requires_grad_()
    (first,) = torch.autograd.grad(out, leaf, weights, create_graph=True)
    in_weights, in_leaf = torch.autograd.grad((first * first).sum(), (weights, leaf), allow_unused=True)
    return [in_weights, torch.zeros_like(leaf) if in_leaf is None else in_leaf + torch.zeros_like(leaf)]


def second_of_the_sum(call: Callable[[Tensor], Tensor], x: Tensor) -> Tensor | None:
    """With a cotangent that is constant; None where torch says that nothing depends on the input."""
    leaf = x.detach().clone().requires_grad_()
    (first,) = torch.autograd.grad(call(leaf * 1).sum(), leaf, create_graph=True)
    try:
        return torch.autograd.grad(first.sum(), leaf)[0]
    except RuntimeError as error:
        if "does not require grad" not in str(error):
            raise
        return None
