"""Programs that sort, rank and select, with ties."""

from __future__ import annotations

import torch
from torch import Tensor

from clarke.ordinary.entries import numbers, ordinary, spread


@ordinary("sorting", [1.0, 0.0, 1.0, 2.0], smooth=False)
def wasserstein_of_samples(x: Tensor) -> Tensor:
    y = numbers(0, 1, 3, 2)
    return (x.sort().values - y.sort().values).abs().mean()


@ordinary("sorting", [[0.0, 0.0], [1.0, 0.0], [0.0, 2.0]], smooth=False)
def sliced_wasserstein(x: Tensor) -> Tensor:
    y, directions = numbers([[0.0, 0.0], [1.0, 1.0], [0.0, 2.0]]), numbers([[1.0, 0.0, 0.6], [0.0, 1.0, 0.8]])
    one, _ = torch.sort(x @ directions, dim=0)
    other, _ = torch.sort(y @ directions, dim=0)
    return ((one - other) ** 2).mean() + (one - other).abs().mean()


@ordinary("sorting", [2.0, 1.0, 2.0, 2.0, 0.0], smooth=False)
def sum_of_the_three_largest(x: Tensor) -> Tensor:
    values, _ = torch.topk(x, 3)
    return (values * numbers(3, 2, 1)).sum()


@ordinary("sorting", [1.0, 3.0, 2.0, 2.0, 4.0, 0.0], smooth=False)
def median_of_means(x: Tensor) -> Tensor:
    return x.reshape(3, 2).mean(1).median()


@ordinary("sorting", [3.0, 1.0, 1.0, 5.0, 3.0], smooth=False)
def trimmed_mean(x: Tensor) -> Tensor:
    order = torch.argsort(x)
    return torch.gather(x, 0, order[1:-1]).mean()


@ordinary("sorting", [2.0, 1.0, 0.0, 1.0], smooth=False)
def pairwise_ranking(scores: Tensor) -> Tensor:
    grades = torch.tensor([3, 2, 1, 1])
    better = grades[:, None] > grades[None, :]
    margins = scores[:, None] - scores[None, :]
    return torch.relu(1 - margins[better]).mean()


@ordinary("sorting", [1.0, 1.0, 0.0, 2.0], smooth=False)
def discounted_gain(scores: Tensor) -> Tensor:
    best = scores.sort(descending=True).values
    return (best / torch.log2(torch.arange(2, 6, dtype=best.dtype))).sum()


@ordinary("sorting", [1.0, 3.0, 2.0, 3.0, 3.0], smooth=False)
def value_at_risk(losses: Tensor) -> Tensor:
    threshold = torch.quantile(losses, 0.75)
    return threshold + torch.relu(losses - threshold).mean() / 0.25


@ordinary("sorting", [1.0, 3.0, 3.0, 2.0, 3.0], smooth=False)
def largest_drawdown(prices: Tensor) -> Tensor:
    peaks, _ = torch.cummax(prices, dim=0)
    return (peaks - prices).max() + (prices * spread(5)).sum()


@ordinary("sorting", [[0.0, 1.0], [2.0, 1.0], [1.0, 1.0]], smooth=False)
def nearest_code(z: Tensor) -> Tensor:
    book = numbers([[0.0, 0.0], [2.0, 2.0], [0.0, 2.0]])
    distances = ((z[:, None] - book[None]) ** 2).sum(-1)
    nearest = distances.argmin(dim=1)
    return ((z - book[nearest]) ** 2).sum(1).mean() + distances.amin(dim=0).sum()
