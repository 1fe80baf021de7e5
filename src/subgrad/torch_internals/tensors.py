"""Private names of torch: what a tensor, its memory or a module is."""

from __future__ import annotations

from typing import Any

from subgrad.torch_internals.lookup import Missing, PrivateName, attribute, method, private

# fmt: off
# ruff: noqa: E501
version_of = attribute("torch:Tensor._version", "how often a tensor was written into")
base_of = attribute("torch:Tensor._base", "the tensor that a tensor is a view of, or None")
is_view = private("torch:Tensor._is_view", "whether a tensor is a view of another one")
is_zero_tensor = private("torch:Tensor._is_zerotensor", "whether a tensor stands for zeros, without memory")
hooks_of = attribute("torch:Tensor._backward_hooks", "the hooks that see the gradient of a tensor")
values_of = method("torch:Tensor._values", "the entries that a sparse tensor has memory for, added up or not")
storage_pointer = attribute("torch:UntypedStorage._cdata", "the address of a storage's own record")
storage_use_count = private("torch._C:_storage_Use_Count", "how many tensors and others hold a storage, by that address")
flatten_dense_tensors = private("torch._utils:_flatten_dense_tensors", "many tensors as one, in one call")
foreach_add_ = private("torch:_foreach_add_", "adds many tensors to as many others, in one call")
foreach_copy_ = private("torch:_foreach_copy_", "writes many tensors into as many others, in one launch")
foreach_norm = private("torch:_foreach_norm", "the norms of many tensors, in one launch")
code_of_module_call = private("torch.nn:Module._call_impl.__code__", "the function whose frame says that a module is running")
# fmt: on


_RAGGED = PrivateName("torch.nested._internal.nested_tensor:NestedTensor._ragged_idx", "where lengths differ")


def ragged_dim(nested: Any) -> int:
    """The dimension of a jagged nested tensor in which lengths differ. Its class is imported when first used."""
    try:
        return nested._ragged_idx
    except AttributeError:
        return Missing(_RAGGED)()
