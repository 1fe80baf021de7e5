"""The Python surface: what tab completion shows, signatures and words, errors that say what to write."""

from __future__ import annotations

import copy
import gc
import inspect
import re
import warnings
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest
import torch
from fresh import run_fresh
from torch import nn

import subgrad
from subgrad.apply import executors

X = torch.tensor([0.0, 1.0])
MODEL = nn.Linear(2, 1)


def program(x: torch.Tensor) -> torch.Tensor:
    return torch.relu(x).sum()


MODULES = ("audit", "clarke", "functional", "kernels", "loggers", "nn", "testing")


def test_tab_completion_shows_what_there_is_and_nothing_else() -> None:
    found = run_fresh(
        "import subgrad; print(dir(subgrad)); print(subgrad.kinks['relu'][0].op, list(subgrad.use.__mro__)[1])"
    )
    assert found.stdout.splitlines()[0] == str(sorted(subgrad.__all__))
    for name in MODULES:
        module = getattr(subgrad, name)
        assert dir(module) == sorted(dir(module))
        assert all(not inspect.ismodule(getattr(module, each)) and each[0] != "_" for each in dir(module))


def test_the_table_is_the_table_whatever_is_imported() -> None:
    line = "import subgrad.kinks.sets, subgrad.conventions, subgrad; print(len(subgrad.kinks['relu']))"
    assert run_fresh(line).stdout == "1\n"


@pytest.mark.parametrize(
    "first", ["subgrad.apply.use", "subgrad.conventions", "subgrad.clarke", "subgrad.audit", "subgrad.kernels"]
)
def test_whatever_is_imported_first_the_fast_executors_are_there(first: str) -> None:
    line = f"import {first}; from subgrad.apply import executors as found; print(len(found.EXECUTORS))"
    assert run_fresh(line).stdout == f"{len(executors.EXECUTORS)}\n"


@pytest.mark.parametrize(
    "name", [each for each in subgrad.__all__ if each not in (*MODULES, "kinks", "__version__")] + ["audit"]
)
def test_signatures_and_words_are_those_of_what_is_called(name: str) -> None:
    thing = getattr(subgrad, name)
    assert not set(inspect.signature(thing).parameters) & {"args", "kwargs"}
    assert re.match(r"[A-Z].{20,}", inspect.getdoc(thing) or "")


def test_an_audit_says_that_it_takes_a_model() -> None:
    assert next(iter(inspect.signature(subgrad.audit).parameters)) == "model"
    assert (inspect.getdoc(subgrad.audit) or "").startswith("Watch unchanged eager training code")


def test_results_print_in_a_line() -> None:
    w = torch.zeros(3, requires_grad=True)
    effect = subgrad.compare(lambda: (w.clamp(0, 1) * torch.arange(3.0)).sum(), {"w": w}, ["torch-2.13", "torch-2.14"])
    line = f"test_surface.py:{inspect.currentframe().f_lineno - 1}"  # type: ignore[union-attr]
    assert str(effect) == effect.verdict
    assert str(effect.changes[0]) == "w: 2 of 3 entries, 100.0%"
    assert str(effect.causes[0]) == f"{line} (`clamp`): 100.0% of the norm of the gradients"
    with subgrad.audit(every=1) as audit:
        w.clamp(0, 1).sum().backward()
    assert str(audit.rows[0]).endswith(": `clamp` at self == min: 3 hits among 3 entries")
    assert repr(audit) == "<Audit of 1 step: 3 hits at 2 kinks in 1 of them, 0 comparisons>"
    assert (
        repr(subgrad.explain_nan(lambda: w.sum(), {"w": w}))
        == "<Audit of 1 step: 0 lines that made a gradient infinite or NaN>"
    )
    names = subgrad.kinks.names
    assert repr(subgrad.kinks) == (f"<{len(subgrad.kinks)} kinks of {len(names)} operators, from relu to {names[-1]}>")
    assert str(subgrad.kinks["relu"][0]) == "relu at self == 0: [0, 1]"


# use(...) that does nothing.


def said_of(make: Callable[[], object]) -> list[str]:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        make()
        gc.collect()
    return [str(each.message) for each in caught]


def test_a_use_that_is_never_entered_warns_once() -> None:
    (message,) = said_of(lambda: subgrad.use("mean"))
    assert message.startswith("subgrad: use(Convention('mean')) was never entered and has done nothing: write `with ")


