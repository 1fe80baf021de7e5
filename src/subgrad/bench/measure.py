"""The measuring: contenders by turns, medians over repeats, each of two kinds in a process of its own."""

from __future__ import annotations

import platform
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch

from subgrad.bench.apart import Apart
from subgrad.bench.rows import Row
from subgrad.bench.run import Clock
from subgrad.conventions import Convention, convention
from subgrad.kernels import front

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
    front: bool = False  # whether the part in C++ was built, and used

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Benchmark:
        rest = {name: data[name] for name in ("machine", "torch", "convention", "command")}
        copies, timings = (tuple(data[name]) for name in ("copies", "timings"))
        return cls(
            **rest,
            copies=tuple(Copy(**each) for each in copies),
            timings=tuple(Timing(**each) for each in timings),
            front=data.get("front", False),
        )


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
    with Apart(Convention("torch")) as torchs, Apart(chosen) as ours:
        for dtype in dtypes:
            for size in sizes:
                copies.append(_copy(size, dtype, device, repeats, seconds))
                for row in rows:
                    progress(f"{row.name}, {size:,} {_name(dtype)}")
                    try:
                        timings += _row(row, size, dtype, device, contenders, repeats, seconds, torchs, ours)
                    except RuntimeError as error:
                        if "not implemented" not in str(error):
                            raise
                        progress(f"{row.name}: {_name(dtype)} is not for it ({error})")  # as hypot in float16 on a CPU
    where = machine(device), str(torch.__version__), str(chosen), command
    return Benchmark(*where, tuple(copies), tuple(timings), front.is_used())


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _copy(size: int, dtype: torch.dtype, device: str, repeats: int, seconds: float) -> Copy:
    x = torch.randn(size, dtype=dtype, device=device)
    y = torch.empty_like(x)
    clock = Clock(device, seconds)
    clock.calibrate(lambda: y.copy_(x))
    return Copy(_name(dtype), size, median(clock(lambda: y.copy_(x)) for _ in range(repeats)))


def _row(
    row: Row,
    size: int,
    dtype: torch.dtype,
    device: str,
    contenders: Sequence[str],
    repeats: int,
    seconds: float,
    torchs: Apart,
    ours: Apart,
) -> Iterator[Timing]:
    runs = {
        name: (torchs if name.startswith("torch") else ours).run(row, size, dtype, device, name, seconds)
        for name in contenders
    }
    found: dict[str, list[tuple[float, float, float]]] = {name: [] for name in contenders}
    for _ in range(repeats):
        for name, run in runs.items():  # by turns, so that what disturbs one disturbs all
            found[name].append(run.once())
    for name, run in runs.items():
        forward, backward, both = (median(each) for each in zip(*found[name], strict=True))
        yield Timing(row.name, name, _name(dtype), size, forward, backward, both, run.kept())
