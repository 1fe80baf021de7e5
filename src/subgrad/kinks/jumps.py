"""Places without any generalised derivative: torch returns a number there all the same, and no convention can."""

from __future__ import annotations

from subgrad.kinks.kink import Kink
from subgrad.kinks.sets import Jump

SURROGATE = Jump("jump; torch returns a straight-through slope", along=None)

HALF = "self / scale - (self / scale).floor() == 0.5"
HALF_OF_CHANNELS = "self.movedim(axis, -1) / scale - (self.movedim(axis, -1) / scale).floor() == 0.5"

# fmt: off
# ruff: noqa: E501
JUMPS = (
    Kink("floor",             "self == self.floor()",                       Jump()),
    Kink("ceil",              "self == self.ceil()",                        Jump()),
    Kink("trunc",             "self == self.trunc()",                       Jump()),
    Kink("frac",              "self == self.trunc()",                       Jump()),
    Kink("round",             "self - self.floor() == 0.5",                 Jump()),
    Kink("round.decimals",    "self * 10**decimals - (self * 10**decimals).floor() == 0.5", Jump()),
    Kink("remainder.Tensor",  "torch.remainder(self, other) == 0",          Jump()),
    Kink("remainder.Scalar",  "torch.remainder(self, other) == 0",          Jump()),
    Kink("fmod.Tensor",       "torch.fmod(self, other) == 0",               Jump()),
    Kink("fmod.Scalar",       "torch.fmod(self, other) == 0",               Jump()),
    Kink("div.Tensor_mode",   "self / other == (self / other).round()",     Jump(), when="rounding_mode is not None"),
    Kink("div.Scalar_mode",   "self / other == (self / other).round()",     Jump(), when="rounding_mode is not None"),
    Kink("sign",              "self == 0",                                  Jump()),
    Kink("sgn",               "self == 0",                                  Jump()),
    Kink("heaviside",         "self == 0",                                  Jump(derived=False)),
    Kink("hardshrink",        "self.abs() == lambd",                        Jump(), when="lambd > 0"),
    Kink("frexp.Tensor",      "(self == 0) | (torch.frexp(self).mantissa.abs() == 0.5)", Jump(along=None)),
    Kink("softplus",          "self * beta == threshold",                   Jump("jump by what is left out beyond the threshold")),
    Kink("copysign.Tensor",   "(other == 0) & (self != 0)",                 Jump(along="other")),
    Kink("where.self",        "self != other",                              Jump("jump in what the condition compares", along="condition")),
    Kink("atan2",             "(self == 0) & (other < 0)",                  Jump(along=None)),
    Kink("angle",             "self == 0",                                  Jump()),
    Kink("pow.Scalar",        "exponent == 0",                              Jump(along=None), when="self == 0"),
    Kink("fake_quantize_per_tensor_affine_cachemask",  HALF, SURROGATE),
    Kink("fake_quantize_per_channel_affine_cachemask", HALF_OF_CHANNELS,    SURROGATE),
    Kink("_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", HALF, SURROGATE),
    Kink("_fused_moving_avg_obs_fq_helper", HALF,                           SURROGATE),
    Kink("_fake_quantize_learnable_per_tensor_affine", HALF, SURROGATE),
)
# fmt: on
