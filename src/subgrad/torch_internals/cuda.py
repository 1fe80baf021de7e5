"""Private names of torch: launching kernels on CUDA. A torch that is built without CUDA has none of them."""

from __future__ import annotations

from subgrad.torch_internals.lookup import private

# fmt: off
# ruff: noqa: E501
launch_kernel = private("torch._C:_StaticCudaLauncher._launch_kernel", "launches a kernel that Triton has compiled, without a frame of Python")
current_stream = private("torch._C:_cuda_getCurrentRawStream", "the stream of a device that is in use, as a number")
current_device = private("torch._C:_cuda_getDevice", "the number of the device that is in use")
# fmt: on
