"""Steps that are bound by Python, on the CPU with one thread: a small perceptron, and forms that conventions change.

    python benchmarks/small_steps.py [--convention torch-2.13] [--repeats 30] [--json out.json]

Every contender is a process of its own, since kernels that a convention has registered stay for a while; they take
turns. Ratios are medians over turns to torch in a process without subgrad; a second process of the same kind shows the
noise. "After" is the same code once the last ``use`` has ended, where another thread keeps the kernels from being given
back, as within the first thousands of calls; "later" where they have been. "Audited" is with an audit behind it. Times
are those of a core, whoever else is on the machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

NOT_BUILT = ("not built", "not built, after", "not built, later")
CONTENDERS = ("torch", "torch again", *NOT_BUILT, "built", "built, after", "built, audited")

ANEW = "a Convention made anew"


def programs() -> dict[str, Callable[[], Any]]:
    import torch
    from torch import nn

    class Clamped(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.maximum(x.clamp(-1, 1), floor)

    floor = torch.tensor(-0.5)
    model = nn.Sequential(nn.Linear(64, 64), Clamped(), nn.Linear(64, 64), Clamped(), nn.Linear(64, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    rows, labels = torch.randn(32, 64), torch.randint(0, 10, (32,))

    def step() -> None:
        optimizer.zero_grad(set_to_none=True)
        nn.functional.cross_entropy(model(rows), labels).backward()
        optimizer.step()

    found: dict[str, Callable[[], Any]] = {"perceptron": step}
    for size in (16, 1 << 20):
        x, zeros, low = torch.randn(size, requires_grad=True), torch.zeros(size), torch.full((size,), -0.5)
        v = torch.randn(size)
        forms: dict[str, Callable[..., torch.Tensor]] = {
            "clamp(-1, 1)": lambda x=x: x.clamp(-1, 1),
            "clamp(min=tensor)": lambda x=x, low=low: x.clamp(min=low),
            "maximum(x, zeros)": lambda x=x, zeros=zeros: torch.maximum(x, zeros),
        }
        for name, form in forms.items():
            found[f"{name}, {size}"] = lambda form=form, x=x, v=v: torch.autograd.grad(form(), x, v)
    x, v = torch.randn(16, requires_grad=True), torch.randn(16)
    found[ANEW] = lambda: [torch.autograd.grad(x.clamp(-1, 1), x, v) for _ in range(17)]
    found["17 bounds in turn"] = lambda: [torch.autograd.grad(x.clamp(-1 - bound / 17, 1), x, v) for bound in range(17)]
    return found


def anew(found: dict[str, Callable[[], Any]], convention: str) -> None:
    """Of the program of this name every step has a convention of its own, though they are equal."""
    import subgrad

    step = found[ANEW]

    def run() -> None:
        with subgrad.use(subgrad.Convention(convention, relu=0.5)):
            step()

    found[ANEW] = run


def worker(contender: str, convention: str) -> None:
    import torch

    torch.set_num_threads(1)
    torch.manual_seed(0)
    found = programs()
    if not contender.startswith("torch"):
        import subgrad

        if contender.endswith("audited"):
            with subgrad.audit():
                found["perceptron"]()
        scope = subgrad.use(convention)
        scope.__enter__()
        is_over = contender.endswith(("after", "later"))
        if not is_over:
            anew(found, convention)
        for run in found.values():
            run()
        if is_over:
            scope.__exit__()
            leave_alone(contender)
    for line in sys.stdin:
        name, count = json.loads(line)
        run = found[name]
        run()
        begin = time.process_time()
        for _ in range(count):
            run()
        print((time.process_time() - begin) / count, flush=True)


def leave_alone(contender: str) -> None:
    """Let kernels that nobody needs be given back, or keep them."""
    import torch

    from subgrad.apply import dispatch

    if contender.endswith("after"):
        return threading.Thread(target=threading.Event().wait, daemon=True).start()
    x = torch.zeros(1, requires_grad=True)
    for _ in range(1 << 13):
        x.clamp(-1, 1)
    assert not dispatch.registered.forms


class Apart:
    def __init__(self, contender: str, convention: str):
        front = {} if contender.startswith("built") else {"TORCH_EXTENSIONS_DIR": "/nowhere"}
        command = [sys.executable, str(Path(__file__)), "--worker", contender, "--convention", convention]
        environment = {**os.environ, **front, "PYTHONHASHSEED": "0"}
        self.process = subprocess.Popen(
            command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, name: str, count: int) -> float:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps((name, count)) + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--convention", default="torch-2.13")
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return worker(options.worker, options.convention)
    import torch

    print(f"torch {torch.__version__}, {options.convention}, one thread, ratios to torch, medians of {options.repeats}")
    print(f"{'':26} {'torch us':>9}", *(f"{each:>17}" for each in CONTENDERS[1:]))
    apart, rows = {each: Apart(each, options.convention) for each in CONTENDERS}, []
    for name in programs():
        count = 2 if str(1 << 20) in name else 50
        turns = [{each: apart[each].ask(name, count) for each in CONTENDERS} for _ in range(options.repeats)]
        ratios = {each: median(turn[each] / turn["torch"] for turn in turns) for each in CONTENDERS[1:]}
        own = median(turn["torch"] for turn in turns) * 1e6
        print(f"{name:26} {own:9.1f}", *(f"{ratios[each]:17.2f}" for each in CONTENDERS[1:]), flush=True)
        rows.append({"program": name, "torch microseconds": own, "ratios": ratios})
    for each in apart.values():
        each.process.kill()
    if options.json:
        record = {
            "machine": "CPU, 1 thread",
            "torch": str(torch.__version__),
            "command": " ".join(["python", *sys.argv]),
        }
        record |= {"convention": options.convention, "programs": rows}
        options.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
