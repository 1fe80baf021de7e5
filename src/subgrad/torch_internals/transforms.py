"""Private names of torch: `torch.func`, trees of arguments, modes."""

from __future__ import annotations

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
