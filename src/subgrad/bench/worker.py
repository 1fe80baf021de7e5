"""Contenders in processes of their own: torch's in one where no kernel of ours is registered, ours in one just like it.

They take turns: one waits while the other is measured. Earlier work slows a process down, so on a CPU every turn is a
child of one that has done nothing yet. "Plain" processes have all of that, as those of users do.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from typing import Any, NoReturn

import torch

from subgrad.apply.use import use
from subgrad.bench.contender import Run
from subgrad.bench.rows import Row, rows
from subgrad.conventions import Convention

CAN_FORK = sys.platform == "linux"  # where what torch has loaded survives it
_SERVE = "from subgrad.bench.worker import serve; serve()"
# Memory that is freed stays with the process, and is used again at once: else what is measured on a CPU is how pages
# come back, or how many places a result goes round in (glibc keeps seven pieces from each of its lists).
_KEEPING = {
    "MALLOC_MMAP_THRESHOLD_": str(1 << 30),
    "MALLOC_TRIM_THRESHOLD_": str(1 << 40),
    "GLIBC_TUNABLES": "glibc.malloc.tcache_count=0",
}


class Apart:
    """One such process, from the first contender in it until the block is left."""

    def __init__(self, convention: Convention, plain: bool = False) -> None:
        self._convention, self._plain = convention, plain
        self._process: subprocess.Popen[str] | None = None

    def run(self, row: Row, size: int, dtype: torch.dtype, device: str, contender: str, seconds: float) -> ApartRun:
        self.ask("make", row.name, size, str(dtype).removeprefix("torch."), device, contender, seconds)
        return ApartRun(self, contender)

    def ask(self, *question: Any) -> Any:
        """Send a question, and wait for the answer.

        Raises:
            RuntimeError: what was raised there.
        """
        process = self._process = self._process or _started(self._convention, self._plain)
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.write(json.dumps(question) + "\n")
        process.stdin.flush()
        answer = process.stdout.readline()
        if not answer:
            raise RuntimeError(f"the process that measures {self._convention} ended with status {process.wait()}")
        return _found(answer)

    def __enter__(self) -> Apart:
        return self

    def __exit__(self, *exception: object) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.communicate()


def _found(answer: str) -> Any:
    found, error = json.loads(answer)
    if error:
        raise RuntimeError(error)
    return found


class ApartRun:
    """A contender there, as `Run` is here."""

    def __init__(self, apart: Apart, contender: str):
        self._apart, self._contender = apart, contender

    def once(self) -> tuple[float, float, float]:
        return self._apart.ask("once", self._contender)

    def kept(self) -> int:
        return self._apart.ask("kept", self._contender)


def _started(convention: Convention, plain: bool) -> subprocess.Popen[str]:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONUNBUFFERED": "1"}
    environment |= {} if plain else _KEEPING
    command = [sys.executable, "-W", "ignore", "-c", _SERVE]
    # Its own session: an interrupt is for who started it, and that ends it.
    process = subprocess.Popen(
        command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert process.stdin is not None
    chosen = (convention.base, convention.overrides, convention.surrogate, convention.strong_zero)
    settings = (plain, torch.get_num_threads(), *chosen)
    process.stdin.write(json.dumps(settings) + "\n")
    return process


def serve() -> None:
    """The other end: answers to questions, a line each; whatever else is printed goes to the errors."""
    answers = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    plain, threads, *chosen = json.loads(sys.stdin.readline())
    torch.set_num_threads(threads)
    convention = Convention(*chosen)
    with use(convention):  # which registers what it needs
        pass
    runs: dict[str, Run | Forked] = {}
    for line in sys.stdin:
        try:
            answer = _answer(convention, runs, CAN_FORK and not plain, *json.loads(line)), None
        except RuntimeError as error:
            answer = None, str(error)
        print(json.dumps(answer), file=answers, flush=True)


def _answer(convention: Convention, runs: dict[str, Run | Forked], forks: bool, what: str, *rest: Any) -> Any:
    if what == "make":
        name, size, dtype, device, contender, seconds = rest
        (row,) = rows([name])
        torch.compiler.reset()  # else Dynamo would give up: too many functions of one code
        inputs = row.inputs(size, getattr(torch, dtype), device)
        noise = torch.randn_like(inputs[0], requires_grad=False)
        make = partial(Run, row, inputs, noise, contender, convention, device, seconds)
        runs[contender] = Forked(make) if forks and device == "cpu" and "compiled" not in contender else make()
        return None
    return getattr(runs[rest[0]], what)()


class Forked:
    """A contender made anew for every question, in a process of its own.

    How fast a CPU is with some memory depends on where that lies, pages included, which a process keeps.
    """

    def __init__(self, make: Callable[[], Run]):
        self._make = make

    def once(self) -> Any:
        return self._answer("once")

    def kept(self) -> Any:
        return self._answer("kept")

    def _answer(self, what: str) -> Any:
        readable, writable = os.pipe()
        child = os.fork()
        if child == 0:
            self._tell(what, writable)
        os.close(writable)
        with os.fdopen(readable) as told:
            answer = told.read()
        _, status = os.waitpid(child, 0)
        if not answer:
            raise RuntimeError(f"the process of one turn ended with status {status}")
        return _found(answer)

    def _tell(self, what: str, to: int) -> NoReturn:
        """In the child, which ends here whatever is raised."""
        try:
            answer: tuple[Any, str | None] = getattr(self._make(), what)(), None
        except BaseException as error:
            answer = None, f"{type(error).__name__}: {error}"
        os.write(to, json.dumps(answer).encode())
        os._exit(0)
