"""Private names of torch: fake quantisation whose scale and zero point are tensors."""

from __future__ import annotations

from subgrad.torch_internals.lookup import private

# fmt: off
# ruff: noqa: E501
learned_by_tensor = private("torch:_fake_quantize_learnable_per_tensor_affine", "values of a learned scale and zero point")
learned_by_channel = private("torch:_fake_quantize_learnable_per_channel_affine", "values of learned scales and zero points by channel")
tensors_with_mask = private("torch:ops.aten._fake_quantize_per_tensor_affine_cachemask_tensor_qparams", "values of a scale and zero point that are tensors, and which entries are not cut off")
# fmt: on
