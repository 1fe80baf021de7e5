"""Give an existing model a convention of its own, and take it back.

>>> import torch, subgrad
>>> model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.ReLU6())
>>> subgrad.convert(model, "mean")[1]
ReLU6(convention=mean)
"""

from subgrad.converting.listing import Conversion, conversion
from subgrad.converting.models import convert, unconvert

__all__ = ["Conversion", "conversion", "convert", "unconvert"]
