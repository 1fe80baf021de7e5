"""`use` and `set_default`: where a convention is in force, seen in gradients at a kink."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from slopes import MEAN, RIGHT, SLOPES, TORCH, backward, forward, in_new_thread, slope
from torch import Tensor

from subgrad import Convention, active, set_default, use
from subgrad.conventions import NAMES


@pytest.fixture(autouse=True)
def default_is_restored() -> Iterator[None]:
    yield
    set_default("torch")


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
    "min-nrom": f"unknown convention 'min-nrom'. Did you mean 'min-norm'? Known: {', '.join(NAMES)}.",
    "nonsense": f"unknown convention 'nonsense'. Known: {', '.join(NAMES)}.",
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
