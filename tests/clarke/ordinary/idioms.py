"""What people write against NaN, by masks, in place; and calls that only look at gradients."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from clarke.ordinary.entries import numbers, ordinary, spread, trained


@ordinary("idioms", [0.0, 0.0], smooth=False)
def safe_norm_by_double_where(x: Tensor) -> Tensor:
    squares = (x * x).sum()
    positive = squares > 0
    return torch.where(positive, torch.sqrt(torch.where(positive, squares, torch.ones_like(squares))), 0 * squares)


@ordinary("idioms", [0.0, 1.0], smooth=True)
def sinc_by_double_where(x: Tensor) -> Tensor:
    safe = torch.where(x == 0, torch.ones_like(x), x)
    return (torch.where(x == 0, torch.ones_like(x), torch.sin(safe) / safe) * numbers(1, 2) + x).sum()


@ordinary("idioms", [1.0, 2.0], [0.5, 2.0], smooth=False)
def safe_division(a: Tensor, b: Tensor) -> Tensor:
    return (a / b.clamp(min=0.5)).sum() + (a / torch.where(b.abs() < 0.5, 0.5, b)).sum()


@ordinary("idioms", [0.0, 1.0, -1.0], smooth=False)
def kept_gradients(x: Tensor) -> Tensor:
    h = F.relu(x)
    h.retain_grad()
    return (h * numbers(1, 2, 3)).sum()


@ordinary("idioms", torch.zeros(1, dtype=torch.float64).expand(3), smooth=False)
def expanded_leaf(x: Tensor) -> Tensor:
    return (x.abs() * numbers(1, 2, 3)).sum()


@ordinary("idioms", [2.0, 0.5, 3.0], smooth=False)
def triangle_wave(x: Tensor) -> Tensor:
    return ((x % 2 - 1).abs() * numbers(1, 2, 3)).sum()


@ordinary("idioms", [2.0, 0.5, -1.0], smooth=True)
def whole_and_rest(x: Tensor) -> Tensor:
    whole = x // 1
    return ((whole + x % 1) * numbers(1, 2, 3)).sum()


@ordinary("idioms", [1.0, 3.0, 1.0, 2.0], smooth=False)
def range_of_distinct_values(x: Tensor) -> Tensor:
    distinct = torch.unique(x)
    return distinct[-1] - distinct[0]


@ordinary("idioms", [1.0, 1.0, 1.0, 1.0], smooth=False)
def spectrum_of_a_constant_signal(x: Tensor) -> Tensor:
    return torch.fft.rfft(x).abs().sum()


@ordinary("idioms", [0.0, 1.0, -1.0, 0.0], smooth=False)
def sums_and_means_of_segments(x: Tensor) -> Tensor:
    lengths = torch.tensor([2, 2])
    total = torch.segment_reduce(F.relu(x), "sum", lengths=lengths)
    mean = torch.segment_reduce(x, "mean", lengths=lengths)
    return (total * numbers(1, 2)).sum() + mean.abs().sum()


@ordinary("idioms", [1.0, 1.0, 0.0, 2.0], smooth=False)
def reduced_by_index(x: Tensor) -> Tensor:
    groups = torch.tensor([0, 0, 1, 1])
    largest = torch.zeros(2, dtype=x.dtype).index_reduce(0, groups, x, "amax", include_self=False)
    mean = torch.zeros(2, dtype=x.dtype).index_reduce(0, groups, x.abs(), "mean", include_self=False)
    return (largest * numbers(1, 2)).sum() + mean.sum()


@ordinary("idioms", [[1.0, 0.0], [0.0, 2.0], [1.0, 1.0]], [0.0, 1.0, -1.0], smooth=False)
def weighted_bags(table: Tensor, raw: Tensor) -> Tensor:
    weights = F.relu(raw)
    bags = F.embedding_bag(torch.tensor([0, 1, 2]), table, torch.tensor([0, 2]), mode="sum", per_sample_weights=weights)
    return (bags * spread(2, 2)).sum()


@ordinary("idioms", [0.0, 1.0], smooth=False)
def watched_by_a_hook(x: Tensor) -> Tensor:
    seen: list[Tensor] = []
    h = F.relu(x)
    if h.requires_grad:
        h.register_hook(seen.append)
    return (h * numbers(1, 2)).sum()


@ordinary("idioms", [0.0, 2.0, -1.0], smooth=False)
def written_by_a_mask(x: Tensor) -> Tensor:
    y = x.clone()
    mask = y > 0
    y[mask] = y[mask] * 2
    y[~mask] *= -0.5
    return (y * numbers(1, 2, 3)).sum()


@ordinary("idioms", [0.0, 2.0, -1.0], smooth=True)
def cut_at_zero_twice(x: Tensor) -> Tensor:
    up, down = x.clone(), -x.clone()
    up[up < 0] = 0
    down[down < 0] = 0
    return ((up - down) * numbers(1, 2, 3)).sum()


@ordinary("idioms", [0.0, 2.0, -1.0], smooth=False)
def chosen_by_a_mask(x: Tensor) -> Tensor:
    return x[x > 0].sum() + (x[x <= 0] ** 2).sum() - x[x <= 0].sum()


@ordinary("idioms", [1.0, 3.0, 3.0, 2.0], smooth=False)
def area_under_a_running_peak(x: Tensor) -> Tensor:
    return (x.cummax(0).values * numbers(1, 2, 3, 4)).sum() - (x.cummin(0).values ** 2).sum()


@ordinary("idioms", [1.0, 0.0, 2.0], [0.0, 0.0, 0.0], [1.0, 1.0, 2.0], smooth=False)
def clamped_by_learnable_bounds(x: Tensor, low: Tensor, high: Tensor) -> Tensor:
    return (torch.clamp(x, low, high) * numbers(1, 2, 3)).sum()


@ordinary("idioms", [1.0, 2.0, 3.0], smooth=False)
def filled_until_the_budget_ends(costs: Tensor) -> Tensor:
    left, gain = costs.new_tensor(3.0), costs.new_zeros(())
    for cost, worth in zip(costs, (3.0, 2.0, 1.0), strict=True):
        if left <= 0:
            break
        used = torch.minimum(cost, left)
        gain, left = gain + worth * used, left - used
    return gain


@ordinary("idioms", numbers([[2.0, 0.0], [0.0, 2.0]]), smooth=False)
def largest_eigenvalue_of_a_multiple_of_one(a: Tensor) -> Tensor:
    return torch.linalg.eigvalsh((a + a.T) / 2)[-1] + torch.linalg.matrix_norm(a, "nuc")


@ordinary("idioms", numbers([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 2.0]]), smooth=True)
def matrix_exponential_by_eigenvectors(a: Tensor) -> Tensor:
    values, vectors = torch.linalg.eigh((a + a.T) / 2)
    return ((vectors * values.exp()) @ vectors.T * spread(3, 3)).sum()


TABLE = nn.Embedding(3, 2, sparse=True).double()
TABLE.weight.data = numbers([[1.0, 0.0], [0.0, -1.0], [2.0, 2.0]])


@trained("idioms", TABLE.weight, smooth=True)
def sparse_embedding() -> Tensor:
    rows = TABLE(torch.tensor([0, 2, 0]))
    return ((F.relu(rows) - F.relu(-rows)) * spread(3, 2)).sum()


BIAS = nn.Parameter(numbers(0.0))


@trained("idioms", BIAS, smooth=True)
def hooks_and_a_bias_that_is_expanded() -> Tensor:
    wide = BIAS.expand(3)
    h = F.relu(wide) - F.relu(-wide)
    if h.requires_grad:
        h.register_hook(lambda gradient: None)
        h.retain_grad()
    return (h * numbers(1, 2, 4)).sum()


@ordinary("idioms", [0.0, -1.0, 1.0], smooth=False)
def infinite_scores_are_masked(x: Tensor) -> Tensor:
    masked = torch.where(torch.tensor([True, False, True]), x, -torch.inf)
    return torch.nan_to_num(masked, neginf=0.0).relu().sum() + masked.logsumexp(0) + masked.max()


@ordinary("idioms", [1.0, 1.0, 0.0], smooth=False)
def largest_by_scatter(x: Tensor) -> Tensor:
    out = torch.zeros(2, dtype=x.dtype).scatter_reduce(0, torch.tensor([0, 0, 1]), x, reduce="amax")
    return (out * numbers(1, 3)).sum() + torch.einsum("i,j->", x, x).relu_()
