"""The front gives what the kernels in Python give, to the bit, and no Python runs for a call like an earlier one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from contextvars import copy_context
from pathlib import Path
from threading import Barrier

import pytest
import torch
import torch.nn.functional as F
from fresh import run_fresh
from kernels.calls import CALLS, CONVENTIONS, DTYPES, IN_PLACE
from kernels.fronts import ONCE_ONLY, assert_same_as_in_python, run_unwatched, second_of_the_sum, without_front
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

import subgrad
from subgrad.apply import dispatch, executors
from subgrad.cli import main
from subgrad.kernels.native import build

pytestmark = pytest.mark.skipif(not build.is_used(), reason="needs `subgrad build`, and so a C++ compiler")


@pytest.fixture(autouse=True)
def every_kernel_is_registered() -> None:
    dispatch.install()


def slope(call: Callable[[Tensor], Tensor], at: float = 0.0) -> float:
    x = torch.tensor([at], requires_grad=True)
    return torch.autograd.grad(call(x * 1), x, torch.tensor([3.0]))[0].item() / 3


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", [*CALLS, *IN_PLACE])
def test_every_number_under_every_convention(name: str, dtype: torch.dtype) -> None:
    assert_same_as_in_python(name, dtype, "cpu")


@pytest.mark.parametrize("name", [name for name in (*CALLS, *IN_PLACE) if name not in ONCE_ONLY])
def test_where_torch_has_a_second_derivative_for_constant_cotangents_so_have_we(name: str) -> None:
    call, x = (CALLS | IN_PLACE)[name], torch.tensor([-3.0, -1.0, 0.0, 0.5, 1.0, 3.0, 6.0])
    wanted = second_of_the_sum(call, x)
    if wanted is None:
        return
    for convention in CONVENTIONS:
        with subgrad.use(convention):
            for _ in range(2):  # the first asks Python
                found = second_of_the_sum(call, x)
                assert found is not None
                assert torch.equal(found + 0 * x, wanted + 0 * x)


def test_no_python_runs_for_a_call_like_an_earlier_one() -> None:
    run_unwatched("cpu")


def test_every_convention_is_told_from_every_other() -> None:
    for _ in range(3):
        for convention, wanted in {"left": 0.0, "right": 1.0, "mean": 0.5, "min-norm": 0.0}.items():
            with subgrad.use(convention):
                assert slope(torch.relu) == wanted
                assert slope(lambda x: x.clamp(min=0)) == wanted
        assert slope(torch.relu) == 0
    subgrad.set_default("right")
    try:
        assert slope(torch.relu) == 1
        with subgrad.use("left"):
            assert slope(torch.relu) == 0
    finally:
        subgrad.set_default("torch")
    assert slope(torch.relu) == 0


def test_numbers_dtypes_and_who_is_differentiated_are_told_apart() -> None:
    x, y = torch.zeros(2, requires_grad=True), torch.zeros(2)
    g = torch.tensor([1.0, -2.0])
    with subgrad.use("min-norm"):
        for _ in range(2):
            (one,) = torch.autograd.grad(torch.maximum(x, y), x, g)
            (two,) = torch.autograd.grad(torch.maximum(x, y.requires_grad_()), x, g)
            y = y.detach()
            assert (one.tolist(), two.tolist()) == ([0, 0], [0.5, -1])
    with subgrad.use("torch-2.13"):
        for bound, wanted in ((0.0, 1.0), (-0.0, 1.0), (0.5, 0.0), (-1, 1.0), (0, 1.0)):
            for _ in range(2):
                assert slope(lambda x, bound=bound: x.clamp(min=bound)) == wanted
    with subgrad.use("min-norm"):
        for dtype in DTYPES:
            wide = torch.full((3,), 0.7, dtype=dtype, requires_grad=True)
            for _ in range(2):
                assert torch.autograd.grad(wide.clamp(max=0.7), wide, torch.ones(3, dtype=dtype))[0].dtype is dtype


def test_threads_do_not_see_each_others_convention() -> None:
    barrier = Barrier(4)

    def work(convention: str) -> set[float]:
        with subgrad.use(convention):
            found = set()
            for _ in range(200):
                barrier.wait(60)
                found.add(slope(lambda x: x.clamp(0, 1)))
            return found

    with ThreadPoolExecutor(4) as pool:
        assert list(pool.map(work, ("left", "right", "mean", "min-norm"))) == [{0.0}, {1.0}, {0.5}, {0.0}]


def test_tasks_do_not_see_each_others_convention() -> None:
    async def work(convention: str) -> set[float]:
        found = set()
        with subgrad.use(convention):
            for _ in range(50):
                found.add(slope(torch.relu))
                await asyncio.sleep(0)
        return found

    async def both() -> list[set[float]]:
        return await asyncio.gather(work("left"), work("right"))

    assert asyncio.run(both()) == [{0.0}, {1.0}]


def test_contexts_entered_and_left_by_hand() -> None:
    def inside() -> float:
        with subgrad.use("left"):
            return slope(torch.relu)

    def until_asked() -> Generator[float, None, None]:
        with subgrad.use("mean"):
            while True:
                yield slope(torch.relu)

    context, generator = copy_context(), until_asked()
    for _ in range(3):
        with subgrad.use("right"):
            assert slope(torch.relu) == 1
            assert context.run(inside) == 0
            assert context.run(slope, torch.relu) == 0  # torch's own: nothing was in force where it was copied
            assert slope(torch.relu) == 1
    assert next(generator) == 0.5
    assert slope(torch.relu) == 0.5  # a generator's own code leaves its `use` open between items
    generator.close()
    assert slope(torch.relu) == 0


@pytest.mark.parametrize("size", [(), (0,), (1,), (3, 0), (70000,), (4, 3, 5, 2), (2, 3, 129, 127)])
def test_shapes_and_layouts(size: tuple[int, ...]) -> None:
    base = (torch.randn(size) * 2).round()
    layouts = [base, base.mT if base.ndim > 1 else base, base.expand(3, *size), base.repeat(2, *(1,) * base.ndim)[::2]]
    if base.ndim == 4:
        layouts.append(base.to(memory_format=torch.channels_last))
    for x in layouts:
        constants = (x + 0.5).round()
        of_constants = (lambda y, low=constants: torch.maximum(y, low)), (lambda y, low=constants: y.clamp(min=low))
        for call in (
            lambda y: y.clamp(-1, 1),
            torch.relu,
            lambda y: torch.maximum(y, torch.tensor(1.0)),
            *of_constants,
        ):
            found = []
            for _ in range(3):
                leaf = x.detach().requires_grad_()
                with subgrad.use("right"):
                    out = call(leaf)
                cotangent = torch.arange(out.numel(), dtype=torch.float32).reshape(out.shape)
                for g in (cotangent, cotangent.mT.clone().mT if out.ndim > 1 else cotangent):
                    found.append((out, *torch.autograd.grad(out, leaf, g, retain_graph=True)))
            with without_front(), subgrad.use("right"):
                out = call(leaf)
                wanted = out, *torch.autograd.grad(out, leaf, cotangent)
            for each in found:
                for one, other in zip(each, wanted, strict=True):
                    torch.testing.assert_close(one, other, rtol=0, atol=0)
            assert found[-2][1].stride() == wanted[1].stride()


def test_forward_mode_transforms_and_batches_go_to_python() -> None:
    x = torch.tensor([0.0, 1.0, -1.0])
    with subgrad.use("right"):
        slope(torch.relu)
        assert torch.func.jvp(torch.relu, (x,), (x + 2,))[1].tolist() == [2, 3, 0]
        assert torch.func.grad(lambda x: (torch.relu(x) * (x + 2)).sum())(x).tolist() == [2, 4, 0]
        assert torch.func.vmap(torch.func.grad(torch.relu))(x).tolist() == [1, 1, 0]
        leaf = x.clone().requires_grad_()
        out = torch.relu(leaf)
        cotangents = torch.tensor([[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
        (rows,) = torch.autograd.grad(out, leaf, cotangents, is_grads_batched=True)
        assert rows.tolist() == [[1, 2, 0], [4, 5, 0]]
        (compiled,) = torch.autograd.grad(torch.compile(torch.relu, backend="aot_eager")(leaf), leaf, cotangents[0])
        assert compiled.tolist() == [1, 2, 0]


def test_what_is_overwritten_fails_as_with_torch() -> None:
    leaf = torch.zeros(3, requires_grad=True)
    with subgrad.use("right"):
        for _ in range(2):
            with pytest.raises(RuntimeError, match="leaf Variable"):
                leaf.clamp_(0, 1)
        y = leaf * 1
        y[:2].clamp_(0, 1)  # a view
        y.clamp_(0, 1)
        y.backward(torch.tensor([1.0, 2.0, 3.0]))
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [1, 2, 3]


@pytest.mark.parametrize("use_reentrant", [False, True])
def test_checkpoints_keep_the_same_the_first_time_and_later(use_reentrant: bool) -> None:
    for name in ("clamp", "relu", "relu6", "maximum, number", "leaky_relu"):
        x = torch.tensor([-1.0, 0.0, 0.5, 2.0], requires_grad=True)
        executors.forget()
        with subgrad.use("right"):
            out = checkpoint(lambda x, call=CALLS[name]: call(x) * 2, x, use_reentrant=use_reentrant)
            (found,) = torch.autograd.grad(out, x, torch.arange(1.0, 5)) if not use_reentrant else (None,)
            with without_front():
                (wanted,) = torch.autograd.grad(CALLS[name](x) * 2, x, torch.arange(1.0, 5))
        if use_reentrant:
            out.backward(torch.arange(1.0, 5))
            found = x.grad
        assert torch.equal(found, wanted)


def test_what_raises_is_not_remembered() -> None:
    x = torch.zeros(3, requires_grad=True)
    with subgrad.use("right"):
        for _ in range(3):
            with pytest.raises(RuntimeError, match="must match the size"):
                torch.maximum(x, torch.zeros(2))
        assert slope(torch.relu) == 1


def test_bounds_that_change_with_every_call() -> None:
    with subgrad.use("right"):
        for bound in range(100):
            assert slope(lambda x, bound=bound: x.clamp(min=bound / 7), at=bound / 7) == 1


COMPILED: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "clamp": lambda x: x.clamp(0, 1),
    "clamp_": lambda x: (x * 1).clamp_(0, 1),
    "relu_": lambda x: (x * 1).relu_(),
    "maximum": lambda x: torch.maximum(x, torch.zeros(2, 4)),
    "max_pool1d": lambda x: F.max_pool1d(x, 2),
    "max_pool2d": lambda x: F.max_pool2d(x[None], 2),
    "max_pool2d with indices": lambda x: F.max_pool2d(x[None], 2, return_indices=True)[0],
}


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_autograd(name: str) -> None:
    """Also where the input was written over, where second derivatives are zeros, and of functions with two outputs."""
    found = []
    for compiled in (False, True):
        x = torch.tensor([[-1.0, 0.0, 1.0, 1.0], [0.0, 0.0, 1.0, 2.0]], requires_grad=True)
        with subgrad.use("min-norm" if "pool" in name else "right"):
            for _ in range(2):
                out = COMPILED[name](x) * 3
        assert type(out.grad_fn.next_functions[0][0]).__name__ == "CppFunction"
        compiler = torch._dynamo.compiled_autograd._enable(torch.compile(backend="eager"))
        with compiler if compiled else nullcontext():
            out.backward(torch.arange(1.0, 1 + out.numel()).view_as(out))
        found.append(x.grad)
    assert torch.equal(*found)
    assert found[0] is not None
    assert found[0].any()


def test_unknown_modes_are_refused() -> None:
    with pytest.raises(ValueError, match=r"unknown mode 'off' of the front. Known: auto, never."):
        subgrad.kernels.set_front("off")


SHOWN = """
import torch, subgrad
x = torch.zeros(1, requires_grad=True)
with subgrad.use("right"):
    for _ in range(2):
        y = torch.relu(x)
