"""Private names of torch: `torch.func`, trees of arguments, modes."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from subgrad.torch_internals.lookup import private

# fmt: off
# ruff: noqa: E501
pytree = private("torch.utils:_pytree", "nested lists and dictionaries of arguments, flattened as torch.func does it")
peek_interpreter_stack = private("torch._C._functorch:peek_interpreter_stack", "the torch.func transform that is running, or None")
is_functorch_wrapped_tensor = private("torch._C._functorch:is_functorch_wrapped_tensor", "whether a transform has wrapped a tensor")
is_gradtracking_tensor = private("torch._C._functorch:is_gradtrackingtensor", "whether that is torch.func.grad or jvp")
is_legacy_batched_tensor = private("torch._C._functorch:is_legacy_batchedtensor", "whether a tensor is batched as `is_grads_batched` does it")
get_unwrapped = private("torch._C._functorch:get_unwrapped", "what a transform has wrapped")
enable_single_level_function = private("torch._functorch.utils:enable_single_level_autograd_function", "lets such a function run under transforms")
len_dispatch_stack = private("torch._C:_len_torch_dispatch_stack", "how many TorchDispatchModes are in force")
is_wrapper_subclass = private("torch.utils._python_dispatch:is_traceable_wrapper_subclass", "whether a tensor is made of others, as DTensor")
DisableTorchFunction = private("torch._C:DisableTorchFunction", "calls functions past the modes and subclasses of a program")
# fmt: on


class _Number:
    """Under `torch.func` a number is a wrapped tensor, of which torch cannot make a number for a kernel in Python.

    It asks such a tensor for the number it stands for: the answer is the tensor, which torch's own kernels take.
    """

    def __get__(self, tensor: Any, owner: Any = None) -> Any:
        if tensor is None:  # who asks the class lists what it has
            return None
        if is_functorch_wrapped_tensor(tensor):
            return tensor
        raise AttributeError("_wrapped_number")


def let_numbers_be_wrapped() -> None:
    """Needed before a kernel in Python covers an operator that takes numbers in the place of tensors."""
    Tensor._wrapped_number = _Number()  # type: ignore[attr-defined]  # what `toPyObject` looks for
