"""What an audit costs: training steps of ResNet-18 inside `subgrad.audit(model)` beside plain ones, in one run.

    python benchmarks/audit.py [--device cuda] [--repeat 10] [--threads 1] [--json out.json]

A round is as many steps as there are from one that is recorded to the next, with the default sampling: plain and
audited rounds by turns, medians over all of them. Memory is the peak of a round above what was there before it. With
`compare=` a round has one step whose gradients are compared, for which there is no limit.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from models import resnet_18
from torch import nn

import subgrad
from subgrad.audit.session import EVERY

LIMITS = {"cuda": 1.10, "cpu": 1.30}
MEMORY = 1.01
COMPARED = ("torch-2.13", "torch-2.14")


@dataclass(frozen=True)
class Cost:
    """One way to audit: times of a step, in milliseconds, and ratios to a plain one."""

    audit: str
    every: int
    plain_ms: float
    audited_ms: float
    recorded_ms: float
    other_ms: float
    time: float
    memory: float | None
    limit: float | None

    @property
    def is_within(self) -> bool:
        return self.limit is None or (self.time <= self.limit and (self.memory is None or self.memory <= MEMORY))


class Training:
    """A network in training on one batch."""

    def __init__(self, device: str):
        torch.manual_seed(0)
        batch, side = (256, 224) if device == "cuda" else (8, 96)
        self.device = device
        self.model = resnet_18(lambda: nn.ReLU(inplace=True)).to(device, memory_format=torch.channels_last)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=1e-3, momentum=0.9)
        self.x = torch.randn(batch, 3, side, side, device=device).to(memory_format=torch.channels_last)
        self.y = torch.randint(0, 1000, (batch,), device=device)

    def step(self) -> float:
        """One step; how long it took, in milliseconds."""
        self._wait()
        start = time.perf_counter()
        with torch.autocast(self.device, torch.bfloat16, enabled=self.device == "cuda"):
            loss = F.cross_entropy(self.model(self.x), self.y)
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self._wait()
        return 1e3 * (time.perf_counter() - start)

    def round(self, steps: int, around: AbstractContextManager[Any]) -> tuple[list[float], int]:
        """The times of some steps, and the peak of memory above what was there."""
        self._wait()
        before = torch.cuda.memory_allocated() if self.device == "cuda" else 0
        if self.device == "cuda":
            torch.cuda.reset_peak_memory_stats()
        with around:
            times = [self.step() for _ in range(steps)]
        return times, torch.cuda.max_memory_allocated() - before if self.device == "cuda" else 0

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def cost(name: str, training: Training, make: Callable[[], Any], every: int, repeat: int, limit: float | None) -> Cost:
    for around in (nullcontext(), make()):
        training.round(2, around)
    plain, audited, ratios, memory = [], [], [], []
    for _ in range(repeat):
        one, peak = training.round(every, nullcontext())
        other, audited_peak = training.round(every, make())
        plain.append(one)
        audited.append(other)
        ratios.append(sum(other) / sum(one))
        memory.append(audited_peak / peak if peak else None)
    return Cost(
        name,
        every,
        statistics.median(each for times in plain for each in times),
        statistics.median(sum(times) / every for times in audited),
        statistics.median(times[0] for times in audited),
        statistics.median(each for times in audited for each in times[1:]) if every > 1 else 0.0,
        statistics.median(ratios),
        None if memory[0] is None else statistics.median(memory),
        limit,
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeat", type=int, default=10)
    parser.add_argument("--threads", type=int, help="on the CPU (default: as torch has it)")
    parser.add_argument("--json")
    options = parser.parse_args()
    if options.threads:
        torch.set_num_threads(options.threads)
    training = Training(options.device)
    model, limit = training.model, LIMITS[options.device]
    print(f"torch {torch.__version__}, {options.device}, ResNet-18, medians of {options.repeat} rounds")
    print(f"{'audit':24} {'plain ms':>9} {'audited':>9} {'recorded':>9} {'others':>9} {'time':>6} {'memory':>7}")
    found = []
    for name, make, bound in (
        ("default", lambda: subgrad.audit(model), limit),
        ("ulps=2", lambda: subgrad.audit(model, ulps=2), None),
        ("compare, every 10th step", lambda: subgrad.audit(model, compare=COMPARED, compare_every=EVERY), None),
    ):
        one = cost(name, training, make, EVERY, options.repeat, bound)
        found.append(one)
        memory = "" if one.memory is None else f"{one.memory:.3f}"
        print(
            f"{name:24} {one.plain_ms:9.2f} {one.audited_ms:9.2f} {one.recorded_ms:9.2f} {one.other_ms:9.2f} "
            f"{one.time:6.3f} {memory:>7}{'' if one.is_within else '  beyond the limit'}"
        )
    if options.json:
        record = {
            "machine": torch.cuda.get_device_name()
            if options.device == "cuda"
            else f"CPU ({torch.get_num_threads()} of {os.cpu_count()} cores)",
            "torch": str(torch.__version__),
            "command": " ".join(["python", *sys.argv]),
            "audits": [asdict(each) for each in found],
        }
        with open(options.json, "w") as file:
            json.dump(record, file, indent=1)
    return 0 if all(each.is_within for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