print(type(y.grad_fn).__name__, torch.autograd.grad(y, x)[0].item())
"""


def test_without_it_all_is_the_same(tmp_path: Path) -> None:
    assert run_fresh(SHOWN, warn="always").stdout == "CppFunction 1.0\n"
    for variables in ({"TORCH_EXTENSIONS_DIR": str(tmp_path)}, {"SUBGRAD_FRONT": "never"}):
        without = run_fresh(SHOWN, warn="always", **variables)
        assert without.stdout.endswith(" 1.0\n")
        assert "CppFunction" not in without.stdout
        assert not without.stderr


def test_what_cannot_be_loaded_is_told_and_left(tmp_path: Path) -> None:
    broken = tmp_path / "subgrad" / build.library().name
    broken.parent.mkdir()
    broken.write_bytes(b"no library")
    done = run_fresh(SHOWN, warn="always", TORCH_EXTENSIONS_DIR=str(tmp_path))
    assert done.stdout.endswith(" 1.0\n")
    assert done.stderr.count("cannot be loaded") == 1
    assert "Delete it and run `subgrad build`." in done.stderr


def test_building_twice_builds_once(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["build"]) == 0
    assert capsys.readouterr().out == f"Built already: {build.library()}\n"


@pytest.mark.parametrize(
    ("variables", "message"),
    [
        ({"CXX": "no-such-compiler"}, "there is no C++ compiler: 'no-such-compiler' is not found."),
        ({"CXX": "false"}, "fast_path.cpp does not compile here: "),
    ],
)
def test_what_is_missing_is_named(variables: dict[str, str], message: str, tmp_path: Path) -> None:
    code = "from subgrad.cli import main; raise SystemExit(main(['build']))"
    done = run_fresh(code, warn="always", TORCH_EXTENSIONS_DIR=str(tmp_path), **variables)
    assert done.returncode == 1
    assert f"subgrad build: {message}" in done.stderr
    assert "Traceback" not in done.stderr
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]


def test_training_is_the_same_to_the_bit() -> None:
    def trained() -> list[Tensor]:
        torch.manual_seed(0)
        layers = nn.Linear(8, 16), nn.ReLU6(), nn.Linear(16, 16), nn.LeakyReLU(), nn.Linear(16, 4)
        model = nn.Sequential(*layers)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = (torch.randn(32, 8) * 2).round()
        with subgrad.use("right"):
            for _ in range(20):
                optimizer.zero_grad()
                F.hardtanh(model(data), -1, 1).clamp(-0.5, 0.5).pow(2).sum().backward()
                optimizer.step()
        return list(model.parameters())

    found = trained()
    with without_front():
        wanted = trained()
    assert all(torch.equal(one, other) for one, other in zip(found, wanted, strict=True))
