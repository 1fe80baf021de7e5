"""`use` and `set_default`: where a convention is in force, seen in gradients at a kink."""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import threading
from collections.abc import AsyncIterator, Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
from torch import Tensor

from subgrad import Convention, active, set_default, use
from subgrad.conventions import RULES

COTANGENT = torch.tensor([3.0, -0.5, 2.0])
# relu at 0. Torch's own is 0 too, so that tests of what is in force use "right" and "mean".
SLOPES = {"left": 0.0, "right": 1.0, "mean": 0.5}
TORCH, RIGHT, MEAN = 0.0, SLOPES["right"], SLOPES["mean"]


@pytest.fixture(autouse=True)
def default_is_restored() -> Iterator[None]:
    yield
    set_default("torch")


def forward() -> tuple[Tensor, Tensor]:
    x = torch.zeros(3, requires_grad=True)
    return x, torch.relu(x)


def backward(x: Tensor, out: Tensor) -> float:
    """The one slope that all entries of the gradient show."""
    (gradient,) = torch.autograd.grad(out, x, COTANGENT)
    (slope,) = set((gradient / COTANGENT).tolist())
    return slope


def slope() -> float:
    """The slope of relu at 0, here and now."""
    return backward(*forward())


def in_new_thread(function: Callable[[], Any]) -> Any:
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(function).result()


class TestBlock:
    @pytest.mark.parametrize(("name", "expected"), SLOPES.items(), ids=SLOPES)
    def test_takes_its_element_inside_and_torchs_own_outside(self, name: str, expected: float) -> None:
        before = slope()
        with use(name):
            inside = slope()
        assert (before, inside, slope()) == (TORCH, expected, TORCH)

    def test_gives_the_convention_in_force(self) -> None:
        with use("right") as convention:
            assert convention == active() == Convention("right")

    def test_takes_a_convention_of_ones_own(self) -> None:
        with use(Convention("torch", relu=0.25)):
            assert slope() == 0.25

    def test_the_innermost_of_nested_blocks_wins(self) -> None:
        found = []
        with use("right"):
            found.append(slope())
            with use("mean"):
                found.append(slope())
                with use("left"):
                    found.append(slope())
                found.append(slope())
            found.append(slope())
        assert found == [RIGHT, MEAN, SLOPES["left"], MEAN, RIGHT]

    def test_torch_inside_another_gives_the_gradient_back_to_torch(self) -> None:
        with use("right"), use("torch"):
            assert slope() == TORCH

    def test_an_exception_restores_what_was_in_force_around_it(self) -> None:
        with use("right"):
            with pytest.raises(KeyError), use("mean"):
                raise KeyError
            assert slope() == RIGHT
        assert slope() == TORCH

    def test_one_object_serves_many_blocks(self) -> None:
        right = use("right")
        with right:
            first = slope()
        between = slope()
        with right:
            second = slope()
        assert (first, between, second, slope()) == (RIGHT, TORCH, RIGHT, TORCH)

    def test_one_object_nests_in_itself(self) -> None:
        right = use("right")
        found = []
        with right:
            with use("mean"):
                with right:
                    found.append(slope())
                found.append(slope())
            found.append(slope())
        assert [*found, slope()] == [RIGHT, MEAN, RIGHT, TORCH]

    def test_reaches_the_caller_of_a_context_manager_made_of_it(self) -> None:
        @contextlib.contextmanager
        def rightwards() -> Iterator[None]:
            with use("right"):
                yield

        with rightwards():
            inside = slope()
        assert (inside, slope()) == (RIGHT, TORCH)


