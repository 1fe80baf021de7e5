"""Fast: torch's own fused kernels and bit masks, where they give the chosen gradient to the bit."""

from subgrad.apply import dispatch, executors, fake_quantize, scans
from subgrad.kernels.compiled_mask import CompiledMask
from subgrad.kernels.cpu_mask import CpuMask
from subgrad.kernels.cuda_bitmask import CudaBitmask, set_packed
from subgrad.kernels.cuda_corner_scan import count_at
from subgrad.kernels.cuda_corners import CudaCorners
from subgrad.kernels.max_pool import MaxPool
from subgrad.kernels.native.build import set_front
from subgrad.kernels.native.planner import fast_paths, paths_around_python
from subgrad.kernels.packed_mask import PackedMask
from subgrad.kernels.window_scan import WindowScan

__all__ = ["set_front", "set_packed"]

# Asked before those that `dispatch` names: torch's own kernel, and the general rules.
executors.EXECUTORS[:0] = [CudaBitmask(), CudaCorners(), MaxPool(), CpuMask(), CompiledMask()]
fake_quantize.keeping.append(PackedMask())
scans.for_windows, scans.for_corners = WindowScan(), count_at
dispatch.fast_paths.append(fast_paths)
dispatch.paths_around_python.append(paths_around_python)


def __dir__() -> list[str]:
    return sorted(__all__)
