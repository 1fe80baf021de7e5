"""Samples of every row: calls whose tensors lie on each kink, on both sides of it, and away from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import torch

from subgrad.kinks.expressions import Expression, evaluate
from subgrad.kinks.joint_samples import JOINT_CALLS, Float32, Int32
from subgrad.kinks.kink import Kink
from subgrad.kinks.overloads import argument_names, tensor_names, with_defaults
from subgrad.kinks.sets import Jump, Pole, Slopes
from subgrad.kinks.table import KINKS

# The arguments besides the tensors that the kinks pick from, one call each.
CALLS: dict[str, tuple[Mapping[str, Any], ...]] = {
    "relu": ({},),
    "abs": ({},),
    "leaky_relu": tuple({"negative_slope": slope} for slope in (0.01, 0.0, 1.0, 2.0, -0.2)),
    "_prelu_kernel": tuple({"weight": weight} for weight in (0.25, 0.0, 1.0, 2.0, -0.2)),
    "rrelu_with_noise": (
        {"lower": 0.125, "upper": 0.375, "training": False},
        {"lower": 0.125, "upper": 0.375, "training": True},
    ),
    "elu": (
        {"alpha": 1.0, "scale": 1, "input_scale": 1},
        {"alpha": 2.0, "scale": 1, "input_scale": 1},
        {"alpha": 0.5, "scale": 1.5, "input_scale": 0.75},
    ),
    "celu": ({"alpha": 1.0}, {"alpha": 2.0}),
    "selu": ({},),
    "special_i0e": ({},),
    "copysign.Tensor": tuple({"other": other} for other in (2.0, -2.0, 0.0)),
    "copysign.Scalar": tuple({"other": other} for other in (2.0, -2.0)),
    "relu6": ({},),
    "hardtanh": tuple(
        {"min_val": low, "max_val": high} for low, high in ((-1.0, 1.0), (0, 6), (-0.7, 0.7), (0.5, 0.5))
    ),
    "hardsigmoid": ({},),
    "hardswish": ({},),
    "softshrink": ({"lambd": 0.5}, {"lambd": 0.0}),
    "threshold": tuple({"threshold": at, "value": value} for at, value in ((0.0, 0.0), (0.7, 0.7), (0.0, -1.0))),
    "logit": ({"eps": 0.25}, {"eps": 0.75}),
    "clamp": tuple(
        {"min": low, "max": high}
        for low, high in ((0, 6), (-1.0, 1.0), (0.5, None), (None, 0.5), (0.5, 0.5), (1.0, -1.0))
    ),
    "clamp_min": ({"min": 0}, {"min": 0.5}),
    "clamp_max": ({"max": 0}, {"max": 0.5}),
    "maximum": ({},),
    "minimum": ({},),
    "fmax": ({},),
    "fmin": ({},),
    "clamp_min.Tensor": ({},),
    "clamp_max.Tensor": ({},),
    "clamp.Tensor": ({}, {"max": None}, {"min": None}),
    "hypot": ({},),
}

# Further calls, which meet infinite slopes alone: there is nothing to choose.
STEEP_CALLS: dict[str, tuple[Mapping[str, Any], ...]] = {"logit": ({"eps": None},)}

# Where operators that are not torch's are called, if that is not the CPU.
DEVICES: dict[str, torch.device | str] = {}

FAR = (-7.0, 9.0)
BESIDE = 0.25
TIED = (-1.0, 0.0, 2.0)


def samples(op: str, dtype: torch.dtype = torch.float64, steep: bool = False) -> Iterator[dict[str, Any]]:
    """Complete arguments of calls of an overload, tensors included; ``steep`` adds those with infinite slopes alone."""
    if op in CALLS:
        for call in (*CALLS[op], *(STEEP_CALLS.get(op, ()) if steep else ())):
            yield filled(KINKS.of_overload(op), call, dtype, DEVICES.get(op, "cpu"))
    else:
        for call in JOINT_CALLS[op]:
            given = {name: _tensor(value, dtype) if isinstance(value, tuple) else value for name, value in call.items()}
            yield with_defaults(op, given)


def _tensor(entries: tuple[Any, ...], dtype: torch.dtype) -> torch.Tensor:
    for kind, fixed in ((Float32, torch.float32), (Int32, torch.int32)):
        if isinstance(entries, kind):
            return torch.tensor(entries, dtype=fixed)
    made = torch.tensor(entries)
    return torch.tensor(entries, dtype=dtype) if made.is_floating_point() else made


def filled(
    kinks: Sequence[Kink], call: Mapping[str, Any], dtype: torch.dtype, device: torch.device | str = "cpu"
) -> dict[str, Any]:
    """A call of the operator that some kinks are those of, with tensors that lie on and around them."""
    op = kinks[0].op
    operands = [name for name in _candidates(kinks) if name not in call]
    if operands == ["self"]:
        places = {evaluate(kink.at, call) for kink in kinks if isinstance(kink.set, Slopes) and kink.applies(call)}
        places |= {number for number in call.values() if isinstance(number, int | float)}
        places |= {evaluate(_number(kink), call) for kink in kinks if isinstance(kink.set, Pole) and kink.applies(call)}
        columns = [[*sorted({point for place in places for point in _around(place)}), *FAR, -0.0]]
    else:
        columns = list(zip(*product(TIED, repeat=len(operands)), strict=True))
    made = zip(operands, columns, strict=True)
    tensors = {name: torch.tensor(column, dtype=dtype, device=device) for name, column in made}
    for name in tensor_names(op):  # the weight of prelu, the noise of rrelu: tensors shaped like `self`
        if name not in operands and call.get(name, 0.0) is not None:
            tensors[name] = torch.full_like(tensors["self"], call.get(name, 0.0))
    ordered = {**call, **tensors}
    return {name: ordered[name] for name in argument_names(op) if name in ordered}


def _number(kink: Kink) -> Expression:
    """Where the pole of a function of one number lies."""
    return kink.at.removeprefix("self == ")


def _around(place: float) -> tuple[float, float, float]:
    return (place - BESIDE, place, place + BESIDE)


def _candidates(kinks: Sequence[Kink]) -> list[str]:
    if any(isinstance(kink.set, Slopes | Jump) for kink in kinks):
        return ["self"]
    return list(dict.fromkeys(name for kink in kinks for name in kink.set.candidates))