class TestLeavingInAnotherOrder:
    def test_exit_stacks_leave_nothing_behind(self) -> None:
        first, second = contextlib.ExitStack(), contextlib.ExitStack()
        first.enter_context(use("right"))
        second.enter_context(use("mean"))
        first.close()
        assert slope() == MEAN
        second.close()
        assert slope() == TORCH

    def test_generators_closed_late_leave_nothing_behind(self) -> None:
        def hold(name: str) -> Iterator[None]:
            with use(name):
                yield

        first, second = hold("right"), hold("mean")
        next(first)
        next(second)
        first.close()
        assert slope() == MEAN
        second.close()
        assert slope() == TORCH

    def test_one_object_entered_twice_is_in_force_until_left_twice(self) -> None:
        right = use("right")
        first, second = contextlib.ExitStack(), contextlib.ExitStack()
        first.enter_context(right)
        second.enter_context(right)
        first.close()
        assert slope() == RIGHT
        second.close()
        assert slope() == TORCH


UNKNOWN = {
    "min-nrom": f"unknown convention 'min-nrom'. Did you mean 'min-norm'? Known: {', '.join(RULES)}.",
    "nonsense": f"unknown convention 'nonsense'. Known: {', '.join(RULES)}.",
}


class TestUnknownName:
    @pytest.mark.parametrize(("name", "message"), UNKNOWN.items(), ids=UNKNOWN)
    def test_is_refused_with_the_known_ones_and_the_nearest(self, name: str, message: str) -> None:
        with pytest.raises(ValueError, match="unknown") as error, use(name):
            pass
        assert str(error.value) == message
        assert (active(), slope()) == (Convention("torch"), TORCH)

    def test_leaves_the_block_around_it_in_force(self) -> None:
        with use("right"):
            with pytest.raises(ValueError, match="unknown"):
                use("nonsense")
            assert slope() == RIGHT

    def test_leaves_the_default(self) -> None:
        set_default("right")
        with pytest.raises(ValueError, match="unknown") as error:
            set_default("min-nrom")
        assert str(error.value) == UNKNOWN["min-nrom"]
        assert slope() == RIGHT


class TestDecoratedFunction:
    def test_runs_under_its_convention_and_its_caller_does_not(self) -> None:
        assert (use("right")(slope)(), slope()) == (RIGHT, TORCH)

    def test_keeps_name_docstring_and_signature(self) -> None:
        def original(x: Tensor, *, times: int = 2) -> float:
            """What it does."""
            return times * slope()

        decorated = use("right")(original)
        assert (decorated.__name__, decorated.__doc__) == ("original", "What it does.")
        assert inspect.signature(decorated) == inspect.signature(original)
        assert decorated(torch.zeros(3), times=3) == 3 * RIGHT

    def test_enters_anew_at_every_call(self) -> None:
        @use("right")
        def countdown(depth: int) -> list[float]:
            with use("mean"):
                deeper = countdown(depth - 1) if depth else []
            return [*deeper, slope()]

        assert (countdown(2), countdown(0), slope()) == ([RIGHT] * 3, [RIGHT], TORCH)

    def test_restores_after_an_exception(self) -> None:
        @use("right")
        def fail() -> None:
            raise KeyError(slope())

        with pytest.raises(KeyError, match=str(RIGHT)):
            fail()
        assert slope() == TORCH

    def test_may_be_a_method(self) -> None:
        class Model:
            @use("right")
            def slope(self) -> float:
                return slope()

        assert (Model().slope(), slope()) == (RIGHT, TORCH)

    def test_may_not_be_an_async_generator(self) -> None:
        async def ticks() -> AsyncIterator[int]:
            yield 1

        with pytest.raises(TypeError) as error:
            use("right")(ticks)
        assert str(error.value) == f"use(...) decorates functions, generators and coroutines, not {ticks!r}"

    def test_must_be_callable(self) -> None:
        with pytest.raises(TypeError) as error:
            use("right")(3)  # type: ignore[type-var]
        assert str(error.value) == "use(...) decorates functions, generators and coroutines, not 3"


def slopes() -> Generator[float, None, str]:
    """Two slopes."""
    yield slope()
    yield slope()
    return "done"


