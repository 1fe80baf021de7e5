"""Losses, at margins that are met exactly, boxes that touch, and errors of 0."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from clarke.ordinary.entries import numbers, ordinary, spread

X = numbers([[1, 0], [0, 2], [1, 1]])
SIGNS = numbers(1, -1, 1)


@ordinary("losses", [1.0, -0.5], smooth=False)
def hinge(w: Tensor) -> Tensor:
    return (1 - SIGNS * (X @ w)).clamp(min=0).mean()


@ordinary("losses", [1.0, -0.5], smooth=True)
def squared_hinge(w: Tensor) -> Tensor:
    return F.relu(1 - SIGNS * (X @ w)).pow(2).mean()


@ordinary("losses", [1.0, 0.0, -1.0, 3.0], smooth=True)
def huber_by_where(error: Tensor) -> Tensor:
    size = error.abs()
    return torch.where(size <= 1, 0.5 * error**2, size - 0.5).mean()


@ordinary("losses", [1.0, 0.0, -2.0, 2.0], [0.0, 0.0, 0.0, 0.0], smooth=True)
def huber_and_smooth_l1(prediction: Tensor, target: Tensor) -> Tensor:
    return F.huber_loss(prediction, target, delta=2.0) + F.smooth_l1_loss(prediction, target, beta=1.0)


@ordinary("losses", [0.0, 0.0, 2.0], smooth=True)
def focal(logits: Tensor) -> Tensor:
    target = numbers(1, 0, 1)
    entropy = F.binary_cross_entropy_with_logits(logits, target, reduction="none")
    p = torch.sigmoid(logits)
    right = torch.where(target == 1, p, 1 - p)
    return ((1 - right).clamp(min=0) ** 2 * entropy).mean()


@ordinary("losses", [[0.0, 0.0], [1.0, 1.0]], [[0.0, 0.0], [1.0, 2.0]], [[1.0, 0.0], [1.0, 3.0]], smooth=False)
def triplet(anchor: Tensor, positive: Tensor, negative: Tensor) -> Tensor:
    near = (anchor - positive).norm(dim=1)
    far = (anchor - negative).norm(dim=1)
    return torch.relu(near - far + 1.0).mean()


@ordinary("losses", [[0.0, 0.0], [2.0, 0.0]], [[0.0, 0.0], [0.0, 0.0]], smooth=True)
def contrastive(a: Tensor, b: Tensor) -> Tensor:
    same = numbers(1, 0)
    d = (a - b).norm(dim=1)
    return (same * d**2 + (1 - same) * torch.clamp(2.0 - d, min=0) ** 2).mean()


@ordinary("losses", [1.0, 2.0, 4.0], smooth=False)
def pinball(prediction: Tensor) -> Tensor:
    error = numbers(1, 2, 3) - prediction
    return sum(torch.maximum(q * error, (q - 1) * error).mean() for q in (0.1, 0.5, 0.9))  # type: ignore[return-value]


@ordinary("losses", [0.0, 1.0, -1.0, 0.5], smooth=False)
def dice(scores: Tensor) -> Tensor:
    p, target = scores.clamp(0, 1), numbers(1, 1, 0, 0)
    return 1 - (2 * (p * target).sum() + 1) / (p.sum() + target.sum() + 1)


@ordinary("losses", [[0.0, 0.0, 1.0, 1.0], [0.0, 0.0, 2.0, 2.0]], smooth=False)
def iou_of_boxes_that_touch(boxes: Tensor) -> Tensor:
    other = numbers([[1.0, 0.0, 2.0, 1.0], [0.0, 0.0, 2.0, 2.0]])
    low = torch.max(boxes[:, :2], other[:, :2])
    high = torch.min(boxes[:, 2:], other[:, 2:])
    inner = (high - low).clamp(min=0).prod(1)
    area = lambda b: (b[:, 2] - b[:, 0]) * (b[:, 3] - b[:, 1])  # noqa: E731
    return (1 - inner / (area(boxes) + area(other) - inner)).mean()


@ordinary("losses", [0.0, 0.0, 2.0, 2.0], [2.0, 1.0, 4.0, 2.0], smooth=False)
def giou(a: Tensor, b: Tensor) -> Tensor:
    width = torch.clamp(torch.minimum(a[2], b[2]) - torch.maximum(a[0], b[0]), min=0)
    height = torch.clamp(torch.minimum(a[3], b[3]) - torch.maximum(a[1], b[1]), min=0)
    inner = width * height
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - inner
    low, high = torch.minimum(a[:2], b[:2]), torch.maximum(a[2:], b[2:])
    hull = (high - low).prod()
    return 1 - inner / union + (hull - union) / hull


@ordinary("losses", [[0.0, 0.0], [1.0, 0.0]], [[0.0, 0.0], [1.0, 1.0], [2.0, 0.0]], smooth=False)
def chamfer(a: Tensor, b: Tensor) -> Tensor:
    distances = torch.cdist(a, b)
    return distances.min(dim=1).values.mean() + distances.min(dim=0).values.mean()


@ordinary("losses", [0.0, 1.0, 1.0], smooth=False)
def dynamic_time_warping(x: Tensor) -> Tensor:
    y = numbers(0, 1, 2)
    infinite = x.new_tensor(torch.inf)
    last = [x.new_zeros(()), infinite, infinite, infinite]
    for i in range(3):
        row = [infinite]
        for j in range(3):
            best = torch.minimum(torch.minimum(last[j], last[j + 1]), row[j])
            row.append((x[i] - y[j]).abs() + best)
        last = row
    return last[-1]


@ordinary("losses", [0.0, 1.0, 1.0, 3.0], smooth=True)
def soft_dynamic_time_warping(x: Tensor) -> Tensor:
    y = numbers(0, 1, 2)
    table = torch.full((5, 4), 1e3, dtype=x.dtype)
    table[0, 0] = 0
    for i in range(4):
        for j in range(3):
            before = torch.stack([table[i, j], table[i, j + 1], table[i + 1, j]])
            table[i + 1, j + 1] = (x[i] - y[j]) ** 2 - 0.5 * torch.logsumexp(-before / 0.5, 0)
    return table[-1, -1]


@ordinary("losses", [[0.0, 0.0, 1.0], [2.0, -1.0, 0.0]], smooth=False)
def label_smoothing(features: Tensor) -> Tensor:
    logits = F.relu(features) @ spread(3, 4)
    return F.cross_entropy(logits, torch.tensor([1, 3]), label_smoothing=0.1)


@ordinary("losses", spread(3, 2).round(), smooth=False)
def structured_hinge_of_a_chain(emissions: Tensor) -> Tensor:
    """The best path and its margin over the given one: Viterbi's scores, as of a CRF without temperature."""
    transitions = numbers([[0, 1], [1, 0]])
    gold = [0, 1, 1]
    score = emissions[0]
    for each in emissions[1:]:
        score = (score[:, None] + transitions).max(dim=0).values + each
    right = emissions[range(3), gold].sum() + transitions[gold[:-1], gold[1:]].sum()
    return score.max() - right


