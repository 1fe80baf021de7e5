"""What a run of a program depends on besides its arguments: generators, compiled code, the mode that torch is in."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch import Tensor


def generator_states(leaves: Sequence[Tensor]) -> list[Any]:
    generators = [torch.default_generator]
    for device in {leaf.device for leaf in leaves if leaf.device.type == "cuda"}:
        generators.append(torch.cuda.default_generators[device.index or 0])
    return [(generator, generator.get_state()) for generator in generators]


_eager_lock = threading.Lock()
_eager_depth = 0
_stance: Any = None


def by_itself(run: Callable[[], Any]) -> Any:
    """Run as it is: also where a compiled function calls, and inside `inference_mode`, which records nothing."""
    if torch.is_inference_mode_enabled():
        with torch.inference_mode(False):
            return by_itself(run)
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


@contextmanager
def without_fast_paths() -> Iterator[None]:
    """Without gradients torch runs whole transformer layers as one operator, which has no forward mode."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def uses_tf32(tensors: Sequence[Tensor]) -> bool:
    """Whether products of these may be computed with fewer digits than they have."""
    if not any(each.is_cuda and each.dtype is torch.float32 for each in tensors):
        return False
    try:
        return bool(torch.backends.cudnn.allow_tf32 or torch.backends.cuda.matmul.allow_tf32)
    except RuntimeError:  # precisions were set operator by operator, which these two cannot say
        return True
