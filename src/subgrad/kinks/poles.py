"""Infinite slopes: where a root, a logarithm or a quotient is infinitely steep, with the order and the side of each.

Torch returns infinity there, and nan where it multiplies infinity with a cotangent of 0. The value is infinite as well
from order 1 on.
"""

from __future__ import annotations

from subgrad.kinks.kink import Kink
from subgrad.kinks.sets import Pole

IS_INTEGER = "exponent == exponent.real // 1"

# fmt: off
# ruff: noqa: E501
POLES = (
    # roots and powers
    Kink("sqrt",               "self == 0",                     Pole(order=0.5, side="above")),
    Kink("rsqrt",              "self == 0",                     Pole(order=1.5, side="above", finite=False)),
    Kink("pow.Tensor_Scalar",  "self == 0",                     Pole(order="1 - exponent", side="above"), when="0 < exponent.real < 1"),
    Kink("pow.Tensor_Scalar",  "self == 0",                     Pole(order="1 - exponent", side="above", finite=False), when=f"exponent.real < 0 and not ({IS_INTEGER})"),
    Kink("pow.Tensor_Scalar",  "self == 0",                     Pole(order="1 - exponent", side="both", finite=False),  when=f"exponent.real < 0 and {IS_INTEGER}"),
    Kink("pow.Tensor_Tensor",  "(self == 0) & (exponent.real < 1)", Pole(order="1 - exponent", side="above")),

    # quotients
    Kink("reciprocal",         "self == 0",                     Pole(order=2.0, side="both", finite=False)),
    Kink("div.Tensor",         "other == 0",                    Pole(order=2.0, side="both", finite=False)),
    Kink("addcdiv",            "tensor2 == 0",                  Pole(order=2.0, side="both", finite=False)),
    Kink("atan2",              "(self == 0) & (other == 0)",    Pole(order=1.0, side="both")),

    # logarithms
    Kink("log",                "self == 0",                     Pole(order=1.0, side="above", finite=False)),
    Kink("log2",               "self == 0",                     Pole(order=1.0, side="above", finite=False)),
    Kink("log10",              "self == 0",                     Pole(order=1.0, side="above", finite=False)),
    Kink("log1p",              "self == -1",                    Pole(order=1.0, side="above", finite=False)),
    Kink("logit",              "self == 0",                     Pole(order=1.0, side="above", finite=False), when="eps is None"),
    Kink("logit",              "self == 1",                     Pole(order=1.0, side="below", finite=False), when="eps is None"),
    Kink("xlogy.Tensor",       "(other == 0) & (self != 0)",    Pole(order=1.0, side="above", finite=False)),
    Kink("xlogy.Tensor",       "(other == 0) & (self == 0)",    Pole(order=0.0, side="above")),
    Kink("xlogy.Scalar_Self",  "other == 0",                    Pole(order=1.0, side="above", finite=False), when="self != 0"),
    Kink("special_xlog1py",    "(other == -1) & (self != 0)",   Pole(order=1.0, side="above", finite=False)),
    Kink("special_xlog1py",    "(other == -1) & (self == 0)",   Pole(order=0.0, side="above")),
    Kink("special_xlog1py.self_scalar", "other == -1",          Pole(order=1.0, side="above", finite=False), when="self != 0"),
    Kink("special_entr",       "self == 0",                     Pole(order=0.0, side="above")),

    # inverse functions at the ends of their domains
    Kink("acos",               "self == -1",                    Pole(order=0.5, side="above")),
    Kink("acos",               "self == 1",                     Pole(order=0.5, side="below")),
    Kink("asin",               "self == -1",                    Pole(order=0.5, side="above")),
    Kink("asin",               "self == 1",                     Pole(order=0.5, side="below")),
    Kink("acosh",              "self == 1",                     Pole(order=0.5, side="above")),
    Kink("atanh",              "self == -1",                    Pole(order=1.0, side="above", finite=False)),
    Kink("atanh",              "self == 1",                     Pole(order=1.0, side="below", finite=False)),
    Kink("erfinv",             "self == -1",                    Pole(order=1.0, side="above", finite=False)),
    Kink("erfinv",             "self == 1",                     Pole(order=1.0, side="below", finite=False)),
    Kink("special_ndtri",      "self == 0",                     Pole(order=1.0, side="above", finite=False)),
    Kink("special_ndtri",      "self == 1",                     Pole(order=1.0, side="below", finite=False)),

    # the gamma function and its kin at 0 and the negative integers
    Kink("lgamma",             "(self <= 0) & (self == self.floor())",  Pole(order=1.0, side="both", finite=False)),
    Kink("digamma",            "(self <= 0) & (self == self.floor())",  Pole(order=2.0, side="both", finite=False)),
    Kink("polygamma",          "(self <= 0) & (self == self.floor())",  Pole(order="n + 2", side="both", finite=False)),
    Kink("mvlgamma",           "(self <= (p - 1) / 2) & (self * min(p, 2) == (self * min(p, 2)).floor())", Pole(order=1.0, side="both", finite=False)),
    Kink("igamma",             "(other == 0) & (self < 1)",             Pole(order="1 - self", side="above")),
    Kink("igammac",            "(other == 0) & (self < 1)",             Pole(order="1 - self", side="above")),

    # Bessel functions of the second kind
    Kink("special_bessel_y0",          "self == 0",             Pole(order=1.0, side="above", finite=False)),
    Kink("special_bessel_y1",          "self == 0",             Pole(order=2.0, side="above", finite=False)),
    Kink("special_modified_bessel_k0", "self == 0",             Pole(order=1.0, side="above", finite=False)),
    Kink("special_modified_bessel_k1", "self == 0",             Pole(order=2.0, side="above", finite=False)),

    # normalisation of what does not vary
    Kink("native_layer_norm",  "variance(input, normalized_shape) + eps == 0",  Pole(order=1.0, side="both", finite=False)),

    # factorisations: vectors of values that repeat, and matrices without full rank
    Kink("_linalg_svd",        "same_spectrum(torch.linalg.svdvals(A))",        Pole(order=1.0, side="both"), when="compute_uv"),
    Kink("_linalg_eigh",       "same_spectrum(torch.linalg.eigvalsh(A, UPLO))", Pole(order=1.0, side="both"), when="compute_v"),
    Kink("linalg_eig",         "same_eigenvalues(self)",                        Pole(order=1.0, side="both")),
    Kink("linalg_qr",          "is_singular(A)",                                Pole(order=1.0, side="both")),
    Kink("_linalg_slogdet",    "is_singular(A)",                                Pole(order=1.0, side="both", finite=False)),
    Kink("linalg_solve_triangular", "self.diagonal(dim1=-2, dim2=-1) == 0", Pole(order=2.0, side="both", finite=False), when="not unitriangular"),
    Kink("cholesky_solve",     "input2.diagonal(dim1=-2, dim2=-1) == 0",        Pole(order=3.0, side="both", finite=False)),
    Kink("triangular_solve",   "A.diagonal(dim1=-2, dim2=-1) == 0",             Pole(order=2.0, side="both", finite=False), when="not unitriangular"),
)
# fmt: on
