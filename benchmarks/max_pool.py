"""Max-pooling whose tied entries share against torch's own, which picks one: forward and backward, by turns in one run.

python benchmarks/max_pool.py --device cuda --json benchmarks/records/max_pool_h200.json
python benchmarks/max_pool.py --json benchmarks/records/max_pool_cpu.json    one thread, seconds of a core
python benchmarks/max_pool.py --device cuda --tiles    compares the tiles of the kernels
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor

import subgrad
from subgrad.kernels import max_pool
from subgrad.kernels.native import build

Call = Callable[[Tensor], Tensor]
# What ours may take of torch's time: forward, backward, and both together.
LIMITS = {"cuda": (1 / 2.3, 1 / 2, 1.0), "cpu": (float("inf"), float("inf"), 1.5)}
POOLINGS: dict[str, tuple[str, Call]] = {
    "max_pool1d(2)": ("line", lambda x: F.max_pool1d(x, 2)),
    "max_pool1d(3, 2, 1)": ("line", lambda x: F.max_pool1d(x, 3, 2, 1)),
    "max_pool1d(3, 1)": ("line", lambda x: F.max_pool1d(x, 3, 1)),
    "adaptive_max_pool1d, uneven": ("line", lambda x: F.adaptive_max_pool1d(x, x.shape[-1] // 3)),
    "max_pool2d(2)": ("image", lambda x: F.max_pool2d(x, 2)),
    "max_pool2d(3, 2, 1)": ("image", lambda x: F.max_pool2d(x, 3, 2, 1)),
    "max_pool2d(3, 1, 1)": ("image", lambda x: F.max_pool2d(x, 3, 1, 1)),
    "max_pool2d(3, 2, ceil_mode)": ("image", lambda x: F.max_pool2d(x, 3, 2, ceil_mode=True)),
    "max_pool2d(2, indices)": ("image", lambda x: F.max_pool2d(x, 2, return_indices=True)[0]),
    "adaptive_max_pool2d, even": ("image", lambda x: F.adaptive_max_pool2d(x, x.shape[-1] // 4)),
    "adaptive_max_pool2d, uneven": ("image", lambda x: F.adaptive_max_pool2d(x, x.shape[-1] // 3)),
    "max_pool3d(2)": ("space", lambda x: F.max_pool3d(x, 2)),
    "max_pool3d(3, 2, 1)": ("space", lambda x: F.max_pool3d(x, 3, 2, 1)),
    "max_pool2d(9, 8, 4)": ("image", lambda x: F.max_pool2d(x, 9, 8, 4)),
    "max_pool2d(13, 1, 6)": ("map", lambda x: F.max_pool2d(x, 13, 1, 6)),
    "adaptive_max_pool1d(1)": ("line", lambda x: F.adaptive_max_pool1d(x, 1)),
    "adaptive_max_pool2d(1)": ("image", lambda x: F.adaptive_max_pool2d(x, 1)),
    "adaptive_max_pool3d(1)": ("space", lambda x: F.adaptive_max_pool3d(x, 1)),
    "adaptive_max_pool3d, uneven": ("space", lambda x: F.adaptive_max_pool3d(x, (x.shape[-3] // 2, 9, 9))),
}
SHAPES = {
    ("cuda", "line"): [(128, 64, 12544)],
    ("cuda", "image"): [(128, 64, 112, 112)],
    ("cuda", "map"): [(32, 512, 20, 20)],
    ("cuda", "space"): [(16, 32, 16, 56, 56)],
    ("cpu", "line"): [(16, 64, 1024), (2, 4, 64)],
    ("cpu", "image"): [(8, 16, 56, 56), (2, 20, 37, 37), (2, 3, 8, 8)],
    ("cpu", "map"): [(2, 32, 20, 20)],
    ("cpu", "space"): [(2, 8, 8, 28, 28)],
}
TIES = ("after relu", "all", "none")


@dataclass(frozen=True)
class Case:
    """One call, and what it is called on."""

    name: str
    shape: tuple[int, ...]
    dtype: torch.dtype
    channels_last: bool
    ties: str

    def input(self, device: str) -> Tensor:
        generator = torch.Generator(device).manual_seed(0)
        x = torch.randn(self.shape, generator=generator, device=device)
        if self.ties == "none":  # all but a few: 16 bits have fewer numbers than there are entries
            x = x.to(self.dtype)
        else:
            x = (x.relu() if self.ties == "after relu" else torch.zeros_like(x)).to(self.dtype)
        formats = {4: torch.channels_last, 5: torch.channels_last_3d}
        layout = formats[x.ndim] if self.channels_last else torch.contiguous_format
        return x.contiguous(memory_format=layout).requires_grad_()

    @property
    def call(self) -> Call:
        return POOLINGS[self.name][1]


def cases(device: str, only: str) -> Iterator[Case]:
    for name, (kind, _) in POOLINGS.items():
        if not any(each in name for each in only.split("|")):
            continue
        for shape in SHAPES[device, kind]:
            for dtype in (torch.bfloat16, torch.float32) if device == "cuda" else (torch.float32,):
                for last in (False, True) if kind != "line" else (False,):
                    yield from (Case(name, shape, dtype, last, ties) for ties in TIES)


class Timed:
    """A forward and a backward under one convention."""

    def __init__(self, case: Case, convention: str, device: str):
        self.x, self.call, self.convention, self.device = case.input(device), case.call, convention, device
        self.repeats = 1 if device == "cuda" else max(1, 200_000 // self.x.numel())
        out = self.forward()
        self.cotangent = torch.randn_like(out)
        self.times: tuple[list[float], list[float]] = [], []

    def forward(self) -> Tensor:
        return self.call(self.x)

    def turn(self) -> None:
        """Times of both, in milliseconds."""
        with subgrad.use(self.convention):
            outs: list[Tensor] = []
            self.times[0].append(self._measure(lambda: outs.append(self.forward())))
            self.times[1].append(self._measure(lambda: torch.autograd.grad(outs.pop(), self.x, self.cotangent)))

    def _measure(self, what: Callable[[], Any]) -> float:
        if self.device == "cpu":
            begin = time.thread_time()  # seconds of a core, whoever else is on the machine
            for _ in range(self.repeats):
                what()
            return (time.thread_time() - begin) * 1e3 / self.repeats
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(2_000_000)  # a millisecond, in which the host gets ahead
        begin.record()
        what()
        end.record()
        torch.cuda.synchronize()
        return begin.elapsed_time(end)


def measure(case: Case, device: str, turns: int) -> dict[str, Any]:
    by_convention = {convention: Timed(case, convention, device) for convention in ("torch", "min-norm")}
    for number in range(turns + 3):
        for timed in by_convention.values():
            if number == 3:
                timed.times = [], []
            timed.turn()
    found = {
        convention: [median(times) for times in timed.times] + [median(map(sum, zip(*timed.times, strict=True)))]
        for convention, timed in by_convention.items()
    }
    ratios = [ours / own for ours, own in zip(found["min-norm"], found["torch"], strict=True)]
    return {
        **{"call": case.name, "shape": case.shape, "dtype": str(case.dtype), "channels last": case.channels_last},
        **{"ties": case.ties, "torch": found["torch"], "min-norm": found["min-norm"], "ratios": ratios},
    }


def show(row: dict[str, Any], device: str) -> None:
    over = any(ratio > limit for ratio, limit in zip(row["ratios"], LIMITS[device], strict=True))
    layout = "channels last" if row["channels last"] else "contiguous"
    shape = "x".join(map(str, row["shape"]))
    numbers = " ".join(
        f"{own:8.4f} {ours:8.4f} {ratio:5.2f}"
        for own, ours, ratio in zip(row["torch"], row["min-norm"], row["ratios"], strict=True)
    )
    print(f"{row['call']:28} {shape:17} {row['dtype'][6:]:8} {layout:13} {row['ties']:10} {numbers} {'*' * over}")


def compare_tiles(turns: int) -> None:
    """Our own times by the tiles of the kernels."""
    for tile, (entries, warps) in enumerate(max_pool.TILES):
        max_pool.FORWARD = max_pool.BACKWARD = tile
        print(f"tiles of {entries} entries in {warps} warps: forward and backward, milliseconds")
        for name in ("max_pool2d(3, 2, 1)", "max_pool2d(2)", "max_pool2d(3, 1, 1)", "adaptive_max_pool2d, uneven"):
            for dtype in (torch.bfloat16, torch.float32):
                for last in (True, False):
                    timed = Timed(Case(name, (128, 64, 112, 112), dtype, last, "after relu"), "min-norm", "cuda")
                    for _ in range(turns + 3):
                        timed.turn()
                    forward, backward = (median(times[3:]) for times in timed.times)
                    layout = "channels last" if last else "contiguous"
                    print(f"    {name:28} {str(dtype)[6:]:8} {layout:13} {forward:8.4f} {backward:8.4f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--only", default="", help="calls whose names hold this, or one of several between |")
    parser.add_argument("--turns", type=int, default=15)
    parser.add_argument("--tiles", action="store_true", help="compare the tiles of the kernels instead")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.tiles:
        return compare_tiles(options.turns)
    if options.device == "cpu":
        torch.set_num_threads(1)
    print(f"{'':80} {'forward':>20} {'backward':>23} {'both':>23}")
    print(f"{'':80} {'torch     ours ratio':>23} {'torch     ours ratio':>23} {'torch     ours ratio':>23}")
    rows = []
    for case in cases(options.device, options.only):
        rows.append(measure(case, options.device, options.turns))
        show(rows[-1], options.device)
        sys.stdout.flush()
    if options.json:
        machine = torch.cuda.get_device_name() if options.device == "cuda" else "CPU, 1 thread"
        record = {"machine": machine, "torch": str(torch.__version__), "command": " ".join(["python", *sys.argv])}
        if options.device == "cpu":
            record["native"] = build.is_used()
        options.json.write_text(json.dumps({**record, "limits": LIMITS[options.device], "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
