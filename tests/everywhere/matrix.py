"""The matrix: every capability under every convention with every family, as an outcome in words."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor
from torch.torch_version import TorchVersion

import subgrad
from everywhere.capabilities import CAPABILITIES
from everywhere.families import FAMILIES
from subgrad.conventions import RULES

OWN = subgrad.Convention("min-norm", clamp=0.25, relu=1.0)
CONVENTIONS = {**{name: subgrad.Convention(name) for name in RULES}, repr(OWN): OWN}
# The last two at fmax, which those have not.
LEFT_TO_TORCH = ("torch", "pass-through", "straight-through", "tensorflow", "mlx")
PASS = "yes"
# Rounding of 16 bits; what another convention would give is further away.
TOLERANCES = {name: 0.02 for name in CAPABILITIES if "autocast" in name}


@lru_cache
def expected(family: str, convention: subgrad.Convention, device: str = "cpu") -> list[Tensor]:
    """The gradients in eager code, which the other tests hold against the table."""
    return [each.cpu() for each in CAPABILITIES["reverse mode"](FAMILIES[family].on(device), convention)]


def disagrees_with_itself(capability: str) -> bool:
    """At ties, torch's forward mode from its reverse mode, up to 2.13."""
    return "forward mode" in capability and TorchVersion(torch.__version__) < "2.14"


def outcome(capability: str, convention: str, family: str, device: str = "cpu") -> str:
    """What came of it: the expected gradients, a refusal of ours, or of plain torch; any other gradient raises."""
    run, program, chosen = CAPABILITIES[capability], FAMILIES[family].on(device), CONVENTIONS[convention]
    torch.compiler.reset()
    try:
        found = run(program, chosen)
    except Exception as error:
        if _is_refusal(error):
            return "refused"
        try:
            run(program, subgrad.Convention("torch"))
        except Exception as plain:
            return f"torch itself: {type(plain).__name__}"
        raise
    for one, other in zip(found, expected(family, chosen, device), strict=True):
        kept = ~other.isnan()  # of hypot at 0, where the convention leaves it to torch
        tolerance = TOLERANCES.get(capability, 1e-6)
        torch.testing.assert_close(one.cpu()[kept], other[kept], rtol=0, atol=tolerance)
    return PASS


def _is_refusal(error: BaseException | None) -> bool:
    while error is not None and "has no rule for tensors of these layouts" not in str(error):
        error = error.__cause__
    return error is not None
