"""What being armed against NaN costs: training steps inside `subgrad.audit(model, nonfinite=True)` beside plain ones.

    python benchmarks/nonfinite.py [--device cuda] [--repeat 40] [--threads 1] [--json out.json]

No gradient is infinite or NaN, so nothing is explained. Plain and watched steps by turns, some of each at a time; the
ratio of medians, and the median of ratios of neighbours. `torch.autograd.detect_anomaly` is measured beside it.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
import torchvision
from torch import Tensor, nn

import subgrad

LIMITS = {"cuda": 1.02, "cpu": 1.05}


class Normed(nn.Module):
    """A perceptron with norms and divisions: unit features, a temperature, a distance to prototypes, entropies."""

    def __init__(self, width: int):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)
        self.scale = nn.Parameter(torch.ones(width))
        self.prototypes = nn.Parameter(torch.randn(10, width))

    def forward(self, x: Tensor) -> Tensor:
        x = torch.relu(self.first(x))
        x = x / (x.pow(2).mean(-1, keepdim=True) + 1e-6).sqrt() * self.scale
        x = torch.tanh(self.second(x))
        x = x / x.norm(dim=-1, keepdim=True).clamp(min=1e-6)
        square = (x * x).sum(-1, keepdim=True) - 2 * x @ self.prototypes.T + (self.prototypes**2).sum(-1)
        return -(square + 1e-6).sqrt()


@dataclass(frozen=True)
class Cost:
    """Milliseconds of a step, and ratios to a plain one."""

    model: str
    plain_ms: float
    armed_ms: float
    armed: float
    again: float
    anomaly: float
    limit: float

    @property
    def is_within(self) -> bool:
        return self.armed <= self.limit


class Training:
    """A network in training on one batch."""

    def __init__(self, model: nn.Module, x: Tensor, device: str):
        self.model, self.device = model.to(device), device
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-4, momentum=0.9)
        self.x = x.to(device)
        self.y = torch.randint(0, 10, (len(x),), device=device)

    def step(self) -> None:
        loss = F.cross_entropy(self.model(self.x), self.y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def steps(self, number: int, around: AbstractContextManager[Any]) -> float:
        """Milliseconds of each."""
        with around:
            self.step()
            self._wait()
            start = time.perf_counter()
            for _ in range(number):
                self.step()
            self._wait()
            return 1e3 * (time.perf_counter() - start) / number

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def cost(name: str, training: Training, repeat: int) -> Cost:
    model, number = training.model, 1
    ways: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "plain": nullcontext,
        "armed": lambda: subgrad.audit(model, nonfinite=True),
        "again": nullcontext,
        "anomaly": lambda: torch.autograd.detect_anomaly(check_nan=True),
    }
    for make in ways.values():
        took = training.steps(3, make())
        number = max(number, min(50, int(60 / took)))
    times: dict[str, list[float]] = {way: [] for way in ways}
    for _ in range(repeat):
        for way, make in ways.items():
            if way != "anomaly" or len(times[way]) < repeat // 4 + 1:
                times[way].append(training.steps(number, make()))
    plain = statistics.median(times["plain"])
    ratios = {way: statistics.median(a / b for a, b in zip(times[way], times["plain"], strict=False)) for way in ways}
    armed = statistics.median(times["armed"])
    return Cost(name, plain, armed, ratios["armed"], ratios["again"], ratios["anomaly"], LIMITS[training.device])


def trainings(device: str) -> dict[str, Callable[[], Training]]:
    batch, side = (256, 224) if device == "cuda" else (8, 96)
    images = torch.randn(batch, 3, side, side)
    make = torchvision.models
    return {
        "perceptron with norms, width 64": lambda: Training(Normed(64), torch.randn(64, 64), device),
        "perceptron with norms, width 256": lambda: Training(Normed(256), torch.randn(256, 256), device),
        "mobilenet_v3_small": lambda: Training(make.mobilenet_v3_small(num_classes=10), images, device),
        "resnet18": lambda: Training(make.resnet18(num_classes=10), images, device),
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeat", type=int, default=40)
    parser.add_argument("--threads", type=int, help="on the CPU (default: as torch has it)")
    parser.add_argument("--json")
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    if options.threads:
        torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    print(f"torch {torch.__version__}, {options.device}, medians of {options.repeat} rounds")
    print(f"{'model':34} {'plain ms':>9} {'armed ms':>9} {'armed':>6} {'plain again':>11} {'detect_anomaly':>14}")
    found = []
    for name, make in trainings(options.device).items():
        one = cost(name, make(), options.repeat)
        found.append(one)
        beyond = "" if one.is_within else "  beyond the limit"
        times = f"{one.plain_ms:9.3f} {one.armed_ms:9.3f} {one.armed:6.3f} {one.again:11.3f} {one.anomaly:14.2f}"
        print(f"{name:34} {times}{beyond}", flush=True)
    if options.json:
        is_cuda = options.device == "cuda"
        machine = (
            torch.cuda.get_device_name() if is_cuda else f"CPU ({torch.get_num_threads()} of {os.cpu_count()} cores)"
        )
        record = {
            "machine": machine,
            "torch": str(torch.__version__),
            "command": " ".join(["python", *sys.argv]),
            "armed": [asdict(each) for each in found],
        }
        with open(options.json, "w") as file:
            json.dump(record, file, indent=1)
    return 0 if all(each.is_within for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
