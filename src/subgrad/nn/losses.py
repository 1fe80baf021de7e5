"""Losses that are one function with kinks, with the arguments of their counterparts in ``torch.nn``."""

# Annotations are types here and not strings: torch 2.11 cannot pickle what `torch.fx` traces of the latter.
import torch
from torch import Tensor

from subgrad.conventions import Convention
from subgrad.nn.carries import Carries


class L1Loss(Carries, torch.nn.L1Loss, function="l1_loss", given="reduction"):
    """As ``torch.nn.L1Loss``; where input and target are equal what ``convention`` picks for ``abs``, by default 0."""

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        *,
        convention: str | Convention = "min-norm",
    ) -> None:
        super().__init__(size_average, reduce, reduction, convention=convention)


class SmoothL1Loss(Carries, torch.nn.SmoothL1Loss, function="smooth_l1_loss", given="reduction beta"):
    """As ``torch.nn.SmoothL1Loss``; with ``beta=0``, at equal entries what ``convention`` picks, by default 0."""

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        beta: float = 1.0,
        *,
        convention: str | Convention = "min-norm",
    ) -> None:
        super().__init__(size_average, reduce, reduction, beta, convention=convention)


class MultiMarginLoss(
    Carries, torch.nn.MultiMarginLoss, function="multi_margin_loss", given="p margin weight reduction"
):
    """As ``torch.nn.MultiMarginLoss``; with ``p=1``, exactly on the margin what ``convention`` picks."""

    def __init__(
        self,
        p: int = 1,
        margin: float = 1.0,
        weight: Tensor | None = None,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        *,
        convention: str | Convention = "min-norm",
    ) -> None:
        super().__init__(p, margin, weight, size_average, reduce, reduction, convention=convention)


class MultiLabelMarginLoss(
    Carries, torch.nn.MultiLabelMarginLoss, function="multilabel_margin_loss", given="reduction"
):
    """As ``torch.nn.MultiLabelMarginLoss``; exactly on the margin what ``convention`` picks."""

    def __init__(
        self,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        *,
        convention: str | Convention = "min-norm",
    ) -> None:
        super().__init__(size_average, reduce, reduction, convention=convention)


class HingeEmbeddingLoss(
    Carries, torch.nn.HingeEmbeddingLoss, function="hinge_embedding_loss", given="margin reduction"
):
    """As ``torch.nn.HingeEmbeddingLoss``; exactly on the margin what ``convention`` picks for ``clamp_min``."""

    def __init__(
        self,
        margin: float = 1.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        *,
        convention: str | Convention = "min-norm",
    ) -> None:
        super().__init__(margin, size_average, reduce, reduction, convention=convention)


class MarginRankingLoss(Carries, torch.nn.MarginRankingLoss, function="margin_ranking_loss", given="margin reduction"):
    """As ``torch.nn.MarginRankingLoss``; exactly on the margin what ``convention`` picks for ``clamp_min``."""

    def __init__(
        self,
        margin: float = 0.0,
        size_average: bool | None = None,
        reduce: bool | None = None,
        reduction: str = "mean",
        *,
        convention: str | Convention = "min-norm",
    ) -> None:
        super().__init__(margin, size_average, reduce, reduction, convention=convention)
