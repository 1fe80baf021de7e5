"""One contender of `zoo.py`, in a process of its own: training steps of torchvision's models under one convention.

Reads questions from the standard input and answers each with a line, both in JSON. Under ``torch`` subgrad is not
imported: kernels that a convention has registered stay, and would be measured as torch's own.
"""

from __future__ import annotations

import gc
import json
import os
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
import torchvision
from torch import Tensor, nn

CORES = 4  # for Python, and for the thread of autograd


class Worker:
    """A model, its batch and its optimizer."""

    def __init__(self, convention: str, device: str):
        self.convention, self.device = convention, device
        if device == "cpu":
            torch.set_num_threads(1)

    def make(self, name: str, batch: int, pixels: int, dtype: str, compiled: bool) -> None:
        torch.manual_seed(0)
        given = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
        model = torchvision.models.get_model(name, weights=None, **given)
        model = model.to(self.device, getattr(torch, dtype)).to(memory_format=torch.channels_last).train()
        self.optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        self.model: Any = torch.compile(model) if compiled else model
        x = torch.randn(batch, 3, pixels, pixels, device=self.device, dtype=getattr(torch, dtype))
        self.x = x.contiguous(memory_format=torch.channels_last)
        self.labels = torch.randint(0, 1000, (batch,), device=self.device)
        for _ in range(3):
            self.step()
        self._wait()
        if self.device == "cuda":
            self._share_cores()

    def _share_cores(self) -> None:
        """All contenders have the same cores, since they take turns; by now there is the thread of autograd, too."""
        cores = sorted(os.sched_getaffinity(0))[:CORES]
        for thread in os.listdir("/proc/self/task"):
            os.sched_setaffinity(int(thread), cores)

    def step(self) -> None:
        with self._scope():
            self.optimizer.zero_grad(set_to_none=True)
            out = self.model(self.x)
            # Some return what auxiliary classifiers say as well.
            outs = [out] if isinstance(out, Tensor) else [each for each in out if isinstance(each, Tensor)]
            sum(
                (nn.functional.cross_entropy(each.float(), self.labels) for each in outs),
                start=torch.zeros((), device=self.device),
            ).backward()
            self.optimizer.step()

    def turn(self) -> list[float]:
        """Milliseconds of a step: in all, of the host, and of the device, which the host does not keep waiting."""
        self._wait()
        begin = time.perf_counter()
        self.step()
        of_host = time.perf_counter() - begin
        self._wait()
        in_all = time.perf_counter() - begin
        return [in_all * 1e3, of_host * 1e3, self._of_device(of_host) if self.device == "cuda" else in_all * 1e3]

    def _of_device(self, of_host: float) -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(int(3e9 * of_host))  # one and a half times as long, at 2 GHz
        begin.record()
        self.step()
        end.record()
        self._wait()
        return begin.elapsed_time(end)

    def peak(self) -> int:
        """Bytes on the device, in a step, over what the model and its batch hold."""
        if self.device != "cuda":
            return 0
        self._wait()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        self.step()
        self._wait()
        return torch.cuda.max_memory_allocated() - before

    def drop(self) -> None:
        del self.model, self.optimizer, self.x, self.labels
        torch.compiler.reset()
        gc.collect()
        if self.device == "cuda":
            torch.cuda.empty_cache()

    def _scope(self) -> AbstractContextManager[Any]:
        if self.convention == "torch":
            return nullcontext()
        import subgrad

        name, plus, _ = self.convention.partition("+")  # as in min-norm+strong-zero
        return subgrad.use(name, strong_zero=True) if plus else subgrad.use(name)

    def _wait(self) -> None:
        if self.device == "cuda":
            torch.cuda.synchronize()


def main() -> None:
    worker = Worker(*sys.argv[1:])
    for line in sys.stdin:
        name, *arguments = json.loads(line)
        try:
            answer = [getattr(worker, name)(*arguments), None]
        except Exception as error:
            answer = [None, f"{type(error).__name__}: {error}"]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
