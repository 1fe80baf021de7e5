"""The measuring: contenders by turns, medians over repeats, each kind in a process of its own."""

from __future__ import annotations

import platform
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import product
from pathlib import Path
from statistics import median
from typing import Any

import torch

from subgrad.bench.contender import Clock
from subgrad.bench.rows import Row
from subgrad.bench.worker import Apart, ApartRun
from subgrad.conventions import Convention, convention
from subgrad.kernels.native import build

CONTENDERS = ("torch", "subgrad")
COMPILED = ("torch, compiled", "subgrad, compiled")
AGAIN = "torch, again"  # in one more process, of which all is equal: how far apart equal things are measured here
RIVALS = {ours: torchs for torchs, ours in (CONTENDERS, COMPILED)} | {AGAIN: "torch"}  # what each is held against
TURNS = 8  # in one set of processes
Key = tuple[str, str, str, int]  # row, contender, dtype, size
Turn = tuple[float, float, float]  # milliseconds of forward, backward, both


@dataclass(frozen=True)
class Timing:
    """One row of one contender: medians, in milliseconds, and the bytes held between forward and backward.

    Attributes:
        ratio: the time of both of its rival over its own, turn by turn: the median of that. What is fast in half of all
            turns and slow in the others has a median that is anywhere between; turns side by side are mostly alike.
    """

    row: str
    contender: str
    dtype: str
    size: int
    forward: float
    backward: float
    both: float
    kept: int
    ratio: float | None = None


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
    threads = torch.get_num_threads()
    return f"{_processor()}, {threads} thread{'s' if threads > 1 else ''}"


def _processor() -> str:
    known = Path("/proc/cpuinfo")  # where Python does not say more than the architecture
    lines = known.read_text().splitlines() if known.exists() else []
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return models[0] if models else platform.processor() or platform.machine()


def benchmark(
    rows: Iterable[Row],
    sizes: Sequence[int],
    dtypes: Sequence[torch.dtype],
    device: str = "cpu",
    like: str | Convention = "min-norm",
    contenders: Sequence[str] = CONTENDERS,
    repeats: int = 24,
    seconds: float | None = None,
    plain: bool = False,
    command: str = "",
    progress: Callable[[str], None] = lambda _: None,
    measured: Callable[[Benchmark], None] = lambda _: None,
) -> Benchmark:
    """Measure rows side by side.

    Args:
        like: the convention that the contenders "subgrad" run under.
        repeats: how often each contender has its turn.
        seconds: about how long a turn is, at least; if not given, longer on a GPU, where short ones read wrong.
        plain: in processes as they are started: with the allocator as it comes, and with what they did before.
        progress: told what is being measured.
        measured: given the record of all there is, after every row.
    """
    chosen = convention(like)
    seconds = seconds or (0.005 if device == "cpu" else 0.03)
    copies: dict[tuple[str, int], list[float]] = {}
    times: dict[Key, list[Turn]] = {}
    kept: dict[Key, int] = {}

    def record() -> Benchmark:
        return Benchmark(
            machine(device),
            str(torch.__version__),
            str(chosen),
            command,
            tuple(Copy(*key, median(found)) for key, found in copies.items()),
            tuple(_timing(key, times, kept[key]) for key in times),
            build.is_used(),
        )

    for turns in rounds(repeats, device, contenders):
        torchs, ours, again = (Apart(each, plain) for each in (Convention("torch"), chosen, Convention("torch")))
        with torchs, ours, again:
            for dtype, size in product(dtypes, sizes):
                copies.setdefault((_name(dtype), size), []).extend(_copies(size, dtype, device, turns, seconds))
                for row in rows:
                    progress(f"{row.name}, {size:,} {_name(dtype)}")
                    try:
                        runs = _runs(row, size, dtype, device, contenders, seconds, torchs, ours, again)
                        found = list(_by_turns(runs, turns))
                    except RuntimeError as error:
                        if "not implemented" not in str(error):
                            raise
                        progress(f"{row.name}: {_name(dtype)} is not for it ({error})")  # as hypot in float16 on a CPU
                    else:
                        kept |= {key: run.kept() for key, run in runs.items()}
                        for key, turn in found:
                            times.setdefault(key, []).append(turn)
                    measured(record())
    return record()


def _runs(
    row: Row,
    size: int,
    dtype: torch.dtype,
    device: str,
    contenders: Sequence[str],
    seconds: float,
    torchs: Apart,
    ours: Apart,
    again: Apart,
) -> dict[Key, ApartRun]:
    def apart(contender: str) -> Apart:
        return again if contender == AGAIN else torchs if contender.startswith("torch") else ours

    return {
        (row.name, name, _name(dtype), size): apart(name).run(row, size, dtype, device, name, seconds)
        for name in contenders
    }


def _by_turns(runs: dict[Key, ApartRun], turns: int) -> Iterator[tuple[Key, Turn]]:
    """Short turns, of which no contender always has the first: what disturbs one disturbs all."""
    order = deque(runs.items())
    for _ in range(turns):
        yield from ((key, run.once()) for key, run in order)
        order.rotate()


def _timing(key: Key, times: dict[Key, list[Turn]], kept: int) -> Timing:
    row, contender, dtype, size = key
    forward, backward, both = (median(each) for each in zip(*times[key], strict=True))
    rival = (row, RIVALS.get(contender, ""), dtype, size)
    ratio = _ratio(times[rival], times[key]) if rival in times else None
    return Timing(row, contender, dtype, size, forward, backward, both, kept, ratio)


def _ratio(rival: Sequence[Turn], own: Sequence[Turn]) -> float:
    return median(one[-1] / other[-1] for one, other in zip(rival, own, strict=True))


def rounds(repeats: int, device: str, contenders: Sequence[str]) -> list[int]:
    """How many turns each has in one set of processes after the other.

    How fast a process is on a CPU depends on where its memory happens to lie. To compile takes too long to do it often.
    """
    count = -(-repeats // TURNS) if device == "cpu" and not set(contenders) & set(COMPILED) else 1
    return [repeats // count + (each < repeats % count) for each in range(count)]


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _copies(size: int, dtype: torch.dtype, device: str, repeats: int, seconds: float) -> list[float]:
    x = torch.randn(size, dtype=dtype, device=device)
    y = torch.empty_like(x)
    clock = Clock(device, seconds)
    clock.calibrate(lambda: y.copy_(x))
    return [clock(lambda: y.copy_(x)) for _ in range(repeats)]
