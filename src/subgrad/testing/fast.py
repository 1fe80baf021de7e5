"""Products with random vectors instead of all entries: a first look, after which a function is in doubt or not."""

from __future__ import annotations

import torch
from torch import Tensor

from subgrad.testing.neighbourhood import STEPS
from subgrad.testing.program import Program, nonconstant
from subgrad.testing.tolerance import Tolerance

DIRECTIONS, POINTS = 3, 8


def is_doubtful(program: Program, tolerance: Tolerance) -> bool:
    """Whether products of the gradient with some direction lie outside of what the values nearby allow.

    For an element g and a direction v, <g, v> is at most the largest slope along v nearby. For a result with several
    entries, weighed by a cotangent, the largest slopes of the entries add up.
    """
    cotangent, other = (nonconstant(program.size, program.generator) for _ in range(2))
    tape = program.run()
    gradient = tape.pulled(cotangent)
    if not bool(gradient.isfinite().all()) or not bool(program.value.isfinite().all()):
        return True
    together = tape.pulled(cotangent + other) - tape.pulled(other)
    if not bool(((together - gradient).abs() <= tolerance.of(gradient)).all()):
        return True
    return any(_is_outside(program, tolerance, gradient, cotangent) for _ in range(DIRECTIONS))


def _is_outside(program: Program, tolerance: Tolerance, gradient: Tensor, cotangent: Tensor) -> bool:
    scale = torch.where(program.here.isfinite(), tolerance.eps * program.here.abs().clamp(min=1), 0)
    along = 2 * torch.rand(len(scale), generator=program.generator, dtype=torch.float64) - 1
    noise = [2 * torch.rand(len(scale), generator=program.generator, dtype=torch.float64) - 1 for _ in range(POINTS)]
    weighed = []
    for place in (along + 0.01 * noise[0], -along + 0.01 * noise[1], *noise):
        vector = program.inputs.rounded(program.here + scale * place) if bool(scale.all()) else program.here
        ends = [program.value_at(program.inputs.rounded(vector + sign * STEPS[1] * scale * along)) for sign in (1, -1)]
        weighed.append(cotangent * (ends[0] - ends[1]) / (2 * STEPS[1]))
        said = program.run(vector).pulled(cotangent) * scale
        allowed = float(tolerance.of(said / scale.clamp(min=1e-300)) @ (scale * along).abs())
        size = 16 * tolerance.rounding * float((cotangent * program.value).abs().sum()) / STEPS[1]
        if not abs(float(said @ along) - float(weighed[-1].sum())) <= allowed + size + 1e-9 * float(said.abs().sum()):
            return True
    slopes = torch.stack(weighed)
    product = float((gradient * scale) @ along)
    allowed = float(tolerance.of(gradient) @ (scale * along).abs())
    return not float(slopes.amin(0).sum()) - allowed <= product <= float(slopes.amax(0).sum()) + allowed
