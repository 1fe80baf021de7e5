"""Modules that carry their convention, with the arguments and the state of their counterparts in ``torch.nn``.

Those of ``torch.nn`` that are one function with kinks, and `Clamp`, whose bounds may be learned.

>>> import torch, subgrad
>>> subgrad.nn.Hardtanh(0, 6, convention="pass-through")
Hardtanh(min_val=0, max_val=6, convention=pass-through)
"""

import torch

from subgrad.nn.activations import (
    CELU,
    ELU,
    SELU,
    Hardsigmoid,
    Hardswish,
    LeakyReLU,
    PReLU,
    ReLU,
    ReLU6,
    RReLU,
    Softshrink,
    Threshold,
)
from subgrad.nn.carries import Carries
from subgrad.nn.clamps import Clamp, Hardtanh
from subgrad.nn.losses import (
    HingeEmbeddingLoss,
    L1Loss,
    MarginRankingLoss,
    MultiLabelMarginLoss,
    MultiMarginLoss,
    SmoothL1Loss,
)
from subgrad.nn.pooling import (
    AdaptiveMaxPool1d,
    AdaptiveMaxPool2d,
    AdaptiveMaxPool3d,
    FractionalMaxPool2d,
    FractionalMaxPool3d,
    MaxPool1d,
    MaxPool2d,
    MaxPool3d,
)

__all__ = [
    "CELU",
    "ELU",
    "SELU",
    "AdaptiveMaxPool1d",
    "AdaptiveMaxPool2d",
    "AdaptiveMaxPool3d",
    "Clamp",
    "FractionalMaxPool2d",
    "FractionalMaxPool3d",
    "Hardsigmoid",
    "Hardswish",
    "Hardtanh",
    "HingeEmbeddingLoss",
    "L1Loss",
    "LeakyReLU",
    "MarginRankingLoss",
    "MaxPool1d",
    "MaxPool2d",
    "MaxPool3d",
    "MultiLabelMarginLoss",
    "MultiMarginLoss",
    "PReLU",
    "RReLU",
    "ReLU",
    "ReLU6",
    "SmoothL1Loss",
    "Softshrink",
    "Threshold",
]

# The modules of torch.nn with a counterpart here, by name.
COUNTERPARTS: dict[type[torch.nn.Module], type[Carries]] = {
    each.counterpart: each
    for each in globals().values()
    if isinstance(each, type) and issubclass(each, Carries) and each is not Carries
}
# Modules of torch.nn that may meet kinks, but are more than one function: they take the convention around them.
KINKED_INSIDE = (
    "CosineEmbeddingLoss",
    "CosineSimilarity",
    "EmbeddingBag",
    "LPPool1d",
    "LPPool2d",
    "LPPool3d",
    "PairwiseDistance",
    "RNN",
    "RNNCell",
    "TransformerDecoderLayer",
    "TransformerEncoderLayer",
    "TripletMarginLoss",
    "TripletMarginWithDistanceLoss",
)
KINKED = frozenset((*KINKED_INSIDE, *(each.__name__ for each in COUNTERPARTS)))


def __dir__() -> list[str]:
    return sorted(__all__)