def entered() -> None:
    with subgrad.use("mean"):
        pass
    kept = subgrad.use("left")
    with kept, kept:
        pass
    with ExitStack() as stack:
        stack.enter_context(subgrad.use("right"))


def decorated() -> None:
    subgrad.use("mean")(torch.relu)(X)

    @subgrad.use("left")
    async def coroutine() -> None: ...

    @subgrad.use("left")
    def never_called() -> None: ...


def refused() -> None:
    with pytest.raises(ValueError, match="unknown convention"):
        subgrad.use("nonsense")
    with pytest.raises(ZeroDivisionError), subgrad.use("mean"):
        1 / 0  # noqa: B018


def copied() -> None:
    made = subgrad.use("mean")
    with made:
        copy.copy(made)


@pytest.mark.parametrize("make", [entered, decorated, refused, copied])
def test_a_use_that_is_entered_decorates_or_was_refused_does_not(make: Callable[[], None]) -> None:
    assert said_of(make) == []


def test_what_is_still_there_when_the_process_ends_is_not_warned_of() -> None:
    found = run_fresh("import subgrad\nkept = [subgrad.use('mean')]", warn="always")
    assert (found.returncode, found.stdout, found.stderr) == (0, "", "")


# Errors.

CALLS: dict[str, tuple[Callable[[], Any], type[Exception], str]] = {
    "a convention for two": (
        lambda: subgrad.audit(compare="torch-2.13"),
        ValueError,
        "compare='torch-2.13': give two conventions or more, as in compare=['torch-2.13', 'torch-2.14'].",
    ),
    "one to compare": (
        lambda: subgrad.compare(lambda: program(X), {}, ["mean"]),
        ValueError,
        "conventions=['mean']: give two conventions or more, as in conventions=['torch-2.13', 'torch-2.14'].",
    ),
    "an audit of a word": (
        lambda: subgrad.audit("foo"),  # type: ignore[arg-type]
        TypeError,
        "audit('foo'): the first argument is the torch.nn.Module whose parts are named in what is found; conventions "
        "are given as compare=['torch-2.13', 'torch-2.14'].",
    ),
    "backward of a model": (
        lambda: subgrad.backward(lambda: program(X), MODEL),  # type: ignore[arg-type]
        TypeError,
        "subgrad.backward: the second argument is the tensors to differentiate in: model.parameters(), not a Linear.",
    ),
    "backward of names": (
        lambda: subgrad.backward(lambda: program(X), MODEL.named_parameters()),  # type: ignore[arg-type]
        TypeError,
        "subgrad.backward: the second argument is the tensors to differentiate in: model.parameters(), not tuples.",
    ),
    "backward of a mapping": (
        lambda: subgrad.backward(lambda: program(X), dict(MODEL.named_parameters())),  # type: ignore[arg-type]
        TypeError,
        "subgrad.backward: the second argument is the tensors to differentiate in: its values(), not a dictionary.",
    ),
    "backward of a loss": (
        lambda: subgrad.backward(program(X), MODEL.parameters()),  # type: ignore[arg-type]
        TypeError,
        "subgrad.backward: give a function that returns the loss, not Tensor.",
    ),
    "jvp of tensors": (
        lambda: subgrad.jvp(program, X, X),  # type: ignore[arg-type]
        TypeError,
        "subgrad.jvp: primals and tangents are tuples, one entry an argument: write jvp(f, (x,), (v,)).",
    ),
    "grad of an argument": (
        lambda: subgrad.grad(program, X),  # type: ignore[arg-type]
        TypeError,
        "subgrad.grad: argnums says which arguments to differentiate in, as 0 or (0, 1), not Tensor. The arguments "
        "themselves go to what it returns: subgrad.grad(f)(x).",
    ),
    "a gradient of no function": (
        lambda: subgrad.min_norm(X),  # type: ignore[arg-type]
        TypeError,
        "subgrad.min_norm: give a function, not Tensor.",
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_errors_say_what_to_write(name: str) -> None:
    call, error, message = CALLS[name]
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        call()


def test_parameter_lists_are_parameters() -> None:
    given = nn.ParameterList([nn.Parameter(X.clone())])
    subgrad.backward(lambda: program(given[0]), given)
    assert given[0].grad is not None
    assert given[0].grad[1] == 1
