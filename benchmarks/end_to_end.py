"""Training steps with and without subgrad: time and peak memory, side by side in one run.

python benchmarks/end_to_end.py --device cuda --json benchmarks/records/end_to_end_h200.json
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
from models import Clamp, TransformerBlock, mobilenet_v2, resnet_18
from torch import Tensor, nn

import subgrad
from subgrad.kernels import cuda_bitmask

VARIANTS: dict[str, tuple[Callable[[], nn.Module], str]] = {
    "MobileNetV2, clamp": (partial(mobilenet_v2, Clamp), "image"),
    "MobileNetV2, nn.ReLU6": (partial(mobilenet_v2, nn.ReLU6), "image"),
    "MobileNetV2, nn.ReLU6(inplace=True)": (partial(mobilenet_v2, partial(nn.ReLU6, inplace=True)), "image"),
    "ResNet-18, nn.ReLU": (partial(resnet_18, nn.ReLU), "image"),
    "ResNet-18, nn.ReLU(inplace=True)": (partial(resnet_18, partial(nn.ReLU, inplace=True)), "image"),
    "transformer block, nn.ReLU": (partial(TransformerBlock, nn.ReLU), "text"),
}


def batch(kind: str, size: int, pixels: int, device: str, dtype: torch.dtype) -> Tensor:
    if kind == "text":
        return torch.randn(max(1, size // 8), 1024, 1024, device=device, dtype=dtype)
    return torch.randn(size, 3, pixels, pixels, device=device, dtype=dtype).contiguous(
        memory_format=torch.channels_last
    )


class Step:
    """One training step of one network under one convention."""

    def __init__(self, make: Callable[[], nn.Module], inputs: Tensor, convention: str):
        torch.manual_seed(0)
        self.model = make().to(inputs.device, inputs.dtype)
        if inputs.ndim == 4:
            self.model = self.model.to(memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3)
        self.inputs, self.convention = inputs, convention

    def __call__(self) -> None:
        with subgrad.use(self.convention):
            self.optimizer.zero_grad(set_to_none=True)
            self.model(self.inputs).float().square().mean().backward()
            self.optimizer.step()


def timed(step: Step, device: str) -> float:
    if device == "cuda":
        torch.cuda.synchronize()
    begin = time.perf_counter()
    step()
    if device == "cuda":
        torch.cuda.synchronize()
    return (time.perf_counter() - begin) * 1e3


def peak(step: Step, device: str) -> int:
    if device != "cuda":
        return 0
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    step()
    return torch.cuda.max_memory_allocated() - before


def measure(name: str, device: str, dtype: torch.dtype, size: int, pixels: int, repeats: int) -> list[dict[str, Any]]:
    make, kind = VARIANTS[name]
    inputs = batch(kind, size, pixels, device, dtype)
    found = []
    for convention in ("torch", "min-norm"):  # peaks first, with one model at a time
        step = Step(make, inputs, convention)
        step(), step()
        found.append({"network": name, "convention": convention, "peak bytes": peak(step, device)})
        del step
    steps = {convention: Step(make, inputs, convention) for convention in ("torch", "min-norm")}
    times: dict[str, list[float]] = {convention: [] for convention in steps}
    for repeat in range(repeats + 3):
        for convention, step in steps.items():
            milliseconds = timed(step, device)
            if repeat >= 3:
                times[convention].append(milliseconds)
    for each in found:
        each["milliseconds"] = median(times[each["convention"]])
    return found


def sweep(device: str, dtype: torch.dtype, size: int, pixels: int, repeats: int) -> list[dict[str, Any]]:
    """From which size on masks are packed: what it costs and saves in MobileNetV2, by turns."""
    name, usual = "MobileNetV2, nn.ReLU6(inplace=True)", cuda_bitmask.SMALLEST
    make, kind = VARIANTS[name]
    step = Step(make, batch(kind, size, pixels, device, dtype), "min-norm")
    times: dict[int, list[float]] = {1 << power: [] for power in (16, 18, 20, 22, 23, 24, 25, 26, 28)}
    peaks = {}
    for smallest in times:
        _pack_from(smallest)
        step(), step()
        peaks[smallest] = peak(step, device)
    for _ in range(repeats):
        for smallest, found in times.items():
            _pack_from(smallest)
            step()  # asks Python once more
            found.append(timed(step, device))
    _pack_from(usual)
    return [
        {"network": name, "convention": "min-norm", "smallest packed": smallest}
        | {"peak bytes": peaks[smallest], "milliseconds": median(found)}
        for smallest, found in times.items()
    ]


def _pack_from(smallest: int) -> None:
    cuda_bitmask.SMALLEST = smallest
    cuda_bitmask.set_packed("auto")  # what was noted of other sizes is forgotten


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--dtype", choices=("bfloat16", "float32"), default="bfloat16")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--pixels", type=int, default=224)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    steps = []
    for name in VARIANTS:
        print(name, file=sys.stderr)
        steps += measure(
            name, options.device, getattr(torch, options.dtype), options.batch, options.pixels, options.repeats
        )
    swept = []
    if options.device == "cuda":
        swept = sweep(options.device, getattr(torch, options.dtype), options.batch, options.pixels, options.repeats)
        for each in swept:
            gibibytes = each["peak bytes"] / 2**30
            print(f"packed from {each['smallest packed']:>11,} {each['milliseconds']:8.2f} ms {gibibytes:6.2f} GiB")
    machine = torch.cuda.get_device_name() if options.device == "cuda" else f"CPU, {torch.get_num_threads()} threads"
    record = {
        "machine": machine,
        "torch": str(torch.__version__),
        "command": " ".join(["python", *sys.argv]),
        "dtype": options.dtype,
        "batch": options.batch,
        "pixels": options.pixels,
        "steps": steps,
        "thresholds": swept,
    }
    for each in steps:
        gibibytes = each["peak bytes"] / 2**30
        print(f"{each['network']:38} {each['convention']:9} {each['milliseconds']:8.2f} ms {gibibytes:6.2f} GiB")
    if options.json:
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
