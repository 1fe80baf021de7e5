"""Fast: torch's own fused kernels and bit masks, where they give the chosen gradient to the bit."""

from subgrad.apply import dispatch, executors, shortcuts
from subgrad.kernels.compiled_mask import CompiledMask
from subgrad.kernels.cpu_hardtanh import CpuHardtanh
from subgrad.kernels.cuda_bitmask import CudaBitmask, set_packed
from subgrad.kernels.front import fast_paths, set_front
from subgrad.kernels.max_pool import MaxPool
from subgrad.kernels.windows import OnCuda

__all__ = ["set_front", "set_packed"]

# Asked before those that `dispatch` names: torch's own kernel, and the general rules.
executors.EXECUTORS[:0] = [CudaBitmask(), MaxPool(), CpuHardtanh(), CompiledMask()]
shortcuts.offer_for_windows(OnCuda())
dispatch.fast_paths.append(fast_paths)
