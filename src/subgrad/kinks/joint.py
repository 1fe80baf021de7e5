"""Kinks in many entries at once: selections inside a tensor, norms and distances, spectra, losses with hinges.

Torch picks the ``least`` element at most of them, ``one`` vertex of the set at others, and at some what is no element.
"""

from __future__ import annotations

from subgrad.kinks.kink import Kink
from subgrad.kinks.sets import Joint, Jump, Pole

TIED = Joint("simplex over the tied entries")
PREFIX = Joint("simplex over the tied entries so far")
WINDOW = Joint("simplex over the tied entries of the window")
SPECTRUM = Joint("hull over the bases of the repeated values", candidates=("A",))
HINGE = Joint("segment between both sides of each hinge", middle=False)
CELLS = Joint("hull over the neighbouring cells", candidates=("grid",))
AMAX, AMIN = "self.amax(dim, True)", "self.amin(dim, True)"
REDUCED = "reduce in ('amax', 'amin')"


def of_norm(
    op: str, p: str, vector: str, dim: str, candidates: tuple[str, ...] = ("self",), distance: bool = False
) -> tuple[Kink, ...]:
    """The kinks of a norm of a vector, by its power. Distances know no negative ones, and give ties a whole slope each."""
    size = f"({vector}).abs()"
    ball = Joint("dual unit ball", candidates)
    corners = Joint("[-1, 1] in every entry that is 0", candidates)
    ties = Joint("simplex over the tied entries, with their signs", candidates)
    # fmt: off
    rows = (
        Kink(op, f"zero({vector}, {dim})", ball, "least", when=f"1 < {p} < inf"),
        Kink(op, f"{vector} == 0", corners, "least", when=f"{p} == 1"),
        Kink(op, f"tied({size}, {size}.amax({dim}, True), {dim}) | zero({vector}, {dim})", ties, None if distance else "least", when=f"{p} == inf"),
        Kink(op, f"{vector} == 0", Pole(order=f"1 - {p}", side="both"), when=f"0 < {p} < 1"),
        Kink(op, f"{vector} == 0", Jump(along=None), when=f"{p} == 0"),
    )
    below = (
        Kink(op, f"tied({size}, {size}.amin({dim}, True), {dim}) | ({size}.amin({dim}, True) == 0)", ties, "least", when=f"{p} == -inf"),
        Kink(op, f"{vector} == 0", corners, "least", when=f"-inf < {p} < 0"),
    )
    # fmt: on
    return rows if distance else (*rows, *below)


# fmt: off
# ruff: noqa: E501
SELECTIONS = (
    Kink("amax",            f"tied(self, {AMAX}, dim)",                          TIED,   "least"),
    Kink("amin",            f"tied(self, {AMIN}, dim)",                          TIED,   "least"),
    Kink("aminmax",         "tied(self, self.amin(dim, True), dim) | tied(self, self.amax(dim, True), dim)", TIED, "least", when="dim is not None"),
    Kink("aminmax",         "tied(self, self.amin()) | tied(self, self.amax())", TIED,   "least", when="dim is None and self.numel() > 0"),
    Kink("max",             "tied(self, self.amax())",                           TIED,   "least"),
    Kink("min",             "tied(self, self.amin())",                           TIED,   "least"),
    Kink("median",          "tied(self, self.median())",                         TIED,   "least"),
    Kink("nanmedian",       "tied(self, self.nanmedian())",                      TIED,   "least"),
    Kink("max.dim",         f"tied(self, {AMAX}, dim)",                          TIED,   "one"),
    Kink("min.dim",         f"tied(self, {AMIN}, dim)",                          TIED,   "one"),
    Kink("median.dim",      "tied(self, self.median(dim, True).values, dim)",    TIED,   "one"),
    Kink("nanmedian.dim",   "tied(self, self.nanmedian(dim, True).values, dim)", TIED,   "one"),
    Kink("kthvalue",        "tied(self, self.kthvalue(k, dim, True).values, dim)", TIED, "one"),
    Kink("sort",            "repeated(self, dim)",                               TIED,   "one"),
    Kink("sort.stable",     "repeated(self, dim)",                               TIED,   "one"),
    Kink("topk",            "repeated(self, dim, self.topk(k, dim, largest).values)", TIED, "one"),
    Kink("mode",            "repeated(self, dim)",                               Jump(along=None)),
    Kink("cummax",          "meets_running(self, self.cummax(dim).values, dim)", PREFIX, "one"),
    Kink("cummin",          "meets_running(self, self.cummin(dim).values, dim)", PREFIX, "one"),
    Kink("scatter_reduce.two", "tied_when_scattered(self, dim, index, src, reduce, include_self)", Joint("simplex over the tied entries", ("self", "src")), "least", when=REDUCED),
    Kink("index_reduce",    "tied_when_indexed(self, dim, index, source, reduce, include_self)", Joint("simplex over the tied entries", ("self", "source")), "least", when=REDUCED),
    Kink("segment_reduce",  "tied_in_segments(data, reduce, lengths, offsets, axis)", Joint("simplex over the tied entries", ("data",)), None, when="reduce in ('max', 'min', 'amax', 'amin')"),  # shared for positive cotangents, whole for negative ones
    Kink("segment_reduce",  "tied_in_segments(data, reduce, lengths, offsets, axis, initial)",  Joint("segment to the constant that it starts from", ("data",), middle=False), "one", when="reduce in ('max', 'min', 'amax', 'amin') and initial is not None"),
    Kink("_embedding_bag",  "tied_in_bags(weight, indices, offsets, padding_idx, include_last_offset)", Joint("simplex over the tied entries", ("weight",)), "one", when="mode == 2"),

    Kink("max_pool2d_with_indices", "tied_in_windows(self, regular(self, kernel_size, stride, padding, dilation, ceil_mode))", WINDOW, "one"),
    Kink("max_pool3d_with_indices", "tied_in_windows(self, regular(self, kernel_size, stride, padding, dilation, ceil_mode))", WINDOW, "one"),
    Kink("adaptive_max_pool2d",     "tied_in_windows(self, adaptive(self, output_size))", WINDOW, "one"),
    Kink("adaptive_max_pool3d",     "tied_in_windows(self, adaptive(self, output_size))", WINDOW, "one"),
    Kink("fractional_max_pool2d",   "tied_in_windows(self, fractional(self, kernel_size, output_size, random_samples))", WINDOW, "one"),
    Kink("fractional_max_pool3d",   "tied_in_windows(self, fractional(self, kernel_size, output_size, random_samples))", WINDOW, "one"),
)

