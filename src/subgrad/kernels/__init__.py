"""Fast: torch's own fused kernels and bit masks, where they give the chosen gradient to the bit."""

from subgrad.apply import dispatch, executors, fake_quantize
from subgrad.apply.strong_zero import spare as strong_zeros
from subgrad.kernels.compiled_mask import CompiledMask
from subgrad.kernels.compiled_max_pool import CompiledMaxPool
from subgrad.kernels.cpu_mask import CpuMask
from subgrad.kernels.cuda_bitmask import CudaBitmask, set_packed
from subgrad.kernels.cuda_corners import CudaCorners
from subgrad.kernels.cuda_strong_zero import spare
from subgrad.kernels.max_pool import MaxPool
from subgrad.kernels.native.build import set_front
from subgrad.kernels.native.planner import fast_paths, paths_around_python
from subgrad.kernels.packed_mask import PackedMask

__all__ = ["set_front", "set_packed"]

# Asked before those that `dispatch` names: torch's own kernel, and the general rules.
executors.EXECUTORS[:0] = [CudaBitmask(), CudaCorners(), MaxPool(), CpuMask(), CompiledMask(), CompiledMaxPool()]
fake_quantize.keeping.append(PackedMask())
strong_zeros.for_cuda = spare
dispatch.fast_paths.append(fast_paths)
dispatch.paths_around_python.append(paths_around_python)


def __dir__() -> list[str]:
    return sorted(__all__)
