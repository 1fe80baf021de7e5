"""Functions whose result is not differentiated, and needs not be: what is told of shapes, types and flags, what only
has the shape of a tensor, and answers and indices, which the rules of their operators have decided."""

from __future__ import annotations

_SHAPES = (
    *("size", "stride", "dim", "ndimension", "numel", "nelement", "element_size", "storage_offset", "dim_order"),
    *("__len__", "sparse_dim", "dense_dim", "_dimI", "_dimV", "_nnz", "_indices", "indices", "crow_indices"),
    *("col_indices", "ccol_indices", "row_indices", "get_device", "__dlpack_device__", "__hash__", "__dir__"),
    *("_nested_tensor_size", "_nested_tensor_strides", "_nested_tensor_storage_offsets", "storage_type"),
    *("qscheme", "q_scale", "q_zero_point", "q_per_channel_axis", "q_per_channel_scales", "q_per_channel_zero_points"),
    *("sym_not", "result_type", "can_cast", "has_names", "_is_view"),
)
_SHAPED_AS = (
    *("zeros_like", "ones_like", "empty_like", "rand_like", "randn_like", "randint_like"),
    *("new_zeros", "new_ones", "new_empty", "new_empty_strided"),
)
_ORDER = ("eq", "ne", "gt", "ge", "lt", "le", "greater", "greater_equal", "less", "less_equal", "not_equal")
_ANSWERS = (
    *_ORDER,
    *(f"__{name}__" for name in _ORDER[:6]),
    *("isnan", "isinf", "isfinite", "isposinf", "isneginf", "isreal", "isclose", "signbit"),
    *("logical_not", "logical_and", "logical_or", "logical_xor", "any", "all", "count_nonzero"),
)
_INDICES = ("argmax", "argmin", "argsort", "nonzero", "argwhere")
# Attributes; those that are tensors are differentiated themselves, and `data` is seen to.
_ATTRIBUTES = (
    *("shape", "dtype", "device", "layout", "ndim", "itemsize", "nbytes", "name", "output_nr", "_cdata"),
    *("requires_grad", "retains_grad", "grad", "_grad", "grad_fn", "_grad_fn", "grad_dtype", "_version", "_base"),
    *("_backward_hooks", "_post_accumulate_grad_hooks", "_has_grad_dtype_override", "volatile"),
)
HARMLESS = frozenset((*_SHAPES, *_SHAPED_AS, *_ANSWERS, *_INDICES, *_ATTRIBUTES))
# Of these each result belongs to one argument, which may be a constant; others may only lend their shape.
ONE_BY_ONE = (
    *("broadcast_tensors", "meshgrid", "atleast_1d", "atleast_2d", "atleast_3d"),
    *("expand_as", "view_as", "reshape_as", "resize_as"),
)


def is_harmless(name: str) -> bool:
    return name in HARMLESS or (name.startswith("is_") and name != "is_nonzero")
