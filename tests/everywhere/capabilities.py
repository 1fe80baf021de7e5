"""The ways in which PyTorch differentiates: each takes a program and a convention and returns its gradients."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch._dynamo.compiled_autograd
from torch import Tensor
from torch.testing._internal.two_tensor import TwoTensor
from torch.utils.checkpoint import checkpoint

import subgrad
from everywhere.families import Function, Program, cotangents

Capability = Callable[[Program, subgrad.Convention], Sequence[Tensor]]
BACKEND = "inductor"


def gradients(outputs: Sequence[Tensor], leaves: Sequence[Tensor]) -> list[Tensor]:
    return list(torch.autograd.grad(outputs, leaves, cotangents(outputs)))


def through(change: Callable[[Function], Function]) -> Capability:
    """The gradients of what is made of the function before it is called under the convention."""

    def capability(program: Program, convention: subgrad.Convention) -> list[Tensor]:
        leaves, function = program.leaves(), change(program.function)
        with subgrad.use(convention):
            outputs = function(*leaves)
        return gradients(outputs, leaves)

    return capability


def func_vjp(program: Program, convention: subgrad.Convention) -> Sequence[Tensor]:
    with subgrad.use(convention):
        outputs, pull = torch.func.vjp(program.function, *program.values)
    return pull(tuple(cotangents(outputs)))


def forward_mode(program: Program, convention: subgrad.Convention) -> list[Tensor]:
    """Column by column of the Jacobian."""
    found = [torch.zeros_like(value) for value in program.values]
    for index, value in enumerate(program.values):
        for entry in range(value.numel()):
            tangents = [torch.zeros_like(each) for each in program.values]
            tangents[index].view(-1)[entry] = 1
            with subgrad.use(convention):
                outputs, slopes = torch.func.jvp(program.function, program.values, tuple(tangents))
            pairs = zip(cotangents(outputs), slopes, strict=True)
            found[index].view(-1)[entry] = sum((cotangent * slope).nansum() for cotangent, slope in pairs)
    return found


def vmapped(program: Program, convention: subgrad.Convention) -> list[Tensor]:
    def one(*values: Tensor) -> Any:
        outputs, pull = torch.func.vjp(program.function, *values)
        return pull(tuple(cotangents(outputs)))

    with subgrad.use(convention):
        found = torch.func.vmap(one)(*(torch.stack([value, value + 0.25]) for value in program.values))
    return [batch[0] for batch in found]


def compiled(**options: Any) -> Capability:
    return through(lambda function: torch.compile(function, backend=BACKEND, **options))


def compiled_once(program: Program, convention: subgrad.Convention) -> list[Tensor]:
    """A function compiled once and called under others too: A, B, none, A."""
    function = torch.compile(program.function, backend=BACKEND, fullgraph=True)
    for around in (convention, "left", "torch", convention):
        leaves = program.leaves()
        with subgrad.use(around):
            outputs = function(*leaves)
    return gradients(outputs, leaves)


def chosen_inside(program: Program, convention: subgrad.Convention) -> list[Tensor]:
    @torch.compile(backend=BACKEND, fullgraph=True)
    def function(*leaves: Tensor) -> tuple[Tensor, ...]:
        with subgrad.use(convention):
            return program.function(*leaves)

    leaves = program.leaves()
    return gradients(function(*leaves), leaves)


def decorated_inside(program: Program, convention: subgrad.Convention) -> list[Tensor]:
    decorated = subgrad.use(convention)(program.function)
    leaves = program.leaves()
    return gradients(torch.compile(lambda *x: decorated(*x), backend=BACKEND, fullgraph=True)(*leaves), leaves)


def broken(function: Function) -> Function:
    def with_break(*leaves: Tensor) -> tuple[Tensor, ...]:
        leaves = tuple(leaf * 1 for leaf in leaves)
        torch._dynamo.graph_break()
        outputs = function(*leaves)
        torch._dynamo.graph_break()
        return tuple(out * 1 for out in outputs)

    return torch.compile(with_break, backend=BACKEND)


class Module(torch.nn.Module):
    """A function as a module."""

    def __init__(self, function: Function):
        super().__init__()
        self.function = function

    def forward(self, *leaves: Tensor) -> tuple[Tensor, ...]:
        return self.function(*leaves)


def regional(function: Function) -> Function:
    module = Module(function)
    module.compile(backend=BACKEND)
    return lambda *leaves: module(*(leaf * 1 for leaf in leaves))


def compiled_autograd(program: Program, convention: subgrad.Convention) -> list[Tensor]:
    leaves = program.leaves()
    with subgrad.use(convention):
        outputs = program.function(*leaves)
    with torch._dynamo.compiled_autograd._enable(torch.compile(backend=BACKEND)):
        torch.autograd.backward(outputs, cotangents(outputs))
    return [leaf.grad for leaf in leaves]


def exported(program: Program, convention: subgrad.Convention) -> list[Tensor]:
    """Exported under another convention than that of the call."""
    with subgrad.use("left"):
        graph = torch.export.export(Module(program.function), program.values)
    return through(lambda _: graph.module())(program, convention)


def checkpointed(*, reentrant: bool) -> Capability:
    """Backward runs in another thread, under another convention."""

    def capability(program: Program, convention: subgrad.Convention) -> list[Tensor]:
        leaves = program.leaves()
        with subgrad.use(convention):
            outputs = checkpoint(program.function, *leaves, use_reentrant=reentrant)

        def backward() -> None:
            with subgrad.use("left"):
                torch.autograd.backward(outputs, cotangents(outputs))

        in_another_thread(backward)
        return [leaf.grad for leaf in leaves]

    return capability


def in_another_thread(function: Callable[[], Any]) -> None:
    thread = threading.Thread(target=function)
    thread.start()
    thread.join()


def saved_on_cpu(program: Program, convention: subgrad.Convention) -> list[Tensor]:
    leaves = program.leaves()
    with subgrad.use(convention), torch.autograd.graph.save_on_cpu():
        outputs = program.function(*leaves)
    return gradients(outputs, leaves)


def hooked(program: Program, convention: subgrad.Convention) -> list[Tensor]:
    """What hooks of tensors, nodes and whole gradients are handed."""
    leaves, seen = program.leaves(), []
    with subgrad.use(convention):
        outputs = program.function(*leaves)
    for out in outputs:
        out.grad_fn.register_prehook(lambda given: tuple(each * 2 for each in given))
    torch.autograd.graph.register_multi_grad_hook(leaves, lambda found: seen.extend(each / 2 for each in found))
    torch.autograd.backward(outputs, cotangents(outputs))
    return seen


def autocast(dtype: torch.dtype, *, scaled: bool = False) -> Capability:
    """The leaves go through products of one-by-one matrices, which autocast takes to 16 bits."""

    def capability(program: Program, convention: subgrad.Convention) -> list[Tensor]:
        leaves = program.leaves()
        device = leaves[0].device
        with subgrad.use(convention), torch.autocast(device.type, dtype):
            narrow = [leaf.reshape(-1, 1, 1) @ torch.ones(leaf.numel(), 1, 1, device=device) for leaf in leaves]
            assert all(each.dtype is dtype for each in narrow)
            outputs = program.function(*(each.view(leaf.shape) for each, leaf in zip(narrow, leaves, strict=True)))
        pairs = zip(outputs, cotangents(outputs), strict=True)
        loss = sum((out.float() * cotangent.float()).sum() for out, cotangent in pairs)
        scaler = torch.amp.GradScaler(device.type, init_scale=2.0**8, enabled=scaled)
        scaler.scale(loss).backward()
        scaler.unscale_(torch.optim.SGD(leaves))
        return [leaf.grad for leaf in leaves]

    return capability


def traced_by_torchscript(program: Program, convention: subgrad.Convention) -> list[Tensor]:
    """Run often enough for its own optimiser to have acted."""
    traced = torch.jit.trace(program.function, program.values, check_trace=False)
    for _ in range(4):
        found = through(lambda _: traced)(program, convention)
    return found


def wrapper_subclass(program: Program, convention: subgrad.Convention) -> list[Tensor]:
    """Two tensors in one, by ``__torch_dispatch__``: the second is the first plus 0.25, off the kinks."""
    leaves = [TwoTensor(value.clone(), value + 0.25).requires_grad_() for value in program.values]
    with subgrad.use(convention):
        outputs = program.function(*leaves)
    given = [TwoTensor(each, each.clone()) for each in cotangents([out.a for out in outputs])]
    return [each.a for each in torch.autograd.grad(outputs, leaves, given)]


class Named(torch.Tensor):
    """A subclass by ``__torch_function__``."""


def function_subclass(program: Program, convention: subgrad.Convention) -> list[Tensor]:
    leaves = program.leaves()
    with subgrad.use(convention):
        outputs = program.function(*(leaf.as_subclass(Named) for leaf in leaves))
    assert all(type(out) is Named for out in outputs)
    return [each.as_subclass(Tensor) for each in gradients(outputs, leaves)]


def nested(program: Program, convention: subgrad.Convention) -> list[Tensor]:
    leaves = program.leaves()
    offsets = torch.tensor([0, 1, len(leaves[0])], device=leaves[0].device)
    with subgrad.use(convention):
        outputs = program.function(*(torch.nested.nested_tensor_from_jagged(leaf, offsets) for leaf in leaves))
    return gradients([out.values() for out in outputs], leaves)


def other_thread(program: Program, convention: subgrad.Convention) -> list[Tensor]:
    found: list[Tensor] = []
    with subgrad.use("left"):
        in_another_thread(lambda: found.extend(through(lambda function: function)(program, convention)))
    return found


CAPABILITIES: dict[str, Capability] = {
    "reverse mode": through(lambda function: function),
    "torch.func.vjp": func_vjp,
    "forward mode (torch.func.jvp)": forward_mode,
    "torch.func.vmap of a gradient": vmapped,
    "another thread, with another convention around": other_thread,
    "torch.compile(fullgraph=True)": compiled(fullgraph=True),
    "torch.compile(dynamic=True)": compiled(fullgraph=True, dynamic=True),
    "compiled once, called under several": compiled_once,
    "graph breaks": through(broken),
    "regional compilation (module.compile)": through(regional),
    "with use(...) inside, fullgraph=True": chosen_inside,
    "@use(...) inside, fullgraph=True": decorated_inside,
    "compiled autograd": compiled_autograd,
    "torch.export, run under the convention": exported,
    "TorchScript traces": traced_by_torchscript,
    "checkpoint, reentrant": checkpointed(reentrant=True),
    "checkpoint, not reentrant": checkpointed(reentrant=False),
    "saved-tensor hooks (save_on_cpu)": saved_on_cpu,
    "hooks of torch.autograd.graph": hooked,
    "autocast, bfloat16": autocast(torch.bfloat16),
    "autocast, float16, GradScaler": autocast(torch.float16, scaled=True),
    "subclasses, __torch_dispatch__": wrapper_subclass,
    "subclasses, __torch_function__": function_subclass,
    "torch.nested (jagged)": nested,
}
