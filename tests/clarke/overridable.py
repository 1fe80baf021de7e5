"""Every function of torch that can be overridden, and calls of it: by torch's own samples, by hand, or by guess."""

from __future__ import annotations

import contextlib
import io
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from typing import Any

import torch
from torch import Tensor
from torch.overrides import get_overridable_functions, resolve_name
from torch.utils._pytree import tree_map

SAMPLES = 6  # of an entry
Call = tuple[Any, tuple[Any, ...], dict[str, Any]]


@cache
def functions() -> dict[str, Any]:
    """By name."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = {func: resolve_name(func) for each in get_overridable_functions().values() for func in each}
    return {name or repr(func): func for func, name in found.items()}


@cache
def _entries() -> dict[Any, list[Any]]:
    """The entries of torch's database for each function, method and in-place method."""
    from torch.testing._internal.common_methods_invocations import op_db

    found: dict[Any, list[Any]] = {}
    for info in op_db:
        for form in (info, *info.aliases):
            for func in (form.op, form.method_variant, form.inplace_variant):
                with contextlib.suppress(TypeError):  # what has no hash
                    found.setdefault(func, []).append(info)
    return found


def samples(func: Any) -> Iterator[Call]:
    """Calls by torch's database, on numbers that are differentiated."""
    for info in _entries().get(func, []):
        if torch.float64 not in info.dtypes:
            continue
        drawn = info.sample_inputs_func(info, "cpu", torch.float64, requires_grad=True)
        for sample in islice(drawn, SAMPLES):
            yield func, (sample.input, *sample.args), sample.kwargs


def guesses(func: Any) -> Iterator[Call]:
    """Calls by common signatures."""
    x, other = _numbers(), _numbers()
    indices, truths = torch.tensor([0, 2]), torch.ones(3, 3, dtype=torch.bool)
    given: tuple[tuple[Any, ...], ...] = (
        *(
            (x,),
            (x, other),
            (x, 1),
            (x, 0.5),
            (x, other, other),
            (x, 0, 1),
            (x, 0, indices),
            (x, 0, indices, other[:2]),
        ),
        *((x, torch.tensor([[0, 1, 2]])), ([x, other],), ([x, other], [other, x]), (x, (3, 3)), (x, torch.float32)),
        *((x[None, None],), (x[None, None], 2), (x, indices), (x[0],), (x[0], other[0]), (x[0, 0],), (x, truths)),
        *((x, truths, 0.5), (x, (0, 0), 1.0), ([x, other], [other, x], [x, x]), (x, "replicate"), (x, lambda g: None)),
        *((x, truths, other), (torch.tensor([0, 1, 2]), x), (x[0], torch.tensor([0, 1, 2]))),
    )
    for args in given:
        if len(args) == 1 or not is_attribute(func):
            yield func, args, {}


def is_attribute(func: Any) -> bool:
    return getattr(func, "__name__", "") == "__get__"


def _numbers() -> Tensor:
    return (torch.arange(1, 10, dtype=torch.float64).reshape(3, 3) / 7 - 0.4).requires_grad_()


