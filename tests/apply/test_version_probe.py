"""On a torch that was never tried, a row of the table that it does not keep is told of, once; on others nothing is."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

import pytest
import torch
from fresh import run_fresh
from torch._subclasses import FakeTensorMode
from torch.overrides import TorchFunctionMode

import subgrad
from subgrad import Convention
from subgrad.apply import version_probe
from subgrad.apply.version_probe import differences, warn_where_torch_differs
from subgrad.kinks import KINKS, Kink
from subgrad.kinks.sets import Joint, Jump, Slopes, Ties
from subgrad.torch_internals import versions

LACKING = {"aminmax"} if versions.INSTALLED < (2, 12) else set()  # torch 2.11 has no derivative of it
ROWS = [
    kink
    for kink in KINKS
    if not isinstance(kink.set, Jump) and kink.torch_picks(versions.COLUMN) is not None and kink.name not in LACKING
]


def another(kink: Kink) -> Any:
    """What the column of a row could say and does not."""
    picks = kink.torch_picks(versions.COLUMN)
    if isinstance(kink.set, Joint):
        return "one" if picks == "least" else "least"
    if isinstance(kink.set, Ties):
        first, *others = kink.set.candidates
        return tuple(others) if picks == (first,) else (first,)
    return {"left": "right", "right": "left"}.get(picks, 0.75 if isinstance(kink.set, Slopes) else None)


def is_without_corner(kink: Kink) -> bool:
    """The same slope on both sides: there is nothing to pick."""
    return isinstance(kink.set, Slopes) and kink.set.left_slope == kink.set.right_slope


def test_the_installed_torch_is_what_the_table_says() -> None:
    assert differences(ROWS) == []


@pytest.mark.parametrize("kink", [kink for kink in ROWS if not is_without_corner(kink)], ids=lambda k: f"{k.op}@{k.at}")
def test_every_row_that_says_something_else_is_found(kink: Kink, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(kink), "torch", another(kink))
    assert differences([kink]) == [f"{kink.name} at {kink.words}"]


def test_an_operator_that_is_gone_is_told_of(monkeypatch: pytest.MonkeyPatch) -> None:
    (kink,) = KINKS["relu"]
    monkeypatch.setitem(vars(kink), "op", "gone")
    (found,) = differences([kink])
    assert found.startswith("gone raises ")


class Wrapped(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise AssertionError("the mode of a program was met")


def vmapped(act: Callable[[], None]) -> None:
    def inner(x: torch.Tensor) -> torch.Tensor:
        act()
        return x

    torch.vmap(inner)(torch.zeros(2))


AROUND: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "nothing": nullcontext,
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "a device": lambda: torch.device("meta"),
    "fake tensors": FakeTensorMode,
    "a function mode": Wrapped,
    "forward mode": torch.autograd.forward_ad.dual_level,
    "saved tensors hooks": lambda: torch.autograd.graph.saved_tensors_hooks(lambda x: 1 / 0, lambda x: x),
    "a convention": lambda: subgrad.use("right"),
}


@pytest.mark.parametrize("around", AROUND.values(), ids=AROUND)
def test_nothing_that_is_in_force_around_it_is_taken_for_a_difference(around: Callable[[], Any]) -> None:
    with ExitStack() as stack:
        stack.enter_context(around())
        assert differences(ROWS) == []


def test_it_may_be_asked_under_transforms() -> None:
    found: list[list[str]] = []
    vmapped(lambda: found.append(differences(ROWS)))
    assert found == [[]]


def test_it_draws_no_random_numbers_of_the_program() -> None:
    torch.manual_seed(3)
    before = torch.get_rng_state()
    differences(ROWS)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.fixture
def never_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(versions, "NEWEST_TRIED", (2, 10))
    monkeypatch.setattr(version_probe, "_looked_at", set())
    monkeypatch.setattr(version_probe, "_probed", set())


def told(convention: Convention | None) -> list[str]:
    with warnings.catch_warnings(record=True) as met:
        warnings.simplefilter("always")
        warn_where_torch_differs(convention)
    return [str(each.message) for each in met]


@pytest.mark.usefixtures("never_tried")
@pytest.mark.skipif(bool(LACKING), reason="torch 2.11 has no derivative of aminmax, which is told of")
@pytest.mark.parametrize("convention", [None, "min-norm", "documented", "torch-2.13", "torch-2.14", "left", "mean"])
def test_a_new_torch_that_keeps_the_table_is_not_told_of(convention: str | None) -> None:
    assert told(convention and Convention(convention)) == []  # type: ignore[arg-type]


@pytest.mark.usefixtures("never_tried")
def test_a_row_that_differs_is_told_of_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(KINKS["relu"][0]), "torch", "right")
    (message,) = told(Convention("torch", relu="min-norm"))
    assert f"never tried with torch {torch.__version__}" in message
    assert "table says: relu at self == 0. Where" in message
    assert told(Convention("torch", relu="min-norm")) == []
    assert told(Convention("torch", relu="left")) == []


@pytest.mark.usefixtures("never_tried")
def test_a_later_convention_is_told_of_the_rows_that_it_adds(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("relu", "softshrink"):
        monkeypatch.setitem(vars(KINKS[name][0]), "torch", another(KINKS[name][0]))
    (first,) = told(Convention("torch", relu="left"))
    (second,) = told(Convention("min-norm"))
    assert "relu at" in first
    assert "softshrink at" not in first
    assert "softshrink at" in second
    assert "relu at" not in second


@pytest.mark.usefixtures("never_tried")
def test_rows_that_a_convention_does_not_choose_at_are_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(vars(KINKS["relu"][0]), "torch", "right")
    monkeypatch.setitem(vars(KINKS["sort"][0]), "torch", "least")
    assert told(Convention("torch")) == []
    assert told(Convention("torch", abs="min-norm")) == []
    assert told(Convention("torch", hardtanh="pass-through")) == []
    assert len(told(Convention("torch", sort="min-norm"))) == 1  # the table says that torch shares the tie already


def test_on_a_torch_that_was_tried_nothing_is_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_probe, "_looked_at", set())
    monkeypatch.setitem(vars(KINKS["relu"][0]), "torch", "right")
    assert told(None) == []
    assert not version_probe._looked_at


# In a process of its own, since what is planned with a wrong column is kept.
PROGRAM = """
import json, warnings
import torch, subgrad
from subgrad.torch_internals import versions
versions.NEWEST_TRIED = (2, 10)
vars(subgrad.kinks["{operator}"][0])["torch"] = {column!r}
found = []
with warnings.catch_warnings(record=True) as met:
    warnings.simplefilter("always")
    for _ in range(2):
        for convention in ("torch", "left", "torch-2.14", "right"):
            with subgrad.use(convention):
                pass
            found.append([(str(each.message), each.filename, each.lineno) for each in met])
            met.clear()
    subgrad.set_default("mean")
    found.append([str(each.message) for each in met])
print(json.dumps(found))
"""


def run(operator: str, column: str) -> list[list[Any]]:
    done = run_fresh(PROGRAM.format(operator=operator, column=column))
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.skipif(bool(LACKING), reason="torch 2.11 has no derivative of aminmax, which is told of")
def test_the_first_use_on_a_new_torch_says_which_row_differs_in_the_line_that_uses_it() -> None:
    of_torch, of_left, *others = run("relu", "right")
    assert of_torch == []
    ((message, file, line),) = of_left
    assert "relu at self == 0" in message
    assert (file, line) == ("<string>", PROGRAM[: PROGRAM.index("with subgrad.use")].count("\n") + 1)
    assert not any(others)
