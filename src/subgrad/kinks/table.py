"""The table: every kink, one a line. Facts only; each is checked against the forward function by one-sided differences.

Here those that bend entry by entry; in `joint` those of many entries at once, in `jumps` what has no derivative at all, in
`poles` what has an infinite one.

Columns are explained at ``Kink``. ``torch`` is what reverse mode returns, up to 2.13 and since 2.14 where it changed.
"""

from __future__ import annotations

from subgrad.kinks.joint import JOINT
from subgrad.kinks.jumps import JUMPS
from subgrad.kinks.kink import Kink, Table
from subgrad.kinks.poles import POLES
from subgrad.kinks.sets import Ball, Jump, Slopes, Ties

INSIDE_BELOW = {"2.13": "right", "2.14": "left"}  # a lower bound passed the gradient until 2.13 and blocks it since
INSIDE_ABOVE = {"2.13": "left", "2.14": "right"}
CLOSED = {"2.13": 1.0, "2.14": 0.0}  # both bounds equal: constant, yet 2.13 passed the gradient
SELF_OR_MIN = {"2.13": ("self",), "2.14": ("self", "min")}
SELF_OR_MAX = {"2.13": ("self",), "2.14": ("self", "max")}
SELF_OR_OTHER = {"2.13": ("self",), "2.14": ("self", "other")}

BOTH = "min is not None and max is not None"

# min(max(self, min), max) where all three are equal: who is selected once one of them is moved.
CLAMPED = Ties(
    {"self": (("min", "max"), ("max",)), "min": (("self", "max"), ("max",)), "max": (("max",), ("self", "min"))}
)

