"""The measuring: contenders by turns in one run, medians over repeats, what is kept for the backward."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from statistics import median
from typing import Any

import torch
from torch import Tensor
from torch._functorch import config as functorch_config

from subgrad.apply.use import use
from subgrad.bench.rows import Row
from subgrad.conventions import Convention, convention

CONTENDERS = ("torch", "subgrad")
COMPILED = ("torch, compiled", "subgrad, compiled")


@dataclass(frozen=True)
class Timing:
    """One row of one contender: medians, in milliseconds, and the bytes held between forward and backward."""

    row: str
    contender: str
    dtype: str
    size: int
    forward: float
    backward: float
    both: float
    kept: int


@dataclass(frozen=True)
class Copy:
    """The limit: a copy of a tensor, which reads it once and writes it once."""

    dtype: str
    size: int
    milliseconds: float


@dataclass(frozen=True)
class Benchmark:
    """All that was measured in one run, and where."""

    machine: str
    torch: str
    convention: str
    command: str
    copies: tuple[Copy, ...]
    timings: tuple[Timing, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Benchmark:
        rest = {name: data[name] for name in ("machine", "torch", "convention", "command")}
        copies, timings = (tuple(data[name]) for name in ("copies", "timings"))
        return cls(**rest, copies=tuple(Copy(**each) for each in copies), timings=tuple(Timing(**t) for t in timings))


def machine(device: str) -> str:
    if device == "cuda":
        return torch.cuda.get_device_name()
    return f"{platform.processor() or platform.machine()}, {torch.get_num_threads()} threads"


def benchmark(
    rows: Iterable[Row],
    sizes: Sequence[int],
    dtypes: Sequence[torch.dtype],
    device: str = "cpu",
    like: str | Convention = "min-norm",
    contenders: Sequence[str] = CONTENDERS,
    repeats: int = 9,
    seconds: float = 0.02,
    command: str = "",
    progress: Callable[[str], None] = lambda _: None,
) -> Benchmark:
    """Measure rows side by side.

    Args:
        like: the convention that the contenders "subgrad" run under.
        repeats: how often each contender has its turn.
        seconds: about how long a turn is.
        progress: told what is being measured.
    """
    chosen = convention(like)
    copies, timings = [], []
    for dtype in dtypes:
        for size in sizes:
            copies.append(_copy(size, dtype, device, repeats, seconds))
            for row in rows:
                progress(f"{row.name}, {size:,} {_name(dtype)}")
                try:
                    timings += _row(row, size, dtype, device, chosen, contenders, repeats, seconds)
                except RuntimeError as error:
                    if "not implemented" not in str(error):
                        raise
                    progress(f"{row.name}: {_name(dtype)} is not for it ({error})")  # as hypot in float16 on a CPU
    return Benchmark(machine(device), str(torch.__version__), str(chosen), command, tuple(copies), tuple(timings))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _copy(size: int, dtype: torch.dtype, device: str, repeats: int, seconds: float) -> Copy:
    x = torch.randn(size, dtype=dtype, device=device)
    y = torch.empty_like(x)
    clock = _Clock(device, seconds)
    clock.calibrate(lambda: y.copy_(x))
    return Copy(_name(dtype), size, median(clock(lambda: y.copy_(x)) for _ in range(repeats)))


def _row(
    row: Row,
    size: int,
    dtype: torch.dtype,
    device: str,
    chosen: Convention,
    contenders: Sequence[str],
    repeats: int,
    seconds: float,
) -> Iterator[Timing]:
    inputs = row.inputs(size, dtype, device)
    torch.compiler.reset()  # else Dynamo would give up: too many functions of one code
    runs = {name: _Run(row, inputs, name, chosen, device, seconds) for name in contenders}
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, run in runs.items():  # by turns, so that what disturbs one disturbs all
            found[name].append(run.once())
    for name, run in runs.items():
        forward, backward, both = (median(each) for each in zip(*found[name], strict=True))
        yield Timing(row.name, name, _name(dtype), size, forward, backward, both, run.kept())


class _Run:
    """A contender, warmed up."""

    def __init__(self, row: Row, inputs: list[Tensor], contender: str, chosen: Convention, device: str, seconds: float):
        self.row, self.inputs, self.device = row, inputs, device
        self.scope = partial(use, chosen if contender.startswith("subgrad") else "torch")
        self.call: Callable[..., Tensor] = torch.compile(row.call) if "compiled" in contender else row.call
        self.clock = _Clock(device, seconds)
        with self.scope(), functorch_config.patch(donated_buffer=False):
            self.cotangent = torch.randn_like(self.forward().detach())
            self.clock.calibrate(self.both)

    def forward(self) -> Tensor:
        # What overwrites its input is given one of its own, in every contender.
        return self.call(*(each + 0 for each in self.inputs)) if self.row.in_place else self.call(*self.inputs)

    def both(self) -> None:
        torch.autograd.grad(self.forward(), self.inputs, self.cotangent)

    def once(self) -> tuple[float, float, float]:
        # A compiled graph that gives its buffers away would run backward only once.
        with self.scope(), functorch_config.patch(donated_buffer=False):
            return self.clock(self.forward), self._backward(), self.clock(self.both)

    def _backward(self) -> float:
        out = self.forward()
        return self.clock(lambda: torch.autograd.grad(out, self.inputs, self.cotangent, retain_graph=True))

    def kept(self) -> int:
        """The bytes that the graph holds, the result aside; inputs too, if only the graph holds them."""
        saved: dict[int, int] = {}

        def note(tensor: Tensor) -> Tensor:
            saved[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
            return tensor

        with self.scope(), torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
            out = self.forward()
        return sum(size for pointer, size in saved.items() if pointer != out.untyped_storage().data_ptr())


class _Clock:
    """Milliseconds of a call: enough of them in a row to fill the wanted time."""

    def __init__(self, device: str, seconds: float):
        self._device, self._seconds, self._calls, self._is_waited_for = device, seconds, 1, False

    def calibrate(self, call: Callable[[], Any]) -> None:
        for _ in range(3):
            call()
        milliseconds = self(call)
        self._calls = max(1, min(1000, int(self._seconds * 1e3 / max(milliseconds, 1e-3))))
        self._is_waited_for = milliseconds > 0.2

    def __call__(self, call: Callable[[], Any]) -> float:
        if self._device == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            torch.cuda.synchronize()
            if self._is_waited_for:  # what takes long is queued behind something, so that the device never idles
                torch.cuda._sleep(1_000_000)
            start.record()
            for _ in range(self._calls):
                call()
            end.record()
            torch.cuda.synchronize()
            return start.elapsed_time(end) / self._calls
        begin = time.perf_counter()
        for _ in range(self._calls):
            call()
        return (time.perf_counter() - begin) * 1e3 / self._calls