NORMS = (
    *of_norm("linalg_vector_norm", "ord", "self", "(dim or [])"),
    *of_norm("norm.Scalar", "p", "self", "[]"),
    *of_norm("norm.ScalarOpt_dim", "(2 if p is None else p)", "self", "dim"),
    *of_norm("dist", "p", "(self - other)", "[]", ("self", "other")),
    *of_norm("_cdist_forward", "p", "pairs(x1, x2)", "-1", ("x1", "x2"), distance=True),
    *of_norm("_pdist_forward", "p", "all_pairs(self)", "-1", distance=True),
    Kink("_euclidean_dist",    "zero(pairs(x1, x2), -1)",      Joint("dual unit ball", ("x1", "x2")),   "least"),
    Kink("std.correction",     "constant(self, dim)",          Joint("ball among deviations from the mean"), "least"),
    Kink("std_mean.correction", "constant(self, dim)",         Joint("ball among deviations from the mean"), "least"),
    Kink("renorm",             "norms(self, p, dim) == maxnorm", Joint("segment between the identity and the projection", middle=False), "one"),
    Kink("renorm",             "(slices(self, dim) == 0) & (norms(self, p, dim) > maxnorm)[:, None]", Joint("[-1, 1] in every entry that is 0"), "least", when="p == 1"),
    Kink("renorm",             "tied(slices(self, dim).abs(), slices(self, dim).abs().amax(1, True), 1) & (norms(self, p, dim) > maxnorm)[:, None]", Joint("simplex over the tied entries, with their signs", middle=False), "one", when="p == inf"),
    Kink("_linalg_svd",        "same_spectrum(torch.linalg.svdvals(A), vanishing=True)", SPECTRUM, "one"),
    Kink("_linalg_eigh",       "same_spectrum(torch.linalg.eigvalsh(A, UPLO))", SPECTRUM, "one"),
)

LOSSES = (
    Kink("smooth_l1_loss",     "self == target",               Joint("[-1, 1] in every entry", ("self", "target")), None, when="beta == 0"),  # -1 for both
    Kink("multi_margin_loss",  "hinged_classes(self, target, margin)", HINGE,  "least", when="p == 1"),
    Kink("multilabel_margin_loss_forward", "hinged_labels(self, target)", HINGE, "least"),
    Kink("grid_sampler_2d",    "on_cells(input, grid, padding_mode, align_corners)",      CELLS,  "one", when="interpolation_mode == 0"),
    Kink("grid_sampler_3d",    "on_cells(input, grid, padding_mode, align_corners)",      CELLS,  "one", when="interpolation_mode == 0"),
    Kink("grid_sampler_2d",    "on_cells(input, grid, padding_mode, align_corners, 0.5)", Jump(along="grid"), when="interpolation_mode == 1"),
    Kink("grid_sampler_3d",    "on_cells(input, grid, padding_mode, align_corners, 0.5)", Jump(along="grid"), when="interpolation_mode == 1"),
)
# fmt: on

JOINT = (*SELECTIONS, *NORMS, *LOSSES)