class TestDecoratedGenerator:
    def test_resumes_under_its_convention_and_its_caller_never_sees_it(self) -> None:
        generator = use("right")(slopes)()
        assert [slope(), next(generator), slope(), next(generator), slope()] == [TORCH, RIGHT, TORCH, RIGHT, TORCH]

    def test_two_interleaved_keep_their_own(self) -> None:
        right, mean = use("right")(slopes)(), use("mean")(slopes)()
        assert [next(right), next(mean), next(right), next(mean), slope()] == [RIGHT, MEAN, RIGHT, MEAN, TORCH]

    def test_its_convention_wins_over_that_of_who_resumes_it(self) -> None:
        generator = use("right")(slopes)()
        with use("mean"):
            assert [next(generator), slope(), next(generator), slope()] == [RIGHT, MEAN, RIGHT, MEAN]

    def test_keeps_name_docstring_and_signature_and_kind(self) -> None:
        decorated = use("right")(slopes)
        assert (decorated.__name__, decorated.__doc__) == ("slopes", "Two slopes.")
        assert inspect.signature(decorated) == inspect.signature(slopes)
        assert inspect.isgeneratorfunction(decorated)

    def test_returns_its_value(self) -> None:
        def delegate() -> Generator[float, None, str]:
            return (yield from use("right")(slopes)())

        generator = delegate()
        assert list(zip(range(2), generator, strict=False)) == [(0, RIGHT), (1, RIGHT)]
        with pytest.raises(StopIteration) as stop:
            next(generator)
        assert stop.value.value == "done"

    def test_receives_what_is_sent(self) -> None:
        @use("right")
        def scaled() -> Generator[float, float, None]:
            factor = 1.0
            while True:
                factor = yield factor * slope()

        generator = scaled()
        assert [next(generator), generator.send(4.0), slope(), generator.send(-2.0)] == [
            RIGHT,
            4 * RIGHT,
            TORCH,
            -2 * RIGHT,
        ]

    def test_handles_what_is_thrown_under_its_convention(self) -> None:
        @use("right")
        def resilient() -> Generator[tuple[str, float], None, None]:
            try:
                yield "before", slope()
            except KeyError as error:
                yield error.args[0], slope()

        generator = resilient()
        assert next(generator) == ("before", RIGHT)
        assert generator.throw(KeyError("thrown")) == ("thrown", RIGHT)
        assert slope() == TORCH
        with pytest.raises(StopIteration):
            next(generator)

    def test_lets_through_what_it_does_not_handle(self) -> None:
        generator = use("right")(slopes)()
        next(generator)
        with pytest.raises(KeyError, match="thrown"):
            generator.throw(KeyError("thrown"))
        assert slope() == TORCH
        with pytest.raises(StopIteration):
            next(generator)

    def test_cleans_up_under_its_convention_when_closed(self) -> None:
        cleaned: list[float] = []

        @use("right")
        def careful() -> Iterator[float]:
            try:
                yield slope()
            finally:
                cleaned.append(slope())

        generator = careful()
        next(generator)
        generator.close()
        assert (cleaned, slope()) == ([RIGHT], TORCH)


