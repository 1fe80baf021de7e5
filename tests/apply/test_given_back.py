"""Kernels that nobody can come to need are given back: torch's own run as if there had been no convention at all.

Everything that may still put one in force keeps them, or has them registered again. In processes of their own, without
the C++ part, which lies over kernels for good.
"""

from __future__ import annotations

import pytest
from fresh import COMPILER, run_fresh

PREAMBLE = """
import asyncio, contextvars, sys, threading, torch, subgrad
from subgrad.apply import dispatch
from torch.utils.checkpoint import checkpoint

dispatch._patience = 64  # calls, so that tests are quick
x, v = torch.tensor([-1.0, 0.0, 2.0], requires_grad=True), torch.tensor([2.0, 3.0, 5.0])

def slopes(function=torch.relu):
    return torch.autograd.grad(function(x), x, v)[0].tolist()

def frames(function):
    seen = []
    sys.setprofile(lambda frame, event, _: seen.append(frame.f_code.co_filename) if event == "call" else None)
    function()
    sys.setprofile(None)
    return sum("subgrad" in each for each in seen)

def idle(calls=128):
    for _ in range(calls):
        x.relu()

def is_registered():
    assert bool(frames(x.relu)) == bool(dispatch.REGISTERED)
    return bool(dispatch.REGISTERED)
"""

NOWHERE = "/nowhere"  # where no C++ part is built
TORCHS, RIGHT, MEAN = [0.0, 0.0, 5.0], [0.0, 3.0, 5.0], [0.0, 1.5, 5.0]


def run(program: str, imported: tuple[str, ...] = ("torch",)) -> list[str]:
    done = run_fresh(PREAMBLE + program, imported=imported, TORCH_EXTENSIONS_DIR=NOWHERE)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_after_many_calls_without_a_convention_torch_runs_its_own_kernels() -> None:
    program = """
with subgrad.use("right"):
    print(slopes(), is_registered())
idle(50)
print(is_registered())
idle()
print(is_registered(), slopes())
with subgrad.use("mean"):
    print(is_registered(), slopes(), slopes(lambda x: x.clone().relu_()), slopes(lambda x: torch._foreach_abs([x])[0]))
    idle()
    print(is_registered())
idle()
print("who comes back waits longer", is_registered())
idle(512)
print(is_registered(), slopes())
subgrad.set_default("right")
idle(2048)
print(is_registered(), slopes())
"""
    assert run(program) == [
        f"{RIGHT} True",
        "True",
        f"False {TORCHS}",
        f"True {MEAN} {MEAN} [-2.0, 0.0, 5.0]",
        "True",
        "who comes back waits longer True",
        f"False {TORCHS}",
        f"True {RIGHT}",
    ]


def test_whoever_may_still_put_a_convention_in_force_keeps_them_or_has_them_again() -> None:
    program = """
async def later(): return slopes()
async def task():
    with subgrad.use("right"):
        created = asyncio.create_task(later())
    idle()
    return await created
print("task", asyncio.run(task()))

with subgrad.use("right"):
    copied = contextvars.copy_context()
idle()
print("copied context", copied.run(slopes))
del copied

def driven():
    with subgrad.use("right"):
        yield
        yield slopes()
generator = driven()
next(generator)
contextvars.Context().run(idle)
print("another context", is_registered(), next(generator))
generator.close()

ended = threading.Event()
thread = threading.Thread(target=ended.wait)
thread.start()
idle()
print("thread", is_registered())
ended.set()
thread.join()

for reentrant in (False, True):
    with subgrad.use("right"):
        out = checkpoint(torch.relu, x, use_reentrant=reentrant)
    idle(2048)
    print("checkpoint", is_registered(), torch.autograd.grad(out, x, v)[0].tolist() if not reentrant else None)
    if reentrant:
        out.backward(v)
        print(x.grad.tolist())
idle(8192)
print(is_registered(), subgrad.functional.relu(x, convention="right").grad_fn is not None, is_registered())
print(slopes(lambda x: subgrad.functional.relu(x, convention="right")))
"""
    assert run(program) == [
        f"task {RIGHT}",
        f"copied context {RIGHT}",
        f"another context True {RIGHT}",
        "thread True",
        f"checkpoint False {RIGHT}",
        "checkpoint False None",
        f"{RIGHT}",
        "False True True",
        f"{RIGHT}",
    ]


@pytest.mark.parametrize(
    "needed",
    [
        "with subgrad.use('right', strong_zero=True): slopes()",
        "torch.compile(lambda x: x.relu() * 2, backend='eager')(x)",
    ],
    ids=["strong zeros of higher order", "graphs whose guard says that none is in force"],
)
def test_they_stay_where_something_needs_them(needed: str) -> None:
    program = f"with subgrad.use('right'): slopes()\n{needed}\nidle()\nprint(is_registered(), slopes())"
    assert run(program, ("torch", *COMPILER)) == [f"True {TORCHS}"]


def test_what_is_compiled_after_they_were_given_back_is_compiled_once_more() -> None:
    program = """
with subgrad.use("right"):
    slopes()
idle()
compiled = torch.compile(lambda x: x.relu() * 2, backend="aot_eager")
print(is_registered(), slopes(compiled))
with subgrad.use("right"):
    print(slopes(compiled))
print(slopes(compiled))
idle(512)
print(is_registered(), slopes(compiled))
"""
    doubled, rights = [0.0, 0.0, 10.0], [0.0, 6.0, 10.0]
    found = run(program, ("torch", *COMPILER))
    assert found == [f"False {doubled}", f"{rights}", f"{doubled}", f"True {doubled}"]


def test_a_call_that_gives_them_back_ends_as_it_began() -> None:
    """It returns through a kernel that is gone, whoever called it."""
    program = """
from subgrad.apply import scopes
for turn in range(6):
    with subgrad.use("right"):
        slopes()
    dispatch._idle = iter(())
    out = torch.nn.functional.relu6(x) if turn % 2 else torch.relu(x)
    print(is_registered(), out.tolist(), torch.autograd.grad(out, x, v)[0].tolist())
"""
    assert run(program) == [f"False [0.0, 0.0, 2.0] {TORCHS}"] * 6
