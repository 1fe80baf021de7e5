"""Private names of torch: flags that have no public setter, or one that does more."""

from __future__ import annotations

from contextlib import AbstractContextManager
from functools import cache
from typing import Any

from subgrad.torch_internals.lookup import private

# fmt: off
# ruff: noqa: E501
set_deterministic_algorithms = private("torch._C:_set_deterministic_algorithms", "what torch.use_deterministic_algorithms calls, which also imports the compiler to tell it")
# Past `torch.backends.cudnn`, whose flags may be frozen.
get_cudnn_deterministic = private("torch._C:_get_cudnn_deterministic", "whether cuDNN takes kernels that give the same twice")
set_cudnn_deterministic = private("torch._C:_set_cudnn_deterministic", "makes it take them")
get_cudnn_benchmark = private("torch._C:_get_cudnn_benchmark", "whether cuDNN tries its kernels and takes the fastest")
set_cudnn_benchmark = private("torch._C:_set_cudnn_benchmark", "makes it do so")
jit_set_profiling_mode = private("torch._C:_jit_set_profiling_mode", "whether TorchScript differentiates by formulas of its own")
gpu_sleep = private("torch.cuda:_sleep", "keeps a GPU busy for so many cycles, so that what is timed is queued behind it")
# fmt: on


def keeping_buffers() -> AbstractContextManager[None]:
    """A compiled graph that gives its buffers away would run backward only once. Imported here: others do not compile."""
    return _functorch_config().patch(donated_buffer=False)


@cache
def _functorch_config() -> Any:
    return private("torch._functorch:config", "settings of compiled graphs and their backward")
