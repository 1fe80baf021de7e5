"""`compare`: the gradients of one batch under several conventions."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, Any, overload

import torch
from torch import Tensor, nn
from torch.nn.modules.module import register_module_forward_pre_hook

from subgrad.apply.current_pass import running
from subgrad.apply.source_line import user_frame
from subgrad.audit import graphs
from subgrad.audit.attribution import Graph, effects
from subgrad.audit.backward import INNER, Backward, tell_first
from subgrad.audit.call_site import Site
from subgrad.audit.effects import Effect
from subgrad.audit.modules import Modules
from subgrad.audit.python_branches import PythonBranches
from subgrad.audit.recording import Recording
from subgrad.audit.switches import Switchboard
from subgrad.conventions import Convention, several

if TYPE_CHECKING:
    from subgrad.audit.port import Port, Reference

Parameters = nn.Module | Mapping[str, Tensor] | Iterable[Tensor] | Iterable[tuple[str, Tensor]]


@overload
def compare(
    closure: Callable[[], Any], params: Parameters, conventions: Sequence[str | Convention]
) -> Effect | tuple[Effect, ...]: ...


@overload
def compare(
    closure: Callable[[], Any],
    params: Parameters,
    conventions: Sequence[str | Convention] | None = None,
    *,
    reference: Reference,
    rtol: float | None = None,
) -> Port: ...


def compare(
    closure: Callable[[], Any],
    params: Parameters,
    conventions: Sequence[str | Convention] | None = None,
    *,
    reference: Reference | None = None,
    rtol: float | None = None,
) -> Effect | tuple[Effect, ...] | Port:
    """What another convention does to the gradients of a batch, and which line is responsible.

    >>> import torch, subgrad
    >>> w = torch.tensor([1.0, -1.0], requires_grad=True)
    >>> effect = subgrad.compare(lambda: (w.clamp(-1, 1) * torch.tensor([2.0, 4.0])).sum(), {"w": w},
    ...                          ["torch-2.13", "torch-2.14"])
    >>> [(change.parameter, change.differ, change.flips) for change in effect.changes]
    [('w', 2, 0)]

    The closure is run once, with compiled functions as they are written: forward values are the same under every
    convention, and only backward runs under each of them. ``effect.unseen`` says what could not be looked at. Random
    generators, buffers of modules such as batch statistics, and ``.grad`` are as before afterwards.

    With a ``reference``, gradients of the same batch in another framework, it says instead how much of the difference
    to them the kinks explain, under which convention and by which lines, and what they do not explain:

    >>> port = subgrad.compare(lambda: torch.maximum(w, torch.ones(2)).sum(), {"w": w}, reference={"w": [1.0, 0.0]})
    >>> port.explained, port.causes[0].operator
    (1.0, 'maximum')

    Args:
        closure: returns the loss; it may call ``backward()`` itself, as closures for optimizers do.
        params: a module, a mapping of names, an iterable of tensors, or ``named_parameters()``.
        conventions: two or more; the first is held against each of the others. With a reference those that may explain
            it, one or more; all that have names if not given.
        reference: the gradients by the names of the parameters, in their shapes: an ``.npz`` file, or a mapping.
        rtol: what is no difference to a reference, over the largest entry of a parameter's gradient; 4096 roundings if
            not given.

    Returns:
        An `Effect`, or a tuple of them for more than two conventions; a `Port` with a reference.

    Raises:
        ValueError: for fewer conventions, a reference with other names or shapes, a closure that returns no number to
            differentiate, or a loss that depends on compiled code which could not be run as it is written: made before,
            or by torch.jit.
    """
    if reference is not None:
        from subgrad.audit.port import compare_with  # which is made of what is here

        return compare_with(closure, params, reference, conventions, rtol)
    if conventions is None:
        raise ValueError("Give two or more conventions, or the gradients of another framework as reference=.")
    chosen = several("conventions", conventions)
    if not chosen:
        raise ValueError("conventions=[]: give two conventions or more.")
    named = named_parameters(params)
    with left_as_it_was(named):
        found = effects(graph_of(closure, named, chosen), chosen, 0, Site.of(user_frame()))
    return found[0] if len(found) == 1 else tuple(found)


def graph_of(closure: Callable[[], Any], named: Mapping[str, Tensor], conventions: Sequence[Convention]) -> Graph:
    """The graph of the loss, or of what the closure calls backward on, with calls that can be switched."""
    Recording.install()
    recording = Recording(Modules(None), 0)
    recording.switches = board = Switchboard(conventions)
    with _caught_backward(recording) as caught, torch.enable_grad(), eager(), running(recording):
        loss = closure()
    if not caught:
        if not isinstance(loss, Tensor) or loss.numel() != 1 or not loss.requires_grad:
            raise ValueError("The closure must return a loss: one number that depends on the parameters.")
        caught.append(((loss,), (None,)))
    tensors, cotangents = (tuple(each for pair in caught for each in pair[side]) for side in (0, 1))
    walked = list(graphs.nodes(tensors))
    for words in graphs.compiled_code(walked):
        raise ValueError(f"These gradients cannot be compared: they depend on {words}.")
    for words in (*graphs.unwatched(walked, board.made), *graphs.on_lists(walked)):
        recording.miss(words)
    return Graph(tensors, cotangents, named, board, walked, tuple(recording.missed))


@contextmanager
def eager() -> Iterator[None]:
    """Compiled functions run as they are written, and so do the branches of `torch.cond`."""
    is_loaded = "torch._dynamo" in sys.modules  # where the compiler was never loaded there are none
    with torch.compiler.set_stance("force_eager") if is_loaded else nullcontext(), PythonBranches():
        yield


def named_parameters(params: Parameters) -> dict[str, Tensor]:
    given: Any = params
    if isinstance(params, nn.Module):
        given = params.named_parameters()
    elif isinstance(params, Mapping):
        given = params.items()
    pairs = [each if isinstance(each, tuple) else (f"parameter {i}", each) for i, each in enumerate(given)]
    return {name: each for name, each in pairs if each.requires_grad}


@contextmanager
def _caught_backward(recording: Recording) -> Iterator[list[tuple[Sequence[Any], Sequence[Any]]]]:
    """Calls of backward are noted and not made; gradients that the program goes on with are."""
    caught: list[tuple[Sequence[Any], Sequence[Any]]] = []

    def told(run: Backward) -> bool:
        if run.accumulates:
            caught.append((run.tensors, run.cotangents))
        elif recording.switches and recording.switches.lines:
            recording.miss(INNER.format(Site.of(user_frame())))
        return not run.accumulates

    undo = tell_first(told)
    try:
        yield caught
    finally:
        undo()


@contextmanager
def left_as_it_was(parameters: Mapping[str, Tensor]) -> Iterator[None]:
    """Generators, buffers of the modules that are called, and ``.grad``."""
    kept: dict[Tensor, Tensor] = {}

    def keep(module: nn.Module, _: Any) -> None:
        if torch.compiler.is_dynamo_compiling():  # nothing to keep: it is traced, not run
            return
        for buffer in module.buffers(recurse=False):
            if buffer not in kept:
                kept[buffer] = buffer.detach().clone()

    gradients = [(each, each.grad, None if each.grad is None else each.grad.clone()) for each in parameters.values()]
    devices = sorted({each.device.index or 0 for each in parameters.values() if each.is_cuda})
    hook = register_module_forward_pre_hook(keep)
    try:
        with torch.random.fork_rng(devices):
            yield
    finally:
        hook.remove()
        with torch.no_grad():
            for buffer, value in kept.items():
                buffer.copy_(value)
            for each, gradient, value in gradients:
                if gradient is not None and value is not None:
                    gradient.copy_(value)
                each.grad = gradient
