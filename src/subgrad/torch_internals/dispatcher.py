"""Private names of torch: dispatch keys, the kernels behind them, operators that torch itself calls."""

from __future__ import annotations

from subgrad.torch_internals.lookup import attribute, method, private

# fmt: off
# ruff: noqa: E501
schema_of = attribute("torch:ops.aten.relu.default._schema", "the arguments of an overload, and their defaults")

# keys
DispatchKey = private("torch._C:DispatchKey", "the keys by which an operator finds its kernel")
DispatchKeySet = private("torch._C:DispatchKeySet", "a set of keys")
ExcludeDispatchKeyGuard = private("torch._C:_ExcludeDispatchKeyGuard", "calls operators past the kernels of some keys")
dispatch_key_parse = private("torch._C:_dispatch_key_parse", "a key from its name")
dispatch_keys = private("torch._C:_dispatch_keys", "the keys of a tensor")
is_key_included = private("torch._C:_dispatch_tls_is_dispatch_key_included", "whether calls of this thread go through a key that no tensor has")
set_key_included = private("torch._C:_dispatch_tls_set_dispatch_key_included", "sends calls of this thread through a key, or no longer")

# kernels
has_kernel = private("torch._C:_dispatch_has_kernel", "whether an operator is known")
has_kernel_for_key = private("torch._C:_dispatch_has_kernel_for_dispatch_key", "whether an operator has a kernel of its own for a key")
destroy_library = method("torch.library:Library._destroy", "takes away the kernels that a library has registered")
uncache_dispatch = private("torch._ops:OpOverload._uncache_dispatch", "makes an overload look its kernel up again")
allows_numbers_as_tensors = private("torch._C:_should_allow_numbers_as_tensors", "whether an operator takes a number where its schema says tensor")
higher_order_ops = private("torch._ops:_higher_order_ops", "the operators that take functions, by name")
higher_order_fallthrough_keys = private("torch._ops:_HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS", "the keys that such operators, if made later, have no kernel for")
disable_autocast = private("torch._C:_DisableAutocast", "runs operators in the precision that their operands have")

# operators
embedding_bag = private("torch:ops.aten._embedding_bag", "what torch.nn.functional.embedding_bag calls")
batch_norm_impl_index = private("torch:ops.aten._batch_norm_impl_index", "what torch.nn.functional.batch_norm calls: which implementation, and its statistics")
fused_sdp_choice = private("torch:ops.aten._fused_sdp_choice", "which implementation of attention torch would take")
# fmt: on