@ordinary("losses", [[1.0, 0.0, 2.0], [3.0, 3.0, 2.0]], smooth=False)
def multi_class_margins(scores: Tensor) -> Tensor:
    target = torch.tensor([0, 1])
    return F.multi_margin_loss(scores, target) + F.multilabel_margin_loss(
        scores, torch.tensor([[0, 2, -1], [1, -1, 0]])
    )


@ordinary("losses", [[1.0, 0.0], [2.0, 1.0]], smooth=False)
def cosine_embedding(a: Tensor) -> Tensor:
    b = numbers([[0.0, 3.0], [2.0, 1.0]])
    return F.cosine_embedding_loss(a, b, torch.tensor([-1, 1]))


@ordinary("losses", [[1.0, 1.0, 2.0], [1.0, 3.0, 2.0]], smooth=False)
def total_variation(image: Tensor) -> Tensor:
    return image.diff(dim=0).abs().sum() + image.diff(dim=1).abs().sum() + ((image - 1) ** 2).mean()


@ordinary("losses", [0.0, 2.0, 0.0, 0.0], smooth=False)
def elastic_net_with_groups(w: Tensor) -> Tensor:
    fit = ((X @ w[:2] - SIGNS) ** 2).mean()
    return fit + 0.1 * w.abs().sum() + 0.2 * w.reshape(2, 2).norm(dim=1).sum() + 0.1 * w.square().sum()
