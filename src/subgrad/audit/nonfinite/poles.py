"""The operators whose slopes may be infinite, and what their nodes have saved that says so.

A slope is made of what a node has saved. Before backward walks a graph the nodes of these operators are asked, on the
CPU, each in about one pass over one tensor.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from subgrad.audit.nonfinite.finite import total
from subgrad.kinks import KINKS
from subgrad.kinks.overloads import is_torchs
from subgrad.kinks.sets import Pole as InfiniteSlope
from subgrad.torch_internals.autograd import saved_number, saved_reader

STEEP = 1e18  # beyond it the square of a number overflows in single precision, as in the slope of a quotient
TINY = 1 / STEEP

Test = Callable[[Tensor, Any], bool]


@dataclass(frozen=True)
class Pole:
    """How the nodes of an operator are asked.

    Attributes:
        read: the tensor that is looked at.
        test: whether it, or what else the node has saved, means that a slope may be infinite.
        when: whether a node needs to be asked, from its numbers alone.
    """

    read: Callable[[Any], Any]
    test: Test
    when: Callable[[Any], bool] | None = None


def _pole(name: str, test: Test, when: Callable[[Any], bool] | None = None) -> Pole:
    return Pole(saved_reader(name), test, when)


def _is_large(tensor: Tensor, node: Any) -> bool:
    return not abs(total(tensor).item()) < STEEP


def _is_nan(tensor: Tensor, node: Any) -> bool:
    found = total(tensor).item()
    return found != found


def _is_near_zero(tensor: Tensor, node: Any) -> bool:
    """Most divisors are positive: those take one pass."""
    return not (tensor.min().item() > TINY or tensor.abs().min().item() > TINY)


def _not_above(bound: float) -> Test:
    return lambda tensor, node: not tensor.min().item() > bound


def _not_within(bound: float) -> Test:
    return lambda tensor, node: not tensor.abs().max().item() < bound


def _logit(tensor: Tensor, node: Any) -> bool:
    return not (tensor.min().item() > 0 and tensor.max().item() < 1)


_exponent, _base, _result, _other = map(saved_reader, ("exponent", "self", "result", "other"))


def _power_of_tensor(tensor: Tensor, node: Any) -> bool:
    return _is_near_zero(tensor, node) if saved_number(node, "exponent") < 0 else not tensor.min().item() > 0


def _power_of_both(result: Tensor, node: Any) -> bool:
    base, exponent = _base(node), _exponent(node)
    return bool((base < 0).any()) or bool(((base == 0) & (exponent < 1)).any()) or _is_large(result, node)


def _power_of_number(result: Tensor, node: Any) -> bool:
    return saved_number(node, "self") < 0 or _is_large(result, node)


def _log_of_sum(tensor: Tensor, node: Any) -> bool:
    return not abs(total(tensor).item() + total(_other(node)).item()) < STEEP


def _has_zero(tensor: Tensor, node: Any) -> bool:
    return bool((tensor == 0).any())


def _are_repeated(tensor: Tensor, node: Any) -> bool:
    """Eigenvalues or singular values: their vectors have no slopes then."""
    return bool((tensor.diff(dim=-1) == 0).any())


def _are_repeated_anywhere(tensor: Tensor, node: Any) -> bool:
    """Of eigenvalues that have no order."""
    apart = tensor.unsqueeze(-1) - tensor.unsqueeze(-2)
    return int((apart == 0).sum()) > tensor.numel()


def _gammas(tensor: Tensor, node: Any) -> bool:
    """The largest of the functions of which it is a product has its pole furthest up."""
    return not tensor.min().item() > (saved_number(node, "p") - 1) / 2


def _is_singular(tensor: Tensor, node: Any) -> bool:
    return bool((tensor.diagonal(dim1=-2, dim2=-1) == 0).any())


def _is_below_one(name: str, with_zero: bool) -> Callable[[Any], bool]:
    def when(node: Any) -> bool:
        number = saved_number(node, name)
        return not isinstance(number, complex) and number < 1 and (with_zero or number != 0)

    return when


# By the names of nodes, and by the names of the tensors that these have saved, as torch has them.
# fmt: off
POLES: dict[str, Pole] = {
    **dict.fromkeys(("SqrtBackward0", "HypotBackward0"),                        _pole("result", _not_above(0))),
    **dict.fromkeys(("LogBackward0", "Log2Backward0", "Log10Backward0"),        _pole("self", _not_above(TINY))),
    **dict.fromkeys(("LgammaBackward0", "DigammaBackward0", "PolygammaBackward0"), _pole("self", _not_above(TINY))),
    "MvlgammaBackward0":            _pole("self", _gammas),
    **dict.fromkeys(("ReciprocalBackward0", "RsqrtBackward0", "TanBackward0"),  _pole("result", _is_large)),
    **dict.fromkeys(("ExpBackward0", "Exp2Backward0", "Expm1Backward0"),        _pole("result", _is_large)),
    **dict.fromkeys(("LogsumexpBackward0", "LogcumsumexpBackward0"),            _pole("result", _is_large)),
    **dict.fromkeys(("LinalgSolveExBackward0", "SpecialNdtriBackward0"),        _pole("result", _is_large)),
    **dict.fromkeys(("SoftmaxBackward0", "LogSoftmaxBackward0", "StdBackward0"), _pole("result", _is_nan)),
    **dict.fromkeys(("AcosBackward0", "AsinBackward0"),                         _pole("self", _not_within(1))),
    **dict.fromkeys(("AtanhBackward0", "ErfinvBackward0"),                      _pole("self", _not_within(1))),
    **dict.fromkeys(("SinhBackward0", "CoshBackward0"),                         _pole("self", _not_within(80))),
    **dict.fromkeys(("XlogyBackward0", "XlogyBackward1"),                       _pole("other", _not_above(0))),
    **dict.fromkeys(("SpecialXlog1PyBackward0", "SpecialXlog1PyBackward1"),     _pole("other", _not_above(-1))),
    **dict.fromkeys(("SpecialBesselY0Backward0", "SpecialBesselY1Backward0"),   _pole("self", _not_above(TINY))),
    "SpecialModifiedBesselK0Backward0": _pole("self", _not_above(TINY)),
    "SpecialModifiedBesselK1Backward0": _pole("self", _not_above(TINY)),
    **dict.fromkeys(("LogaddexpBackward0", "Logaddexp2Backward0"),              _pole("self", _log_of_sum)),
    **dict.fromkeys(("NativeLayerNormBackward0", "NativeGroupNormBackward0"),   _pole("result2", _is_large)),
    "AcoshBackward0":               _pole("self", _not_above(1)),
    "AddcdivBackward0":             _pole("tensor2", _is_near_zero),
    "DivBackward0":                 _pole("other", _is_near_zero),
    **dict.fromkeys(("IgammaBackward0", "IgammacBackward0"),                    _pole("other", _not_above(0))),
    "Log1PBackward0":               _pole("self", _not_above(-1)),
    "LogitBackward0":               _pole("self", _logit, lambda node: saved_number(node, "eps") is None),
    "PowBackward0":                 _pole("self", _power_of_tensor, _is_below_one("exponent", with_zero=False)),
    "PowBackward1":                 _pole("result", _power_of_both),
    "PowBackward2":                 _pole("result", _power_of_number),
    "SpecialEntrBackward0":         _pole("self", _not_above(0)),
    "LinalgCholeskyExBackward0":    _pole("L", _is_singular),
    "LinalgEighBackward0":          _pole("eigenvalues", _are_repeated),
    "LinalgEigBackward0":           _pole("eigenvalues", _are_repeated_anywhere),
    "LinalgSolveTriangularBackward0": _pole("result", _is_large),
    "CholeskySolveBackward0":       _pole("result", _is_large),
    "TriangularSolveBackward0":     _pole("solution", _is_large),
    "LinalgInvExBackward0":         _pole("inverse", _is_large),
    "LinalgQrBackward0":            _pole("R", _is_singular),
    "LinalgSlogdetBackward0":       _pole("LU", _is_singular),
    "LinalgSvdBackward0":           _pole("S", _are_repeated),
    "LinalgVectorNormBackward0":    _pole("self", _has_zero, _is_below_one("ord", with_zero=True)),
}
# The operators whose lines are noted, in the steps in which that is done, with those of the table's poles.
NOTED = (
    *dict.fromkeys(kink.op for kink in KINKS if isinstance(kink.set, InfiniteSlope) and is_torchs(kink.op)),
    "sqrt", "hypot", "log", "log2", "log10", "log1p", "logit", "div.Tensor", "div.Scalar", "addcdiv", "reciprocal",
    "rsqrt", "tan", "exp", "exp2", "expm1", "sinh", "cosh", "acos", "asin", "atanh", "erfinv", "acosh", "special_ndtri",
    "lgamma", "digamma", "polygamma", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar", "xlogy.Tensor",
    "xlogy.Scalar_Self", "special_xlog1py", "special_entr", "igamma", "_softmax", "_log_softmax", "logsumexp",
    "logcumsumexp", "logaddexp", "logaddexp2", "linalg_vector_norm", "std.correction", "var.correction",
    "native_layer_norm", "native_group_norm", "_linalg_eigh", "_linalg_svd", "linalg_inv_ex", "linalg_cholesky_ex",
    "linalg_qr", "_linalg_slogdet", "_linalg_solve_ex", "_linalg_det",
    "mul.Tensor", "mul.Scalar", "mm", "addmm", "bmm", "baddbmm", "mv", "addmv", "dot", "convolution", "prod",
    "prod.dim_int", "cumsum", "cumprod", "abs", "neg", "add.Tensor", "sub.Tensor", "rsub.Scalar", "sin", "cos", "tanh",
    "sigmoid", "softplus", "atan2", "linalg_cross", "sum", "sum.dim_IntList", "mean", "mean.dim", "_cdist_forward",
    "mse_loss", "smooth_l1_loss", "huber_loss", "nll_loss_forward", "binary_cross_entropy", "log_sigmoid_forward",
    "where.self", "masked_fill.Scalar", "masked_fill.Tensor", "masked_scatter", "masked_select", "index.Tensor",
    "index_select", "index_put", "gather", "take", "select.int", "slice.Tensor", "clamp", "clamp.Tensor", "clamp_min",
    "clamp_min.Tensor", "clamp_max", "clamp_max.Tensor", "nan_to_num", "maximum", "minimum", "fmax", "fmin", "amax",
    "amin", "max.dim", "min.dim", "relu", "hardtanh", "threshold", "topk", "sort.stable", "tril", "triu", "expand",
    "transpose.int", "unsqueeze", "cat", "stack", "norm.ScalarOpt_dim", "native_batch_norm", "_native_batch_norm_legit",
    "scatter_add", "index_add", "embedding", "max", "min", "nansum", "native_dropout",
)
# fmt: on
