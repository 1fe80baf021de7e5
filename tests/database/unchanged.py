"""What plain torch makes of a case, in every way that code calls it: the same before subgrad was used and after."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from by_hand import Call
from entries import DEVICE, Case, seed
from met import meeting
from regressions import digest
from torch import Tensor
from torch._dispatch.python import enable_python_dispatcher
from torch._functorch.aot_autograd import aot_function
from torch._functorch.compilers import nop
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_leaves, tree_map, tree_map_only

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.int64)


@cache
def entries() -> dict[str, Any]:
    """All of the database, what has no gradient included."""
    from torch.testing._internal.common_methods_invocations import op_db

    return {info.formatted_name: info for info in op_db}


def samples(name: str, dtype: torch.dtype, count: int | None) -> Iterator[Case]:
    """The first cases of an entry, as functions and in place; differentiated where torch can."""
    info = entries()[name]
    if dtype not in info.supported_dtypes(DEVICE):
        return
    differentiable = info.supports_autograd and dtype in info.supported_backward_dtypes(DEVICE)
    seed()
    drawn = info.sample_inputs_func(info, DEVICE, dtype, requires_grad=differentiable)
    for index, sample in enumerate(itertools.islice(drawn, count)):
        yield Case(info, False, dtype, index, sample)
        if info.get_inplace() and not sample.broadcasts_input and isinstance(sample.input, Tensor):
            yield Case(info, True, dtype, index, sample)


def forms_called(case: Case | Call) -> set[str]:
    """The overloads that a call reaches, of those that we have kernels for; none where torch refuses it."""
    try:
        with meeting() as met:
            seed()
            case.forward()
    except Exception:
        return set()
    return met.forms


# The ways, each a function of the case that returns everything it has computed.


def outputs(found: Any) -> list[Tensor]:
    """The results that have a derivative."""
    leaves = [leaf for leaf in tree_leaves(found) if isinstance(leaf, Tensor)]
    return [leaf for leaf in leaves if leaf.is_floating_point() or leaf.is_complex()]


def cotangents(like: list[Tensor]) -> list[Tensor]:
    """Never constant."""
    made = [torch.linspace(-1.5, 2, max(each.numel(), 1), dtype=torch.float64)[: each.numel()] for each in like]
    return [each.reshape(to.shape).to(to.dtype) for each, to in zip(made, like, strict=True)]


def forward(case: Case | Call) -> Any:
    return case.forward(), case.tensors


def written_out(case: Case | Call) -> Any:
    """With ``out=``; nothing for what takes none."""
    if isinstance(case, Call) or case.in_place or not case.info.supports_out:
        return None
    with torch.no_grad():
        room = tree_map_only(Tensor, torch.zeros_like, case.forward())
        return case.info.get_op()(case.sample.input, *case.sample.args, **case.sample.kwargs, out=room), room


def gradients(case: Case | Call) -> Any:
    found = [each for each in outputs(case.function(*case.inputs)) if each.requires_grad]
    return torch.autograd.grad(found, case.inputs, cotangents(found), allow_unused=True)


def _scalar(case: Case | Call) -> Callable[..., Tensor]:
    def scalar(*inputs: Tensor) -> Tensor:
        found = outputs(case.function(*inputs))
        terms = [(each * weight).sum() for each, weight in zip(found, cotangents(found), strict=True)]
        total = sum(terms[1:], terms[0])
        return total.real if total.is_complex() else total

    return scalar


def _detached(case: Case | Call) -> tuple[Tensor, ...]:
    return tuple(each.detach() for each in case.inputs)


def func_grad(case: Case | Call) -> Any:
    return torch.func.grad(_scalar(case), argnums=tuple(range(len(case.inputs))))(*_detached(case))


def func_vjp(case: Case | Call) -> Any:
    found, pull = torch.func.vjp(lambda *inputs: outputs(case.function(*inputs)), *_detached(case))
    return found, pull(cotangents(found))


def func_jvp(case: Case | Call) -> Any:
    ahead = tuple(cotangents(list(case.inputs)))
    return torch.func.jvp(lambda *inputs: outputs(case.function(*inputs)), _detached(case), ahead)


def vmap(case: Case | Call) -> Any:
    batched = tuple(torch.stack((each, each * 0.5)) for each in _detached(case))
    return torch.func.vmap(lambda *inputs: outputs(case.function(*inputs)), randomness="same")(*batched)


def vmap_of_grad(case: Case | Call) -> Any:
    batched = tuple(torch.stack((each, each * 0.5)) for each in _detached(case))
    return torch.func.vmap(torch.func.grad(_scalar(case)), randomness="same")(*batched)


def functionalized(case: Case | Call) -> Any:
    return torch.func.functionalize(lambda *inputs: outputs(case.function(*inputs)))(*_detached(case))


def fake(case: Case | Call) -> Any:
    """Types, shapes and strides of results and gradients, without numbers."""
    with FakeTensorMode(allow_non_fake_inputs=True) as mode:
        inputs = [mode.from_tensor(each) for each in case.inputs]
        found = outputs(case.function(*inputs))
        reached = [each for each in found if each.requires_grad]
        slopes = torch.autograd.grad(reached, inputs, cotangents(reached), allow_unused=True) if reached else ()
    return tree_map(_described, [found, slopes])


def _described(found: Any) -> Any:
    if not isinstance(found, FakeTensor):
        return found
    return str((found.dtype, tuple(found.shape), found.stride(), found.device, found.requires_grad))


def fake_in_python(case: Case | Call) -> Any:
    with enable_python_dispatcher():
        return fake(case)


def traced(case: Case | Call) -> Any:
    """The graph of the gradient, as operators."""
    graph = make_fx(lambda *inputs: _grad_of(case, inputs), tracing_mode="fake", _allow_non_fake_inputs=True)(
        *_detached(case)
    )
    return str(graph.code)


def _grad_of(case: Case | Call, inputs: tuple[Tensor, ...]) -> Any:
    leaves = [each.detach().requires_grad_() for each in inputs]
    found = [each for each in outputs(case.function(*leaves)) if each.requires_grad]
    return torch.autograd.grad(found, leaves, [torch.ones_like(each) for each in found], allow_unused=True)


def compiled(case: Case | Call) -> Any:
    """As `torch.compile` runs it with its gradient, without a compiler of kernels."""
    torch._dynamo.reset()
    inputs = [each.detach().clone().requires_grad_() for each in case.inputs]
    found = outputs(torch.compile(case.function, backend="aot_eager")(*inputs))
    reached = [each for each in found if each.requires_grad]
    return found, torch.autograd.grad(reached, inputs, cotangents(reached), allow_unused=True)


def aot(case: Case | Call) -> Any:
    """What `aot_eager` does with a graph, without Dynamo, which takes most of the time."""
    inputs = [each.detach().clone().requires_grad_() for each in case.inputs]
    function = aot_function(lambda *given: outputs(case.function(*given)), fw_compiler=nop)
    found = function(*inputs)
    reached = [each for each in found if each.requires_grad]
    return found, torch.autograd.grad(reached, inputs, cotangents(reached), allow_unused=True)


PLAIN = {"forward": forward, "out=": written_out}
# Of what is differentiated.
WAYS: dict[str, Callable[[Case | Call], Any]] = {
    "gradients": gradients,
    "func.grad": func_grad,
    "func.vjp": func_vjp,
    "func.jvp": func_jvp,
    "vmap": vmap,
    "vmap of grad": vmap_of_grad,
    "functionalize": functionalized,
    "fake tensors": fake,
    "fake, Python's dispatcher": fake_in_python,
    "make_fx": traced,
    "AOTAutograd": aot,
    "aot_eager": compiled,
}


def outcomes(case: Case | Call, *, without: tuple[str, ...] = ()) -> dict[str, str]:
    """What comes out in each way: a digest of every bit, or the type of the error."""
    ways = {**PLAIN, **(WAYS if case.inputs else {"aot_eager": compiled, "fake tensors": fake})}
    return {name: outcome(way, case) for name, way in ways.items() if name not in without}


def outcome(way: Callable[[Any], Any], case: Any) -> str:
    try:
        seed()
        return digest(tree_leaves(way(case)))
    except Exception as error:
        return type(error).__name__


def is_error(outcome: str) -> bool:
    return outcome.isidentifier() and len(outcome) < 100  # digests are longer