# fmt: off
# ruff: noqa: E501
ENTRYWISE = (
    # corners at zero
    Kink("relu",             "0",         Slopes(0.0, 1.0),                            "left"),
    Kink("abs",              "0",         Slopes(-1.0, 1.0),                           0.0),
    Kink("leaky_relu",       "0",         Slopes("negative_slope", 1.0),               "left"),
    Kink("_prelu_kernel",    "0",         Slopes("weight", 1.0),                       None),  # left in reverse mode, right in forward mode and second order
    Kink("rrelu_with_noise", "0",         Slopes("(lower + upper) / 2", 1.0),          "left",       when="not training"),
    Kink("rrelu_with_noise", "0",         Slopes("noise", 1.0),                        "left",       when="training"),
    Kink("elu",              "0",         Slopes("alpha * scale * input_scale", "scale"), "left"),
    Kink("celu",             "0",         Slopes(1.0, 1.0),                            "left"),
    Kink("special_i0e",      "0",         Slopes(1.0, -1.0),                           0.0),
    Kink("copysign.Tensor",  "0",         Slopes("-sign_of(other)", "sign_of(other)"),         0.0),
    Kink("copysign.Scalar",  "0",         Slopes("-sign_of(other)", "sign_of(other)"),         0.0),
    Kink("selu",             "0",         Slopes(1.7580993408473766, 1.0507009873554805), "left"),

    # corners at bounds
    Kink("relu6",            "0",         Slopes(0.0, 1.0),                            "left"),
    Kink("relu6",            "6",         Slopes(1.0, 0.0),                            "right"),
    Kink("hardtanh",         "min_val",   Slopes(0.0, 1.0),                            "left",       when="min_val < max_val"),
    Kink("hardtanh",         "max_val",   Slopes(1.0, 0.0),                            "right",      when="min_val < max_val"),
    Kink("hardtanh",         "max_val",   Slopes(0.0, 0.0),                            "left",       when="min_val == max_val"),
    Kink("hardsigmoid",      "-3",        Slopes(0.0, 1 / 6),                          "left"),
    Kink("hardsigmoid",      "3",         Slopes(1 / 6, 0.0),                          "right"),
    Kink("hardswish",        "-3",        Slopes(0.0, -0.5),                           "left"),
    Kink("hardswish",        "3",         Slopes(1.5, 1.0),                            "right"),
    Kink("softshrink",       "-lambd",    Slopes(1.0, 0.0),                            "right",      when="lambd > 0"),
    Kink("softshrink",       "lambd",     Slopes(0.0, 1.0),                            "left",       when="lambd > 0"),
    Kink("softshrink",       "lambd",     Slopes(1.0, 1.0),                            0.0,          when="lambd == 0"),
    Kink("logit",            "eps",       Slopes(0.0, "1 / (eps * (1 - eps))"),        "right",      when="eps is not None and 0 < eps < 0.5"),
    Kink("logit",            "1 - eps",   Slopes("1 / (eps * (1 - eps))", 0.0),        "left",       when="eps is not None and 0 < eps < 0.5"),
    Kink("logit",            "self == eps", Jump(),                                                  when="eps is not None and eps > 0.5"),
    Kink("threshold",        "threshold", Slopes(0.0, 1.0),                            "left",       when="value == threshold"),
    Kink("threshold",        "self == threshold", Jump(),                                            when="value != threshold"),

    # clamp and its relatives with numbers as bounds
    Kink("clamp",            "min",       Slopes(0.0, 1.0),                            INSIDE_BELOW, when="min is not None and (max is None or min < max)", family="clamp"),
    Kink("clamp",            "max",       Slopes(1.0, 0.0),                            INSIDE_ABOVE, when="max is not None and (min is None or min < max)", family="clamp"),
    Kink("clamp",            "max",       Slopes(0.0, 0.0),                            CLOSED,       when="min == max", family="clamp"),
    Kink("clamp_min",        "min",       Slopes(0.0, 1.0),                            INSIDE_BELOW, family="clamp"),
    Kink("clamp_max",        "max",       Slopes(1.0, 0.0),                            INSIDE_ABOVE, family="clamp"),

    # selections between tensors
    Kink("maximum",          "self == other", Ties.largest("self", "other"),           ("self", "other")),
    Kink("minimum",          "self == other", Ties.smallest("self", "other"),          ("self", "other")),
    Kink("fmax",             "self == other", Ties.largest("self", "other"),           SELF_OR_OTHER),
    Kink("fmin",             "self == other", Ties.smallest("self", "other"),          SELF_OR_OTHER),
    Kink("clamp_min.Tensor", "self == min",   Ties.largest("self", "min"),             SELF_OR_MIN,  family="clamp"),
    Kink("clamp_max.Tensor", "self == max",   Ties.smallest("self", "max"),            SELF_OR_MAX,  family="clamp"),
    Kink("clamp.Tensor",     "self == min",   Ties.largest("self", "min"),             SELF_OR_MIN,  when="max is None", family="clamp"),
    Kink("clamp.Tensor",     "self == max",   Ties.smallest("self", "max"),            SELF_OR_MAX,  when="min is None", family="clamp"),
    Kink("clamp.Tensor",     "(self == min) & (min < max)", Ties.largest("self", "min"),  SELF_OR_MIN, when=BOTH, family="clamp"),
    Kink("clamp.Tensor",     "(self == max) & (min < max)", Ties.smallest("self", "max"), SELF_OR_MAX, when=BOTH, family="clamp"),
    Kink("clamp.Tensor",     "(self < min) & (min == max)", Ties.smallest("min", "max"), {"2.13": (), "2.14": ("min",)}, when=BOTH),
    Kink("clamp.Tensor",     "(self == min) & (min == max)", CLAMPED,                  ("self",),    when=BOTH, family="clamp"),

    # norms at zero
    Kink("hypot",            "(self == 0) & (other == 0)", Ball(("self", "other")),    None),
)
# fmt: on

KINKS = Table((*ENTRYWISE, *JOINT, *JUMPS, *POLES))

# Composite operators with kinks of their own: what they call, and with which arguments.
COMPOSITES = {
    "relu6": ("hardtanh", {"min_val": 0, "max_val": 6}),
    "selu": ("elu", {"alpha": 1.6732632423543772, "scale": 1.0507009873554805}),
}
