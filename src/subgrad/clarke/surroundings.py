"""What a run of a program depends on or changes besides its arguments: generators, compiled code, batch statistics."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import FrameType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module
from torch.nn.modules.batchnorm import _NormBase


def generator_states(leaves: Sequence[Tensor]) -> list[Any]:
    generators = [torch.default_generator]
    for device in {leaf.device for leaf in leaves if leaf.device.type == "cuda"}:
        generators.append(torch.cuda.default_generators[device.index or 0])
    return [(generator, generator.get_state()) for generator in generators]


_eager_lock = threading.Lock()
_eager_depth = 0
_stance: Any = None


def beside_compiled_code(run: Callable[[], Any]) -> Any:
    """Run as it is, also where a compiled function calls."""
    if "torch._dynamo" not in sys.modules:
        return run()
    return torch.compiler.disable(run)()  # pyright: ignore[reportCallIssue]


def eager() -> AbstractContextManager[None]:
    """Compiled functions run as they are written, so that their operators are met; in every thread, for that time."""
    return _eager() if "torch._dynamo" in sys.modules else nullcontext()  # else nothing is compiled


@contextmanager
def _eager() -> Iterator[None]:
    global _eager_depth, _stance
    with _eager_lock:
        if _eager_depth == 0:
            _stance = torch.compiler.set_stance("force_eager")
            _stance.__enter__()
        _eager_depth += 1
    try:
        yield
    finally:
        with _eager_lock:
            _eager_depth -= 1
            if _eager_depth == 0:
                _stance.__exit__(None, None, None)


def counts_batches(counter: Any) -> bool:
    """Whether a tensor is about to be written into by a module of normalisation that counts its batches with it."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not isinstance(frame.f_locals.get("self"), Module):
        frame = frame.f_back
    module = None if frame is None else frame.f_locals["self"]
    return isinstance(module, _NormBase) and module.num_batches_tracked is counter


@contextmanager
def without_fast_paths() -> Iterator[None]:
    """Without gradients torch runs whole transformer layers as one operator, which has no forward mode."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
