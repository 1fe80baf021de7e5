"""`use` as a decorator of functions, generators and coroutines."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Generator, Iterator

import pytest
import torch
from slopes import MEAN, RIGHT, TORCH, slope
from torch import Tensor

from subgrad import Convention, active, use


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

    def test_is_not_in_force_for_others_while_it_waits(self) -> None:
        class Pause:
            def __await__(self) -> Generator[None, None, None]:
                yield

        @use("right")
        async def paused() -> float:
            await Pause()
            return slope()

        coroutine = paused()
        coroutine.send(None)
        assert (slope(), active()) == (TORCH, Convention("torch"))
        with pytest.raises(StopIteration) as stop:
            coroutine.send(None)
        assert stop.value.value == RIGHT


def test_a_class_is_refused() -> None:
    with pytest.raises(TypeError, match="decorates functions, generators and coroutines, not <class"):
        use("right")(Convention)
