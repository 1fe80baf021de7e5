"""A training step of a fake-quantised mobilenet_v2 with subgrad's operator and with torch's; hardtanh against tanh.

python benchmarks/qat.py --device cuda --json benchmarks/records/qat_h200.json      # about a minute
python benchmarks/qat.py --device cpu --tiny                                        # to see that it runs

Torchvision's own mobilenet_v2, 8 bits: weights by channel, the network's input and the results of its activations by
tensor. Peaks are taken with one model at a time, times by turns.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torchvision
from torch import Tensor, nn
from torch.nn import functional as F

import subgrad

Quantise = Callable[..., Tensor]  # of a tensor, a scale, a zero point, the first and the last level, and an axis


def by_torch(x: Tensor, scale: Any, zero_point: Any, first: int, last: int, axis: int | None = None) -> Tensor:
    if axis is None:
        return torch.fake_quantize_per_tensor_affine(x, scale, zero_point, first, last)
    return torch.fake_quantize_per_channel_affine(x, scale, zero_point, axis, first, last)


def by_subgrad(convention: str) -> Quantise:
    return partial(subgrad.functional.fake_quantize, convention=convention)


VARIANTS: dict[str, tuple[Quantise, str]] = {  # and the convention in force
    "torch": (by_torch, "torch"),
    "subgrad, straight-through": (by_subgrad("straight-through"), "straight-through"),
    "subgrad, pass-through": (by_subgrad("pass-through"), "pass-through"),
}


class QuantisedConv(nn.Module):
    """A convolution with weights of 8 bits, each channel with the scale of its largest."""

    def __init__(self, conv: nn.Conv2d, quantise: Quantise):
        super().__init__()
        self.conv, self.quantise = conv, quantise
        self.register_buffer("zero_point", torch.zeros(conv.out_channels, dtype=torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        conv, weight = self.conv, self.conv.weight
        scale = weight.detach().abs().amax((1, 2, 3)).float().clamp_min(1e-8) / 127
        held = self.quantise(weight, scale, self.zero_point, -128, 127, 0)
        return F.conv2d(x, held, conv.bias, conv.stride, conv.padding, conv.dilation, conv.groups)


class QuantisedActivation(nn.Module):
    """ReLU6 and its result in 8 bits, of which the last level stands for 6."""

    def __init__(self, activation: nn.Module, quantise: Quantise):
        super().__init__()
        self.activation, self.quantise = activation, quantise

    def forward(self, x: Tensor) -> Tensor:
        return self.quantise(self.activation(x), 6 / 255, 0, 0, 255)


def quantised(module: nn.Module, quantise: Quantise) -> nn.Module:
    """In place, all convolutions and activations of a network."""
    for name, child in module.named_children():
        if isinstance(child, nn.Conv2d):
            setattr(module, name, QuantisedConv(child, quantise))
        elif isinstance(child, nn.ReLU6):
            setattr(module, name, QuantisedActivation(child, quantise))
        else:
            quantised(child, quantise)
    return module


class Step:
    """One training step of a fake-quantised mobilenet_v2."""

    def __init__(self, variant: str, inputs: Tensor, width: float):
        torch.manual_seed(0)
        quantise, self.convention = VARIANTS[variant]
        model = quantised(torchvision.models.mobilenet_v2(width_mult=width, dropout=0.0), quantise)
        self.model = model.to(inputs.device, memory_format=torch.channels_last).to(inputs.dtype)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.inputs, self.quantise = inputs, quantise

    def __call__(self) -> Tensor:
        with subgrad.use(self.convention):
            self.optimizer.zero_grad(set_to_none=True)
            loss = self.model(self.quantise(self.inputs, 4 / 127, 0, -128, 127)).float().square().mean()
            loss.backward()
            self.optimizer.step()
        return loss.detach()


def clock(run: Callable[[], object], device: str) -> float:
    """Milliseconds."""
    if device == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    run()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e3


def by_turns(runs: dict[str, Callable[[], object]], device: str, repeats: int) -> dict[str, float]:
    """The median of each."""
    times: dict[str, list[float]] = {name: [] for name in runs}
    for repeat in range(repeats + 3):
        for name, run in runs.items():
            milliseconds = clock(run, device)
            if repeat >= 3:
                times[name].append(milliseconds)
    return {name: median(found) for name, found in times.items()}


def peak(step: Step, device: str) -> int:
    if device != "cuda":
        return 0
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    return torch.cuda.max_memory_allocated() - before


def training(device: str, dtype: torch.dtype, batch: int, pixels: int, width: float, repeats: int) -> list[Any]:
    shape = (batch, 3, pixels, pixels)
    inputs = torch.randn(shape, device=device).to(dtype).contiguous(memory_format=torch.channels_last)
    found = []
    for variant in VARIANTS:
        step = Step(variant, inputs, width)
        losses = [float(step()) for _ in range(2)]
        row = {"variant": variant, "dtype": str(dtype), "losses": losses, "peak bytes": peak(step, device)}
        found.append(row)
        del step
    times = by_turns({variant: Step(variant, inputs, width) for variant in VARIANTS}, device, repeats)
    return [{**row, "milliseconds": times[row["variant"]]} for row in found]


def activations(device: str, dtype: torch.dtype, size: int, repeats: int) -> list[dict[str, Any]]:
    """Forward and backward of hardtanh and of tanh."""
    x = torch.randn(size, device=device).to(dtype).requires_grad_()
    given = torch.randn(size, device=device).to(dtype)

    def run(function: Callable[[Tensor], Tensor], convention: str) -> None:
        with subgrad.use(convention):
            torch.autograd.grad(function(x), x, given)

    runs: dict[str, Callable[[], object]] = {
        "tanh": lambda: run(torch.tanh, "torch"),
        "hardtanh": lambda: run(F.hardtanh, "torch"),
        "hardtanh, min-norm": lambda: run(F.hardtanh, "min-norm"),
    }
    times = by_turns(runs, device, repeats)
    row = {"device": device, "dtype": str(dtype), "entries": size, "threads": torch.get_num_threads()}
    return [{**row, "function": name, "milliseconds": each} for name, each in times.items()]


def show(record: dict[str, Any]) -> None:
    print(f"{record['machine']}, torch {record['torch']}, C++ part: {record['built']}")
    for row in record["training"]:
        plain = next(
            each for each in record["training"] if each["variant"] == "torch" and each["dtype"] == row["dtype"]
        )
        times = f"{row['milliseconds']:8.2f} ms ({row['milliseconds'] / plain['milliseconds']:.2f})"
        memory = f"{row['peak bytes'] / 2**30:6.2f} GiB ({row['peak bytes'] / max(plain['peak bytes'], 1):.2f})"
        print(
            f"mobilenet_v2, {row['dtype']:15} {row['variant']:26} {times}  peak {memory}  loss {row['losses'][0]:.6f}"
        )
    for row in record["activations"]:
        print(f"{row['device']:5} {row['dtype']:15} {row['function']:20} {row['milliseconds']:9.3f} ms")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--pixels", type=int, default=224)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--tiny", action="store_true", help="a narrow network on small images, once")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.tiny:
        options.batch, options.pixels, options.repeats = 2, 32, 1
    width, dtypes = (0.25 if options.tiny else 1.0), (torch.float32, torch.bfloat16)
    rows, functions = [], []
    for dtype in dtypes:
        print(f"training, {dtype} ...", file=sys.stderr)
        rows += training(options.device, dtype, options.batch, options.pixels, width, options.repeats)
    places = [("cpu", torch.float32, 1 << 20)]
    if options.device == "cuda":
        places += [("cuda", dtype, 1 << 26) for dtype in dtypes]
    for device, dtype, size in places:
        functions += activations(device, dtype, size >> 8 if options.tiny else size, 2 * options.repeats)
    from subgrad.kernels.native import build

    record = {
        "machine": torch.cuda.get_device_name() if options.device == "cuda" else "CPU",
        "torch": str(torch.__version__),
        "torchvision": torchvision.__version__,
        "built": build.is_used(),
        "command": " ".join(["python", *sys.argv]),
        "batch": options.batch,
        "pixels": options.pixels,
        "training": rows,
        "activations": functions,
    }
    show(record)
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
