"""Whether windows of `max_pool2d` hold ties, and which of the tied entries gets ahead: by device."""

from __future__ import annotations

from torch import Tensor

from subgrad.apply.call import Arguments
from subgrad.kernels.cpu_window_scan import OnCpu
from subgrad.kernels.cuda_window_scan import OnCuda


class WindowScan:
    """See `ForWindows`."""

    cpu, cuda = OnCpu(), OnCuda()

    def ties(self, x: Tensor, arguments: Arguments) -> Tensor | None:
        return (self.cpu if x.is_cpu else self.cuda).ties(x, arguments)

    def ahead(
        self, x: Tensor, tangent: Tensor, values: Tensor, indices: Tensor, arguments: Arguments, last: bool
    ) -> tuple[Tensor, Tensor, Tensor] | None:
        on = self.cpu if x.is_cpu else self.cuda
        return on.ahead(x, tangent, values, indices, arguments, last)
