"""One contender: a row under a convention, timed, and what it keeps for its backward."""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from random import Random
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.use import use
from subgrad.bench.rows import Row
from subgrad.conventions import Convention
from subgrad.torch_internals.settings import gpu_sleep, keeping_buffers


class Run:
    """A contender, warmed up."""

    def __init__(
        self,
        row: Row,
        inputs: list[Tensor],
        noise: Tensor,
        contender: str,
        chosen: Convention,
        device: str,
        seconds: float,
    ):
        """``noise`` is what the cotangent is made of: an entry for each of an input, of which results have no more."""
        self.row, self.inputs, self.device = row, inputs, device
        self.scope = partial(use, chosen)
        self.call: Callable[..., Tensor] = torch.compile(row.call) if "compiled" in contender else row.call
        self.clock = Clock(device, seconds)
        self.random, self.gaps = Random(), [torch.empty(0)]
        with self.scope(), keeping_buffers():
            out = self.forward()
            self.cotangent = noise[: out.numel()].view_as(out)
            self.clock.calibrate(self.both)

    def forward(self) -> Tensor:
        # What overwrites its input is given one of its own, in every contender.
        return self.call(*(each + 0 for each in self.inputs)) if self.row.in_place else self.call(*self.inputs)

    def both(self) -> None:
        torch.autograd.grad(self.forward(), self.inputs, self.cotangent)

    def once(self) -> tuple[float, float, float]:
        if self.device == "cpu":
            self._move()
        with self.scope(), keeping_buffers():
            self.clock.once(self.both)  # memory that is used for the first time is slow
            return self.clock(self.forward), self._backward(), self.clock(self.both)

    def _move(self) -> None:
        """Put everything elsewhere, at random: where memory lies makes a difference on a CPU, and is to even out."""
        gaps = self.gaps
        self.gaps = [torch.empty(self.random.randrange(1 << 14)) for _ in range(8)]
        self.inputs = [each.detach().clone().requires_grad_(each.requires_grad) for each in self.inputs]
        self.cotangent = self.cotangent.clone()
        del gaps

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


class Clock:
    """Milliseconds of a call: enough of them in a row to fill the wanted time, and of three such rows the fastest.

    What else a machine does slows down some of them, for moments.
    """

    def __init__(self, device: str, seconds: float):
        self._device, self._seconds, self._calls, self._is_long = device, seconds, 1, False

    def calibrate(self, call: Callable[[], Any]) -> None:
        for _ in range(3):
            call()
        milliseconds = self.once(call)
        while self._calls < 1000 and self._calls * milliseconds < self._seconds * 1e3:
            self._calls *= 2
            milliseconds = self.once(call)
        self._is_long = milliseconds > 0.2

    def __call__(self, call: Callable[[], Any]) -> float:
        return min(self.once(call) for _ in range(3))

    def once(self, call: Callable[[], Any]) -> float:
        with _without_collections():
            if self._device == "cpu":
                return self._by_host(call)
            call()  # for which the device leaves another process, and wakes up
            torch.cuda.synchronize()
            return self._by_device(call) if self._is_long else self._by_host(call, torch.cuda.synchronize)

    def _by_host(self, call: Callable[[], Any], wait: Callable[[], None] = lambda: None) -> float:
        begin = time.perf_counter()
        for _ in range(self._calls):
            call()
        wait()
        return (time.perf_counter() - begin) * 1e3 / self._calls

    def _by_device(self, call: Callable[[], Any]) -> float:
        """Without launches: what takes long is queued behind something, so that the device never idles."""
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        gpu_sleep(1_000_000)
        start.record()
        for _ in range(self._calls):
            call()
        end.record()
        torch.cuda.synchronize()
        return start.elapsed_time(end) / self._calls


@contextmanager
def _without_collections() -> Iterator[None]:
    """Python looks for garbage after so many objects: in every turn of a contender at the same place."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
