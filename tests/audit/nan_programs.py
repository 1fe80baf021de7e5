"""Twenty programs whose gradient is infinite or NaN in one batch of a training, each with the lines marked that matter.

In the source of a loss ``# guilty`` marks the line whose slope is infinite or undefined, ``# mask`` the one that was to
keep it out, ``# zero`` a factor that is 0, ``# nan`` where infinity becomes NaN, and ``# value`` where the loss itself
first is not finite. Reduced from what people write, in five fields.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from math import inf

import torch
import torch.nn.functional as F
from torch import Tensor

MARKS = ("guilty", "mask", "zero", "nan", "value")
Loss = Callable[[Tensor, Tensor], Tensor]
WEIGHTS = torch.tensor([1.0, -2.0, 3.0, 0.5])


@dataclass(frozen=True)
class Program:
    """A loss of a parameter and a batch, and a batch of each kind.

    Attributes:
        operator: of the guilty line, as torch's graph names it.
        good: None where every batch is bad.
    """

    field: str
    operator: str
    loss: Loss
    weight: Tensor
    good: Tensor | None
    bad: Tensor

    @property
    def name(self) -> str:
        return self.loss.__name__

    def lines(self) -> dict[str, int]:
        """The marked lines, by their marks."""
        source, start = inspect.getsourcelines(self.loss)
        found: dict[str, int] = {}
        for number, line in enumerate(source, start):
            for mark in line.partition("  # ")[2].split():
                found[mark] = number
        assert set(found) <= set(MARKS)
        return found


# Geometry. Batches are points or vectors that are multiplied with a weight.


def distances_with_a_masked_diagonal(w: Tensor, x: Tensor) -> Tensor:
    points = x * w
    square = (points[:, None] - points[None]).pow(2).sum(-1)
    distance = square.sqrt()  # guilty
    distance = distance.masked_fill(torch.eye(len(x)).bool(), 0.0)  # mask
    return (distance * torch.arange(len(x))).sum()


def angle_of_rotation(w: Tensor, x: Tensor) -> Tensor:
    rotation = x * w[0]
    cosine = (rotation.diagonal().sum() - 1) / 2
    return torch.acos(cosine) * 3  # guilty


def length_of_a_vector(w: Tensor, x: Tensor) -> Tensor:
    moved = w * x
    square = (moved * moved).sum(-1)  # nan
    return square.sqrt().sum()  # guilty


def overlap_of_boxes(w: Tensor, x: Tensor) -> Tensor:
    size = x * w
    shared = size.clamp(max=0.5).prod(-1)
    iou = shared / size.prod(-1)  # guilty
    return torch.nan_to_num(iou, nan=0.0).sum()  # mask


def axis_of_an_ellipse(w: Tensor, x: Tensor) -> Tensor:
    covariance = x * w[0]
    axes = torch.linalg.eigh(covariance).eigenvectors  # guilty
    return (axes[:, 0] * WEIGHTS[:2]).sum()


# Attention. Batches are scores; -inf where there is nothing to attend to.


def attention_of_an_empty_row(w: Tensor, x: Tensor) -> Tensor:
    scores = w + x
    attention = torch.softmax(scores, -1)  # guilty
    attention = attention.masked_fill(x == -inf, 0.0)  # mask
    return (attention * WEIGHTS).sum()


def attention_by_hand(w: Tensor, x: Tensor) -> Tensor:
    exponentials = torch.exp(w) * (x > -inf)
    total = exponentials.sum(-1, keepdim=True)
    attention = exponentials / total  # guilty
    return torch.where(total > 0, attention * WEIGHTS, 0.0).sum()  # mask


def entropy_of_attention(w: Tensor, x: Tensor) -> Tensor:
    attention = torch.softmax(w + x, -1)
    logarithm = attention.log()  # guilty
    logarithm = torch.where(attention > 0, logarithm, torch.zeros(()))  # mask
    return -(attention * logarithm * WEIGHTS).sum()


# Mixtures and likelihoods.


def likelihood_of_what_is_observed(w: Tensor, x: Tensor) -> Tensor:
    probability = w * x
    logarithm = torch.log(probability)  # guilty
    return logarithm[probability > 0].sum()  # mask


def mixture_without_components(w: Tensor, x: Tensor) -> Tensor:
    logits = torch.log_softmax(w, -1) + x
    evidence = torch.logsumexp(logits, -1)  # guilty
    return torch.where(evidence > -inf, evidence, 0.0).sum()  # mask


def divergence_by_xlogy(w: Tensor, x: Tensor) -> Tensor:
    p = w * x
    return (torch.xlogy(p, p) * WEIGHTS).sum()  # guilty


def likelihood_of_a_point_mass(w: Tensor, x: Tensor) -> Tensor:
    deviation = w.abs() * x.std(-1, keepdim=True)
    return (torch.log(deviation) * WEIGHTS).sum()  # guilty value


def softplus_by_hand(w: Tensor, x: Tensor) -> Tensor:
    y = w * x
    exponential = torch.exp(y)  # guilty
    return torch.where(y > 20, y, torch.log1p(exponential)).sum()  # mask


# Physics. Batches are positions.


def potential_between_charges(w: Tensor, x: Tensor) -> Tensor:
    place = w * x
    distance = (place[:, None] - place[None]).abs()
    energy = distance.reciprocal()  # guilty
    return torch.triu(energy, 1).sum()  # mask


def lennard_jones_with_a_cutoff(w: Tensor, x: Tensor) -> Tensor:
    square = ((w * x) ** 2).sum(-1)
    attraction = square**-3  # guilty
    return torch.where(square > 0.1, attraction**2 - attraction, 0.0).sum()  # mask


def speed_where_energy_is_left(w: Tensor, x: Tensor) -> Tensor:
    energy = w * x
    left = energy * (energy > 0)  # nan
    return torch.sqrt(left).sum()  # guilty


# Normalisation.


def deviation_of_a_constant_channel(w: Tensor, x: Tensor) -> Tensor:
    centred = w * (x - x.mean(-1, keepdim=True))
    deviation = centred.pow(2).mean(-1, keepdim=True).sqrt()  # guilty
    return (centred / (deviation + 1e-5) * WEIGHTS).sum()  # zero


def layer_norm_without_eps(w: Tensor, x: Tensor) -> Tensor:
    normal = F.layer_norm(w[0] * x, (4,), eps=0.0)  # guilty value
    return (normal * WEIGHTS).sum()


def weight_norm_of_a_pruned_row(w: Tensor, x: Tensor) -> Tensor:
    rows = w * x
    norm = rows.norm(dim=-1, keepdim=True)
    direction = rows / norm  # guilty
    return (torch.where(norm > 0, direction, torch.zeros(())) * WEIGHTS).sum()  # mask


def root_mean_square_error(w: Tensor, x: Tensor) -> Tensor:
    error = F.mse_loss(w * x, 2 * x)  # nan
    return error.sqrt()  # guilty


def program(
    field: str, operator: str, loss: Loss, good: Tensor | None, bad: Tensor, weight: Tensor | None = None
) -> Program:
    return Program(field, operator, loss, torch.full((4,), 2.0) if weight is None else weight, good, bad)


POINTS = torch.tensor([[0.1, 0.7, -0.3, 0.4], [1.2, -0.5, 0.6, 0.2], [0.9, 0.8, -0.1, 1.1]])
TURN = torch.tensor([[0.36, -0.48, 0.8], [0.8, 0.6, 0.0], [-0.48, 0.64, 0.6]]) / 2
SCORES = torch.tensor([[0.1, -inf, 0.3, 0.2], [0.4, 0.5, -inf, 0.6]])
EMPTY = torch.tensor([[0.1, -inf, 0.3, 0.2], [-inf, -inf, -inf, -inf]])
ZERO_ROW = torch.tensor([[0.1, 0.7, -0.3, 0.4], [0.0, 0.0, 0.0, 0.0]])
CONSTANT_ROW = torch.tensor([[0.1, 0.7, -0.3, 0.4], [1.5, 1.5, 1.5, 1.5]])
EIGHTHS = torch.tensor([[1.5, 2.0, 0.5, 1.0], [2.5, 1.0, 3.0, 0.25]])

PROGRAMS = (
    program("geometry", "sqrt", distances_with_a_masked_diagonal, None, POINTS),
    program("geometry", "acos", angle_of_rotation, TURN, torch.eye(3) / 2),
    program("geometry", "sqrt", length_of_a_vector, POINTS, ZERO_ROW),
    program("geometry", "div", overlap_of_boxes, POINTS.abs(), ZERO_ROW.abs()),
    program("geometry", "linalg_eigh", axis_of_an_ellipse, torch.tensor([[2.0, 0.5], [0.5, 1.0]]), torch.eye(2)),
    program("attention", "softmax", attention_of_an_empty_row, SCORES, EMPTY),
    program("attention", "div", attention_by_hand, SCORES, EMPTY),
    program("attention", "log", entropy_of_attention, torch.zeros(2, 4), SCORES),
    program("mixtures", "log", likelihood_of_what_is_observed, POINTS.abs(), ZERO_ROW.abs()),
    program("mixtures", "logsumexp", mixture_without_components, SCORES, EMPTY),
    program("mixtures", "xlogy", divergence_by_xlogy, POINTS.abs(), ZERO_ROW.abs()),
    program("mixtures", "log", likelihood_of_a_point_mass, POINTS, CONSTANT_ROW),
    program("mixtures", "exp", softplus_by_hand, POINTS, 70 * POINTS),
    program("physics", "reciprocal", potential_between_charges, None, torch.tensor([1.0, 2.0, 4.0, 7.0])),
    program("physics", "pow", lennard_jones_with_a_cutoff, POINTS, ZERO_ROW),
    program("physics", "sqrt", speed_where_energy_is_left, POINTS.abs(), ZERO_ROW),
    program("normalisation", "sqrt", deviation_of_a_constant_channel, POINTS, CONSTANT_ROW),
    program("normalisation", "native_layer_norm", layer_norm_without_eps, POINTS, CONSTANT_ROW),
    program("normalisation", "div", weight_norm_of_a_pruned_row, POINTS, ZERO_ROW),
    program("normalisation", "sqrt", root_mean_square_error, None, EIGHTHS),
)
