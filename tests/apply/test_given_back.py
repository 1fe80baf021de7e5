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
    assert bool(frames(x.relu)) == bool(dispatch.registered.forms)
    return bool(dispatch.registered.forms)

def give_back():
    dispatch._idle = iter(())
    x.relu()
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


INTERRUPT = """
dispatch.KEYS = dispatch.STRONG_ZERO_KEYS = ("AutogradCPU",)  # so that registering takes milliseconds

def is_cut_short(function, at, do):
    '''Whether a function calls something in C more often than n times; then, do something when the n-th call is over.

    That is where Python raises what Ctrl-C raises, and calls handlers of signals.
    '''
    left = iter(range(at))
    was_done = []
    def profile(frame, event, _):
        if event == "c_return" and next(left, None) is None:
            sys.setprofile(None)
            was_done.append(True)
            do()
    sys.setprofile(profile)
    try:
        function()
    except KeyboardInterrupt:
        pass
    finally:
        sys.setprofile(None)
    return bool(was_done)

def stop():
    raise KeyboardInterrupt

def enter():
    with subgrad.use("right"):
        if slopes() != [0.0, 3.0, 5.0]:
            wrong.append("inside")

def listed(x):
    return torch._foreach_clamp_min([x], 0.0)[0]

def is_right():
    forms = (torch.relu, lambda x: x.clone().relu_(), lambda x: x.clamp(min=0.0), listed)
    with subgrad.use("right"):
        under = [slopes(form) for form in forms]
    return under == [[0.0, 3.0, 5.0]] * 4 and slopes() == [0.0, 0.0, 5.0]
"""


@pytest.mark.parametrize("do", ["stop", "enter"])
def test_whatever_comes_in_between_while_they_are_given_back(do: str) -> None:
    """As in a notebook, whose user stops a cell; or from a finaliser: what was begun ends, or begins anew."""
    program = """
wrong, at = [], 0
with subgrad.use("right"): pass
while is_cut_short(give_back, at, DO):
    if not is_right():
        wrong.append(at)
    give_back()
    if is_registered() or not is_right():
        wrong.append(at)
    at += 1 if at < 24 else 41
print(at > 200, wrong)
"""
    assert run(INTERRUPT + program.replace("DO", do)) == ["True []"]


@pytest.mark.parametrize("do", ["stop", "enter"])
def test_whatever_comes_in_between_while_they_are_registered(do: str) -> None:
    program = """
def first():
    with subgrad.use("mean"): pass
wrong, at = [], 0
while is_cut_short(first, at, DO):
    with subgrad.use("mean"):
        if slopes() != [0.0, 1.5, 5.0]:
            wrong.append(at)
    if not is_right():
        wrong.append(at)
    give_back()
    if is_registered():
        wrong.append(at)
    at += 1 if at < 16 else 173
print(at > 1000, wrong)
"""
    assert run(INTERRUPT + program.replace("DO", do)) == ["True []"]


def test_a_block_that_is_interrupted_while_it_is_entered_is_not_entered() -> None:
    program = """
def enter_and_leave():
    with subgrad.use("mean"): pass
enter_and_leave()
left, at = [], 0
while is_cut_short(enter_and_leave, at, stop):
    if subgrad.active() != subgrad.Convention("torch"):
        left.append(at)
    at += 1
print(at > 10, left)
"""
    assert run(INTERRUPT + program) == ["True []"]


@pytest.mark.parametrize("at", [300, 1500, 3000])
def test_strong_zeros_are_complete_though_what_registers_them_was_cut_short(at: int) -> None:
    program = """
def strong():
    with subgrad.use("torch", strong_zero=True):
        y = torch.tensor([0.0, 1.0], requires_grad=True)
        out = (y.sqrt() * y.log() * torch.tensor([0.0, 1.0]))
        return torch.autograd.grad(torch.where(y > 0, out, 0).sum(), y)[0].tolist()
print(is_cut_short(strong, AT, stop), strong())
"""
    assert run(INTERRUPT + program.replace("AT", str(at))) == ["True [0.0, 1.0]"]


def test_threads_that_python_has_not_started_by_its_own_module_count_too() -> None:
    program = """
import _thread
with subgrad.use("right"): pass
started, go_on, ended = (_thread.allocate_lock() for _ in range(3))
for each in (started, go_on, ended): each.acquire()

def other():
    started.release()
    go_on.acquire()
    ended.release()

_thread.start_new_thread(other, ())
started.acquire()
give_back()
print(threading.active_count(), is_registered())
go_on.release(), ended.acquire()
"""
    assert run(program) == ["1 True"]


def test_what_is_given_back_while_a_convention_is_being_entered_is_registered_again() -> None:
    """By a thread that nobody could see, say, and that has just found everything registered."""
    program = """
from subgrad.apply import scopes
from subgrad.apply.torch_compile import guards

with subgrad.use("right"): pass
scopes.before_entered.append(lambda _: give_back())  # called after `install`
with subgrad.use("right"): print(slopes(), is_registered())
scopes.before_entered.pop()
give_back()
print(is_registered())

with subgrad.use("right"): pass
guards.forget_unguarded_graphs = give_back  # the same
subgrad.set_default("right")
print(slopes(), is_registered())
"""
    assert run(program) == [f"{RIGHT} True", "False", f"{RIGHT} True"]