def named(func: Any) -> Iterator[Call]:
    """Calls of what needs arguments of its own."""
    x = _numbers()
    w, row, cube = x.repeat(4, 1), x[0], x.expand(3, 3, 3)
    complex_ = torch.complex(x, x)
    several = [x, x, row, row]
    given: dict[str, tuple[Any, ...]] = {
        "torch.alpha_dropout": (x, 0.5, True),
        "torch.dropout": (x, 0.5, True),
        "torch.feature_alpha_dropout": (x, 0.5, True),
        "torch.feature_dropout": (x, 0.5, True),
        "torch.native_dropout": (x, 0.5, True),
        "torch.batch_norm": (x, row, row, None, None, True, 0.1, 1e-5, False),
        "torch.instance_norm": (cube, None, None, None, None, True, 0.1, 1e-5, False),
        "torch.bincount": (torch.tensor([0, 1, 1]), row),
        "torch.Tensor.bincount": (torch.tensor([0, 1, 1]), row),
        "torch.affine_grid_generator": (x[None, :2], (1, 1, 3, 3), False),
        "torch.nn.functional.affine_grid": (x[None, :2], (1, 1, 3, 3), False),
        "torch.nn.functional.conv_tbc": (cube, cube, row),
        "torch.convolution": (cube, cube, row, (1,), (1,), (1,), False, (0,), 1),
        "torch.cosine_embedding_loss": (x, x * 2, torch.ones(3)),
        "torch.ctc_loss": (
            cube.log_softmax(-1),
            torch.tensor([[1], [2], [1]]),
            torch.tensor([3, 3, 3]),
            torch.ones(3).long(),
        ),
        "torch.embedding_bag": (x, torch.tensor([0, 1, 2]), torch.tensor([0, 2])),
        "torch.gru": (cube, x[None], [w[:9], w[:9], w[:9, 0], w[:9, 0]], True, 1, 0.0, False, False, False),
        "torch.gru_cell": (x, x, w[:9], w[:9]),
        "torch.lstm_cell": (x, (x, x), w, w),
        "torch.rnn_relu_cell": (x, x, x, x),
        "torch.rnn_tanh_cell": (x, x, x, x),
        "torch.rnn_relu": (cube, x[None], several, True, 1, 0.0, False, False, False),
        "torch.rnn_tanh": (cube, x[None], several, True, 1, 0.0, False, False, False),
        "torch.lstm": (cube, (x[None], x[None]), [w, w, w[:, 0], w[:, 0]], True, 1, 0.0, False, False, False),
        "torch.imag": (complex_,),
        "torch.Tensor.imag.__get__": (complex_,),
        "torch.view_as_real": (complex_,),
        "torch.view_as_real_copy": (complex_,),
        "torch.view_as_complex_copy": (x[:2, :2].contiguous(),),
        "torch.max_pool3d": (cube[None], 2),
        "torch.nn.functional.max_pool3d_with_indices": (cube[None], 2),
        "torch.nn.functional.fractional_max_pool2d": (cube, 2, 2),
        "torch.nn.functional.fractional_max_pool2d_with_indices": (cube, 2, 2),
        "torch.nn.functional.fractional_max_pool3d": (cube[None], 2, 2),
        "torch.nn.functional.fractional_max_pool3d_with_indices": (cube[None], 2, 2),
        "torch.nn.functional.lp_pool1d": (x, 2.0, 2),
        "torch.nn.functional.lp_pool2d": (cube, 2.0, 2),
        "torch.nn.functional.lp_pool3d": (cube[None], 2.0, 2),
        "torch.nn.functional.fold": (x.repeat(4, 1)[:4, :].expand(1, 4, 3)[..., :1], (2, 2), 2),
        "torch.multinomial": (x.abs(), 1),
        "torch.Tensor.multinomial": (x.abs(), 1),
        "torch.poisson": (x.abs(),),
        "torch.poisson_nll_loss": (x, x.abs(), True, False, 1e-8, 1),
        "torch.polygamma": (1, x.abs()),
        "torch.special.polygamma": (1, x.abs()),
        "torch.unsafe_split_with_sizes": (x, (1, 2)),
        "torch.Tensor.unsafe_split_with_sizes": (x, (1, 2)),
        "torch.Tensor.prelu": (x, row[:1]),
        "torch.Tensor.resize_": (x, (3, 3)),
        "torch.Tensor.__format__": (x[0, 0], ".3f"),
        "torch.grid_sampler": (x[None, None], cube[None, ..., :2], 0, 0, False),
        "torch.fake_quantize_per_tensor_affine": (x, 0.1, 0, 0, 255),
        "torch.quantize_per_tensor": (x.float(), 0.1, 0, torch.quint8),
        "torch.quantize_per_tensor_dynamic": (x.float(), torch.quint8, False),
    }
    args = given.get(_names().get(func, ""))
    if args is not None:
        yield func, args, {}


@cache
def _names() -> dict[Any, str]:
    return {func: name for name, func in functions().items()}


def calls(func: Any) -> Iterator[Call]:
    """Calls that torch can do, each on copies that can be written into."""
    for make in (named, samples, guesses):
        found = False
        for _, args, kwargs in make(func):
            args, kwargs = tree_map(_copied, (args, kwargs))
            if _works(func, *tree_map(_copied, (args, kwargs))):
                found = True
                yield func, args, kwargs
        if found:
            return


def _copied(leaf: Any) -> Any:
    return leaf.clone() if isinstance(leaf, Tensor) and leaf.layout is torch.strided else leaf


def _works(func: Callable[..., Any], args: Any, kwargs: Any) -> bool:
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        try:
            return func(*args, **kwargs) is not NotImplemented
        except Exception:
            return False
