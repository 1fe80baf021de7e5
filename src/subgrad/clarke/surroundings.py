"""What a run of a program depends on or changes besides its arguments: generators, compiled code, batch statistics."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.module import register_module_forward_pre_hook

from subgrad.apply.passing import here


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


@contextmanager
def eager() -> Iterator[None]:
    """Compiled functions run as they are written, so that their operators are met; in every thread, for that time."""
    global _eager_depth, _stance
    if "torch._dynamo" not in sys.modules:  # nothing has been compiled
        yield
        return
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


@contextmanager
def statistics_kept() -> Iterator[None]:
    """Batches are counted once, by the plain run."""

    def uncount(module: Any, _: Any) -> None:
        is_counting = isinstance(module, _NormBase) and module.training and module.num_batches_tracked is not None
        if is_counting and here.current is not None:
            module.num_batches_tracked.sub_(1)  # type: ignore[union-attr]

    hook = register_module_forward_pre_hook(uncount)
    try:
        yield
    finally:
        hook.remove()


@contextmanager
def without_fast_paths() -> Iterator[None]:
    """Without gradients torch runs whole transformer layers as one operator, which has no forward mode."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)
