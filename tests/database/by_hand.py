"""Calls of overloads that no entry of torch's database reaches, to be tried like its samples."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pack_padded_sequence

NO_CPU = ("_cudnn_rnn_flatten_weight", "_thnn_fused_gru_cell", "_thnn_fused_lstm_cell")  # torch has none for it


@dataclass(frozen=True)
class Call:
    """A call in the place of a sample."""

    name: str
    function: Callable[..., Any]
    inputs: tuple[Tensor, ...]
    in_place: bool = True  # takes no ``out=``

    def __str__(self) -> str:
        return f"{self.name} by hand {str(self.inputs[0].dtype).removeprefix('torch.')}"

    def forward(self) -> Any:
        return self.function(*self.inputs)

    @property
    def tensors(self) -> list[Tensor]:
        return list(self.inputs)


def _x(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    count = torch.Size(shape).numel()
    return torch.linspace(-2, 2.5, count, dtype=dtype).reshape(shape).requires_grad_()


def _layer(kind: Callable[..., Any], packed: bool, **options: Any) -> Callable[[Tensor], Any]:
    layer = kind(3, 2, **options)
    for parameter in layer.parameters():
        parameter.data = torch.linspace(-1, 1, parameter.numel()).reshape(parameter.shape)

    def run(x: Tensor) -> Any:
        return layer(pack_padded_sequence(x, [2, 1]))[0].data if packed else layer(x)[0]

    return run


def _bags(x: Tensor) -> Tensor:
    return torch.ops.aten._embedding_bag_forward_only(x.detach(), torch.arange(3), torch.tensor([0, 2]))[0]


def _ctc(x: Tensor) -> Tensor:
    lengths = torch.tensor([3, 3])
    return torch.ops.aten._ctc_loss.Tensor(x.log_softmax(2), torch.tensor([[1, 2], [2, 1]]), lengths, lengths - 1)[0]


def _observed(x: Tensor) -> Tensor:
    state = torch.ones(1), torch.ones(1), torch.tensor([-1.0]), torch.tensor([1.0])
    on, scale, zero = torch.ones(1, dtype=torch.long), torch.tensor([0.1]), torch.zeros(1, dtype=torch.int32)
    return torch.fused_moving_avg_obs_fake_quant(x, on, on, state[2], state[3], scale, zero, 0.01, 0, 255, -1)


def _of_list(name: str, kind: str, x: Tensor) -> Any:
    tensors = [x.clone(), 2 * x]
    others = {"default": (), "Scalar": (0.5,), "ScalarList": ([0.5, 1.0],), "List": ([-x.detach(), x.detach()],)}[kind]
    found = getattr(getattr(torch.ops.aten, name), kind)(tensors, *others)
    return tensors if found is None else found


ONE: dict[str, Callable[[Tensor], Any]] = {
    "clamp_max": lambda x: torch.clamp_max(x, 0.5),
    "clamp_max_": lambda x: x.clone().clamp_max_(0.5),
    "copysign.Scalar": lambda x: torch.copysign(x, -1.0),
    "copysign_.Scalar": lambda x: x.clone().copysign_(-1.0),
    "div.Scalar_mode": lambda x: torch.ops.aten.div.Scalar_mode(x, 2.0, rounding_mode="floor"),
    "div_.Scalar_mode": lambda x: torch.ops.aten.div_.Scalar_mode(x.clone(), 2.0, rounding_mode="floor"),
    "div.Tensor_mode, a number": lambda x: torch.div(x, 0.7, rounding_mode="floor") + x,
    "div_.Tensor_mode, a number": lambda x: x.clone().div_(0.7, rounding_mode="trunc") + x,
    **{f"{name}.Scalar": lambda x, name=name: getattr(x.clone(), name)(0.5) + x for name in ("gt_", "ge_", "lt_")},
    **{f"{name}.Scalar": lambda x, name=name: getattr(x.clone(), name)(0.5) + x for name in ("le_", "eq_", "ne_")},
    "fmod.Scalar": lambda x: torch.fmod(x, 0.7),
    "remainder_.Scalar": lambda x: x.clone().remainder_(0.7),
    "pow_.Scalar": lambda x: (x * 1).pow_(3),
    "norm of order 3": lambda x: x.norm(p=3),
    "hardswish_": lambda x: F.hardswish(x.clone(), inplace=True),
    "hardtanh_": lambda x: F.hardtanh_(x.clone()),
    "relu_": lambda x: x.clone().relu_(),
    "relu6_": lambda x: torch.ops.aten.relu6_(x.clone()),
    "quantile": lambda x: torch.quantile(x, torch.tensor([0.3, 0.5], dtype=x.dtype)),
    "nanquantile": lambda x: torch.nanquantile(x, torch.tensor([0.3, 0.5], dtype=x.dtype)),
    "_euclidean_dist": lambda x: torch.ops.aten._euclidean_dist(x.reshape(-1, 2), x.reshape(-1, 2) + 1),
}
LISTS: dict[str, Callable[[Tensor], Any]] = {
    f"_foreach_{name}{'_' if written else ''}.{kind}": partial(
        _of_list, f"_foreach_{name}{'_' if written else ''}", kind
    )
    for name, kinds in {
        "abs": ("default",),
        **dict.fromkeys(("clamp_min", "clamp_max", "maximum", "minimum"), ("Scalar", "ScalarList", "List")),
    }.items()
    for kind in kinds
    for written in (False, True)
}
QUANTISED: dict[str, Callable[[Tensor], Any]] = {
    "per tensor": lambda x: torch.fake_quantize_per_tensor_affine(x, 0.1, 0, -10, 10),
    "tensors": lambda x: torch.fake_quantize_per_tensor_affine(x, torch.tensor(0.1), torch.tensor(0), -10, 10),
    "per channel": lambda x: torch.fake_quantize_per_channel_affine(
        x, torch.full((6,), 0.1), torch.zeros(6, dtype=torch.int32), 0, -10, 10
    ),
    "learnable": lambda x: torch._fake_quantize_learnable_per_tensor_affine(
        x, torch.tensor([0.1]), torch.tensor([0.0]), -10, 10
    ),
    "observed": _observed,
}


def calls() -> list[Call]:
    """All of them, in both types where torch has them."""
    found = [
        Call(name, run, (_x(6, dtype=dtype),)) for name, run in ONE.items() for dtype in (torch.float32, torch.float64)
    ]
    found += [Call(name, run, (_x(6),)) for name, run in LISTS.items()]
    found += [Call(f"fake_quantize, {name}", run, (_x(6),)) for name, run in QUANTISED.items()]
    found.append(Call("_ctc_loss.Tensor", _ctc, (_x(3, 2, 3),)))
    found.append(Call("_embedding_bag_forward_only", _bags, (_x(3, 2),)))
    layers = {"lstm": (torch.nn.LSTM, {}), "gru": (torch.nn.GRU, {}), "rnn_tanh": (torch.nn.RNN, {})}
    layers["rnn_relu"] = (torch.nn.RNN, {"nonlinearity": "relu"})
    for name, (kind, options) in layers.items():
        for packed in (False, True):
            run = _layer(kind, packed, **options)
            found.append(Call(f"{name}{'.data' if packed else '.input'}", run, (_x(2, 2, 3),)))
    return found
