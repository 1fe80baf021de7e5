"""What expressions may call: every function is there, leaves its arguments alone, and is as large as is assumed."""

from __future__ import annotations

import inspect
import warnings
from collections.abc import Iterator
from itertools import product
from math import prod
from typing import Any

import pytest
import torch
from torch import Tensor

from subgrad.explain import evaluation, language
from subgrad.kinks import KINKS
from subgrad.kinks.composites import THROUGH

# Arguments with which functions are tried, one after the other, until one fits.
X, Y = torch.tensor([0.25, 0.5, 0.75]), torch.tensor([0.5, 0.25, 0.125])
M, N = torch.tensor([[2.0, 1.0], [1.0, 3.0]]), torch.tensor([[1.0, 0.5], [0.25, 1.0]])
IMAGE, LINE = torch.arange(16.0).reshape(1, 1, 4, 4), torch.arange(8.0).reshape(1, 2, 4)
VOLUME, GRID = torch.arange(64.0).reshape(1, 1, 4, 4, 4), torch.zeros(1, 2, 2, 2)
INDEX, LABELS = torch.tensor([0, 1, 1]), torch.tensor([1, 0])
CALLS: tuple[tuple[tuple[Any, ...], dict[str, Any]], ...] = (
    *[((one,), {}) for one in (X, M, LINE, IMAGE, VOLUME)],
    *[(pair, {}) for pair in product((X, M), (X, Y, N))],
    *[((one, 1), {}) for one in (X, M, LINE, IMAGE, VOLUME)],
    *[((1, one), {}) for one in (X,)],
    *[((each, each), {}) for each in (LINE, IMAGE, VOLUME)],
    *[(three, {}) for three in ((X, X, Y), (M, M, N), (X, M, X), (M, N, X[:2]), (X > 0.3, X, Y), (X, X > 0.3, 1.0))],
    ((M, LABELS), {}),
    ((M, torch.tensor([[0, -1], [1, 0]])), {}),
    (([X, Y],), {}),
    ((X, 0, INDEX), {}),
    ((X, 0.2, 0.6), {}),
    ((X, 2, 0, 1.0), {}),
    ((M, 2, 0, 1.0), {}),
    ((X, 0, INDEX, Y, "amax"), {}),
    ((X, "max"), {"lengths": torch.tensor([3])}),
    ((M, N), {"upper": True}),
    ((LINE, LINE, LINE), {}),
    ((IMAGE, GRID), {"align_corners": True}),
    ((LABELS.unsqueeze(0), M), {}),
    ((X, 0, 0), {}),
    ((X, (3,)), {}),
    ((M, (1, 0)), {}),
    ((M, (2,)), {}),
    ((M, X[:2], X[:2], M), {}),
    ((X, Y, torch.tensor([[[1.0] * 3] * 3])), {}),
    ((M, N, torch.tensor([1.0, -1.0])), {}),
    ((X, torch.tensor([0.5])), {}),
    ((M, X[:2]), {}),
    ((X[:2], M, X[1:]), {}),
    ((LINE, LINE.mT), {}),
    ((torch.zeros(1, 2, 2), LINE, LINE.mT), {}),
    ((2, X), {}),
    ((X, LABELS.new_tensor([1, 2, 3])), {}),
)
NAMED = {**language.FUNCTIONS, **{f".{name}": method for name, method in language.METHODS.items()}}


def tensors(given: Any) -> Iterator[Tensor]:
    if isinstance(given, Tensor):
        yield given
    elif isinstance(given, list | tuple):
        for each in given:
            yield from tensors(each)


def first_call(function: Any) -> tuple[tuple[Any, ...], dict[str, Any], Any] | None:
    """The first arguments that fit, as they were, and the result."""
    for args, kwargs in CALLS:
        try:
            return args, kwargs, function(*args, **kwargs)
        except (RuntimeError, TypeError, ValueError, IndexError, AttributeError):
            continue
    return None


@pytest.fixture(autouse=True)
def silent() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("name", NAMED)
def test_a_function_leaves_its_arguments_alone_and_is_as_large_as_is_assumed(name: str) -> None:
    inputs = [X, Y, M, N, IMAGE, LINE, VOLUME, GRID, INDEX, LABELS]
    before = [each.clone() for each in inputs]
    found = first_call(NAMED[name])
    assert found is not None, "no call fits: add one to CALLS"
    assert all(torch.equal(one, other) for one, other in zip(inputs, before, strict=True))
    args, kwargs, result = found
    given = list(tensors([*args, *kwargs.values()]))
    bare = name.rpartition(".")[2]
    if bare in language.GROWING:
        numbers = [each for each in args if isinstance(each, int) and each > 1]
        most = prod([*(each.numel() for each in given), *numbers]) ** (2 if bare in language.SQUARED else 1)
    else:
        most = max(evaluation._broadcast(given), sum(each.numel() for each in given))
    assert all(each.numel() <= most for each in tensors(result))


def test_no_name_writes_reads_or_allocates() -> None:
    names = {name.rpartition(".")[2] for name in NAMED}
    assert not [name for name in names if name.endswith("_") or name.startswith("_")]
    assert not names & {
        *("load", "save", "from_file", "compile", "vmap", "manual_seed", "backward", "register_hook"),
        *("zeros", "ones", "empty", "full", "arange", "linspace", "eye", "rand", "randn", "tensor"),
        *("repeat", "expand", "tile", "pad", "dropout", "interpolate", "one_hot"),
        *("numpy", "tolist", "item", "data"),
    }


def test_what_a_signature_forbids_is_listed() -> None:
    """Parameters of functions written in Python that are flags for torch, and would change what it writes into."""
    named = {name for function in NAMED.values() for name in language.parameters(function) or ()}
    assert {"inplace", "out", "max_norm", "dtype"} <= named
    risky = {
        name for name in named if name.startswith("_") or "inplace" in name or name in ("out", "dtype", "max_norm")
    }
    assert risky <= language.FORBIDDEN
    assert not language.FORBIDDEN & language.KEYWORDS


def test_every_operator_of_the_table_can_be_called_or_is_left_out_on_purpose() -> None:
    called = {name.rpartition(".")[2] for name in NAMED} | {f"{'_'.join(name.split('.')[1:])}" for name in NAMED}
    missing = {name for name in KINKS.names if name not in called}
    assert missing == {
        *("rrelu", "fractional_max_pool2d", "fractional_max_pool3d"),  # draw random numbers
        "mvlgamma",  # allocates by a number
        *(
            name for name in KINKS.names if "fake_quant" in name or name == "_fused_moving_avg_obs_fq_helper"
        ),  # keep state
        "_linalg_slogdet",  # torch.linalg.slogdet
        "native_layer_norm",  # F.layer_norm
    }


def test_composites_of_the_table_can_be_called() -> None:
    full = {name.partition("(")[0] for name in THROUGH}
    left_out = {"F.triplet_margin_with_distance_loss", "F.adaptive_max_pool1d"} - set(language.FUNCTIONS)
    assert {name for name in full if name not in language.FUNCTIONS} == left_out


def test_signatures_are_read_as_python_reads_them() -> None:
    relu = language.FUNCTIONS["F.relu"]
    assert language.parameters(relu) == tuple(inspect.signature(relu).parameters)