def test_a_thread_has_its_convention_while_another_runs_idle_calls() -> None:
    program = """
wrong = []

def other():
    for _ in range(300):
        with subgrad.use("right"):
            if slopes() != [0.0, 3.0, 5.0]:
                wrong.append("right")
        if slopes() != [0.0, 0.0, 5.0]:
            wrong.append("torch")

threads = [threading.Thread(target=other) for _ in range(3)]
for each in threads: each.start()
while any(each.is_alive() for each in threads): give_back()
give_back()
print(wrong, is_registered())
"""
    assert run(program) == ["[] False"]


def test_calls_that_are_not_over_return_through_kernels_that_are_gone() -> None:
    """At every level of `torch.func`, and where what a call runs registers them and gives them back, more than once."""
    program = """
from torch.func import grad, jvp, vmap

def f(x):
    dispatch._idle = iter(())
    return (torch.relu(x) * torch.nn.functional.relu6(x) * x).sum()

for _ in range(3):
    for transformed in (
        grad(f), grad(lambda x: (grad(f)(x) * v).sum()), vmap(grad(f)),
        lambda x: jvp(f, (x,), (v,))[1], lambda x: vmap(vmap(grad(lambda x: jvp(f, (x,), (x,))[1])))(x.view(1, 3, 1)),
    ):
        want = transformed(x.detach()).flatten().tolist()
        with subgrad.use("right"): pass
        print(transformed(x.detach()).flatten().tolist() == want, is_registered())

depth = 0

def pack(tensor):  # called inside of the kernel that saves something
    global depth
    if depth < 3:
        depth += 1
        for _ in range(2):
            with subgrad.use("right"): pass
            give_back()
            assert not is_registered()
    return tensor

with subgrad.use("right"): pass
with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
    y = torch.relu(x)
print(torch.autograd.grad(y, x, v)[0].tolist(), is_registered())
"""
    assert run(program) == ["True False"] * 15 + [f"{TORCHS} False"]


def test_they_stay_while_a_backward_runs_around_a_call() -> None:
    """Where it has threads of its own, in C++, these may be about to call one."""
    program = """
with subgrad.use("right"): pass
y = x * 1
y.register_hook(lambda _: give_back())

def hook(_):
    give_back()
    print(is_registered())

x.register_post_accumulate_grad_hook(hook)
y.sum().backward()
give_back()
print(is_registered())
"""
    assert run(program) == ["True", "False"]


def test_a_call_that_is_traced_does_not_give_them_back() -> None:
    """The graph that is being made has a guard already, or will have one."""
    program = """
from torch.fx.experimental.proxy_tensor import make_fx
with subgrad.use("right"): slopes()
dispatch._idle = iter(())
compiled = torch.compile(lambda x: x.relu() * 2, backend="aot_eager")
print(slopes(compiled), is_registered())
with subgrad.use("right"): print(slopes(compiled))
print(slopes(compiled))
"""
    assert run(program, ("torch", *COMPILER)) == ["[0.0, 0.0, 10.0] True", "[0.0, 6.0, 10.0]", "[0.0, 0.0, 10.0]"]


def test_what_torch_keeps_besides_finds_them_again() -> None:
    """TorchScript and `make_fx` keep graphs, asynchronous generators contexts."""
    program = """
from torch.fx.experimental.proxy_tensor import make_fx

scripted = torch.jit.trace(lambda x: x.relu(), x)
made = make_fx(lambda x: x.relu())(x)
for turn in range(2):
    with subgrad.use("right"): print(slopes(scripted), slopes(made))
    give_back()
    print(is_registered(), slopes(scripted), slopes(made))

async def values():
    with subgrad.use("right"):
        yield slopes()
        yield slopes()

async def main():
    each = values()
    print(await each.__anext__())
    entered = contextvars.copy_context()
    contextvars.Context().run(give_back)
    print(is_registered(), await each.__anext__())
    await each.aclose()

asyncio.run(main())
give_back()
print(is_registered())
"""
    assert run(program) == [
        *(f"{RIGHT} {RIGHT}", f"False {TORCHS} {TORCHS}") * 2,
        f"{RIGHT}",
        f"True {RIGHT}",
        "False",
    ]


def test_workers_of_a_loader_are_processes_with_kernels_of_their_own() -> None:
    program = """
class Rows(torch.utils.data.Dataset):
    def __len__(self): return 4
    def __getitem__(self, index):
        give_back()
        own = slopes()
        with subgrad.use("right"): return torch.tensor([own, slopes()])

for registered in (False, True):
    if registered:
        with subgrad.use("right"): pass
    loader = torch.utils.data.DataLoader(Rows(), batch_size=4, num_workers=2, multiprocessing_context="fork")
    print([rows.flatten(0, 1).tolist() for rows in loader])
"""
    assert run(program) == [f"[{[TORCHS, RIGHT] * 4}]"] * 2
