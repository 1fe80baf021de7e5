"""What the gradient of the whole program costs: `subgrad.grad` beside `torch.func.grad`, in one run.

    python benchmarks/clarke.py [--device cuda] [--repeat 20] [--threads 1] [--small] [--json out.json]

Each model is measured where no kink is hit and where some are; `kinks` is how many operators really meet one. `time` is
that of a program that is known, `first` that of its first call, where the result is held against values nearby. Among
some ten million windows a few tie by chance, so that inputs are drawn again until none does. Times are medians of runs
that alternate between the two; memory is the peak above what the model and its inputs take. ``--small`` measures models
that are too small for their arithmetic to count, with the same limits, and programs of a few operators, with their own.
One thread, of which only the time counts in which it ran: where others share its core it waits for milliseconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

import subgrad

Loss = Callable[[Any], Tensor]

LIMITS = {False: 1.25, True: 2.5}  # of the time, without and with kinks
PROGRAM = 4.0  # of programs of a few operators
FIRST = 4.0  # of the first call
MEMORY = 1.3
DRAWS = 100  # of inputs, to meet no kink


@dataclass(frozen=True)
class Cost:
    """One model in one state: how both compare."""

    model: str
    parameters: int
    hit: bool
    kinks: int  # operators that meet one
    plain_ms: float
    subgrad_ms: float
    time: float
    first: float
    memory: float | None
    is_model: bool = True

    @property
    def is_within(self) -> bool:
        if not self.is_model:
            return self.time <= PROGRAM
        is_small = self.memory is None or self.memory <= MEMORY
        return is_small and self.time <= LIMITS[self.hit] and self.first <= FIRST


class Block(nn.Module):
    """A transformer block."""

    def __init__(self, width: int, heads: int):
        super().__init__()
        self.heads = heads
        self.before, self.between = nn.LayerNorm(width), nn.LayerNorm(width)
        self.mixed, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        q, k, v = self.mixed(self.before(x)).view(batch, length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(F.relu(self.wide(self.between(x))))


class Transformer(nn.Module):
    def __init__(self, width: int, depth: int, heads: int):
        super().__init__()
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(depth)))
        self.head = nn.Linear(width, 10)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x).mean(1))


def perceptron(width: int, depth: int) -> nn.Module:
    layers = [layer for _ in range(depth) for layer in (nn.Linear(width, width), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(width, 10))


def convolutions(channels: int, hit: bool) -> nn.Module:
    """Pooling after relu ties where all of a window is 0; before it, on numbers that differ, it does not."""
    layers: list[nn.Module] = []
    for one, other in ((3, channels), (channels, 2 * channels), (2 * channels, 4 * channels)):
        layers += [nn.Conv2d(one, other, 3, padding=1), nn.BatchNorm2d(other, track_running_stats=False)]
        layers += [nn.ReLU(), nn.MaxPool2d(2)] if hit else [nn.MaxPool2d(2), nn.ReLU()]
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4 * channels, 10))


def without_biases(model: nn.Module) -> nn.Module:
    """Biases start at 0, as they often do: inputs that are 0, as padding is, then lie on the kinks of all layers."""
    for name, parameter in model.named_parameters():
        if name.endswith("bias"):
            nn.init.zeros_(parameter)
    return model


def cases(device: str, hit: bool) -> dict[str, tuple[nn.Module, Tensor]]:
    """Models and their inputs."""
    large = device != "cpu"
    width, batch, side, length = (2048, 4096, 64, 512) if large else (512, 512, 32, 128)
    rows, images, tokens = (
        torch.randn(batch, width),
        torch.randn(256 if large else 32, 3, side, side),
        torch.randn(32 if large else 4, length, width // 2),
    )
    if hit:
        rows[::8], tokens[:, ::8] = 0, 0
    return {
        "MLP": (without_biases(perceptron(width, 6)), rows),
        "ConvNet": (convolutions(64 if large else 32, hit), images),
        "transformer": (without_biases(Transformer(width // 2, 6 if large else 3, 8)), tokens),
    }


def small_cases(hit: bool) -> dict[str, tuple[nn.Module, Tensor]]:
    """Models whose cost is that of calling their operators."""
    found = {}
    for width in (8, 64, 256):
        rows = torch.randn(width, width)
        if hit:
            rows[::8] = 0
        found[f"MLP of {width}"] = (without_biases(perceptron(width, 2)), rows)
    for side in (8, 16):
        found[f"ConvNet of {side}"] = (convolutions(side // 2, hit), torch.randn(2, 3, side, side))
    for width, depth in ((8, 1), (32, 2)):
        tokens = torch.randn(2, 8, width)
        if hit:
            tokens[:, ::8] = 0
        found[f"transformer of {width}"] = (without_biases(Transformer(width, depth, 2)), tokens)
    return found


def small_programs() -> dict[str, tuple[Loss, Any]]:
    """Programs of a few operators, which are no models: a call and its rules cost more than all they do."""
    x = torch.zeros(3)

    def mask(x: Tensor) -> Tensor:
        found, above = -x, x > 0
        found[above] = x[above]
        return found.sum()

    def loop(x: Tensor) -> Tensor:
        found = x.new_zeros(())
        for each in range(3):
            found = found + x[each] if x[each] > 0 else found - x[each]
        return found

    return {
        "abs": (lambda x: x.abs().sum(), x),
        "maximum": (lambda x: torch.maximum(x, x.flip(0)).sum(), x),
        "where": (lambda x: torch.where(x > 0, x, -x).sum(), x),
        "mask": (mask, x),
        "loop with if": (loop, x),
        "undecided": (lambda x: torch.where(x * x > 0, x, 2 * x - x).sum(), x),
    }


def milliseconds(run: Callable[[], Any], device: str) -> float:
    if device != "cpu":
        torch.cuda.synchronize()
    clock = time.thread_time if device == "cpu" and torch.get_num_threads() == 1 else time.perf_counter
    start = clock()
    run()
    if device != "cpu":
        torch.cuda.synchronize()
    return 1e3 * (clock() - start)


def peak(run: Callable[[], Any]) -> int:
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def loss_of(model: nn.Module, inputs: Tensor) -> tuple[Loss, dict[str, Tensor]]:
    """A function of the parameters, and these."""
    targets = torch.zeros(len(inputs), dtype=torch.long, device=inputs.device)

    def loss(parameters: dict[str, Tensor]) -> Tensor:
        return F.cross_entropy(torch.func.functional_call(model, parameters, (inputs,)), targets)

    return loss, {key: value.detach() for key, value in model.named_parameters()}


def cost(name: str, model: nn.Module, inputs: Tensor, device: str, hit: bool, repeat: int) -> Cost:
    model, inputs = model.to(device), inputs.to(device)
    loss, parameters = loss_of(model, inputs)
    for _ in range(0 if hit else DRAWS):
        if not subgrad.element(loss)(parameters).kinks:
            break
        loss, parameters = loss_of(model, torch.randn_like(inputs))
    return compared(name, loss, parameters, device, repeat)


def compared(name: str, loss: Loss, parameters: Any, device: str, repeat: int, is_model: bool = True) -> Cost:
    kinks = subgrad.element(loss)(parameters).kinks
    plain, ours = (partial(grad(loss), parameters) for grad in (torch.func.grad, subgrad.grad))
    for run in (plain, ours, plain, ours):
        run()
    times = [(milliseconds(plain, device), milliseconds(ours, device)) for _ in range(repeat)]
    one, other = (statistics.median(column) for column in zip(*times, strict=True))
    memory = None if device == "cpu" else peak(ours) / peak(plain)
    count = sum(each.numel() for each in tree_leaves(parameters))
    ratio = statistics.median(b / a for a, b in times)
    first = statistics.median(first_call(loss, plain, parameters, device) for _ in range(max(repeat // 2, 5)))
    return Cost(name, count, kinks > 0, kinks, one, other, ratio, first, memory, is_model)


def first_call(loss: Loss, plain: Callable[[], Any], parameters: Any, device: str) -> float:
    """Of a program that has not been met before, in a process that has met others."""
    fresh = subgrad.grad(lambda given: loss(given))
    beside = milliseconds(plain, device)
    return milliseconds(lambda: fresh(parameters), device) / beside


def measured(device: str, small: bool, repeat: int) -> Iterator[Cost]:
    for hit in (False, True):
        models = small_cases(hit) if small else cases(device, hit)
        for name, (model, inputs) in models.items():
            yield cost(name, model, inputs, device, hit, repeat)
    if small and device == "cpu":
        for name, (loss, parameters) in small_programs().items():
            yield compared(name, loss, parameters, device, 10 * repeat, is_model=False)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--threads", type=int, default=1, help="on the CPU")
    parser.add_argument("--small", action="store_true", help="models of some microseconds")
    parser.add_argument("--json")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    found = []
    print(f"torch {torch.__version__}, {options.device}, medians of {options.repeat}")
    print(f"{'model':17} {'parameters':>11} {'kinks':>6} {'torch ms':>9} {'subgrad ms':>11}", end=" ")
    print(f"{'time':>6} {'first':>6} {'memory':>7}")
    for one in measured(options.device, options.small, options.repeat):
        found.append(one)
        memory = "" if one.memory is None else f"{one.memory:.2f}"
        remark = "" if one.is_within else "  beyond the limit"
        print(
            f"{one.model:17} {one.parameters:11,} {one.kinks:6} {one.plain_ms:9.2f} {one.subgrad_ms:11.2f} "
            f"{one.time:6.2f} {one.first:6.2f} {memory:>7}{remark}"
        )
    if options.json:
        record = {
            "machine": torch.cuda.get_device_name() if options.device == "cuda" else "CPU",
            "torch": str(torch.__version__),
            "command": " ".join(["python", *sys.argv]),
            "costs": [asdict(each) for each in found],
        }
        with open(options.json, "w") as file:
            json.dump(record, file, indent=1)
    return 0 if all(each.is_within for each in found) else 1


if __name__ == "__main__":
    sys.exit(main())