class TestCoroutines:
    @staticmethod
    async def watch(name: str, log: list[tuple[str, float]]) -> None:
        """Three slopes, with a turn for the other tasks after each."""
        log.append((name, slope()))
        await asyncio.sleep(0)
        log.append((name, slope()))
        await asyncio.sleep(0)
        log.append((name, slope()))

    def test_interleaved_tasks_keep_their_own(self) -> None:
        async def main() -> list[tuple[str, float]]:
            log: list[tuple[str, float]] = []
            right, mean = use("right")(self.watch), use("mean")(self.watch)
            await asyncio.gather(right("right", log), mean("mean", log), self.watch("torch", log))
            return log

        assert asyncio.run(main()) == [("right", RIGHT), ("mean", MEAN), ("torch", TORCH)] * 3

    def test_a_task_inherits_the_block_it_was_created_in(self) -> None:
        async def later() -> float:
            await asyncio.sleep(0)
            return slope()

        async def main() -> tuple[float, float]:
            with use("right"):
                task = asyncio.create_task(later())
            return slope(), await task

        assert asyncio.run(main()) == (TORCH, RIGHT)

    def test_awaiting_one_leaves_nothing_to_the_caller(self) -> None:
        @use("right")
        async def measure() -> float:
            await asyncio.sleep(0)
            return slope()

        async def main() -> tuple[float, float]:
            return await measure(), slope()

        assert asyncio.run(main()) == (RIGHT, TORCH)

    def test_decorated_keep_name_docstring_signature_and_kind(self) -> None:
        decorated = use("right")(self.watch)
        assert (decorated.__name__, decorated.__doc__) == ("watch", self.watch.__doc__)
        assert inspect.signature(decorated) == inspect.signature(self.watch)
        assert inspect.iscoroutinefunction(decorated)


class TestThreads:
    def test_a_new_one_sees_the_default_and_not_the_block_of_its_creator(self) -> None:
        with use("right"):
            assert (in_new_thread(slope), slope()) == (TORCH, RIGHT)

    def test_a_decorated_function_takes_its_convention_into_any_thread(self) -> None:
        assert in_new_thread(use("right")(slope)) == RIGHT

    def test_two_at_once_always_get_their_own(self) -> None:
        turn = threading.Barrier(2, timeout=60)

        def measure() -> float:
            turn.wait()  # both run each forward and backward at once
            return slope()

        def worker(name: str) -> list[float]:
            with use(name):
                return [measure() for _ in range(500)]

        with ThreadPoolExecutor(2) as pool:
            right, mean = pool.map(worker, ("right", "mean"))
        assert (right, mean) == ([RIGHT] * 500, [MEAN] * 500)


class TestDefault:
    def test_is_seen_by_this_thread_a_running_one_and_a_new_one(self) -> None:
        with ThreadPoolExecutor(1) as running:
            before = running.submit(slope).result()
            set_default("right")
            assert (before, running.submit(slope).result()) == (TORCH, RIGHT)
        assert (slope(), in_new_thread(slope)) == (RIGHT, RIGHT)

    def test_yields_to_a_block_in_any_thread(self) -> None:
        set_default("right")
        with use("mean"):
            assert slope() == MEAN
        assert in_new_thread(use("mean")(slope)) == MEAN
        assert slope() == RIGHT

    def test_changed_inside_a_block_is_in_force_after_it(self) -> None:
        with use("mean"):
            set_default("right")
            assert slope() == MEAN
        assert slope() == RIGHT

    def test_torch_gives_every_gradient_back(self) -> None:
        set_default("right")
        set_default("torch")
        assert (slope(), active()) == (TORCH, Convention("torch"))

    def test_takes_a_convention_of_ones_own(self) -> None:
        set_default(Convention("torch", relu=0.25))
        assert slope() == 0.25


class TestTheForwardDecides:
    @pytest.fixture
    def graph(self) -> tuple[Tensor, Tensor]:
        with use("right"):
            return forward()

    def test_for_a_backward_after_the_block(self, graph: tuple[Tensor, Tensor]) -> None:
        assert backward(*graph) == RIGHT

    def test_for_a_backward_in_another_thread(self, graph: tuple[Tensor, Tensor]) -> None:
        assert in_new_thread(lambda: backward(*graph)) == RIGHT

    def test_for_a_backward_under_another_convention(self, graph: tuple[Tensor, Tensor]) -> None:
        with use("mean"):
            assert backward(*graph) == RIGHT

    def test_for_a_backward_under_another_default(self, graph: tuple[Tensor, Tensor]) -> None:
        set_default("mean")
        assert backward(*graph) == RIGHT

    def test_where_only_the_backward_is_inside_the_block(self) -> None:
        graph = forward()
        with use("right"):
            assert backward(*graph) == TORCH
