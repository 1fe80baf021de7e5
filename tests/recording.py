"""The gradients of every sample of every row, to the bit: written by real torch versions, read by the tests.

Run inside an environment of that version, it prints the record as JSON: ``python tests/recording.py``.
"""

from __future__ import annotations

import json
from itertools import cycle, islice
from typing import Any

import torch
from torch import Tensor

from subgrad.kinks import KINKS
from subgrad.kinks.overloads import overload
from subgrad.kinks.samples import samples
from subgrad.kinks.sets import Pole

# An infinite slope is nobody's choice, and math libraries round what lies beside it differently.
OVERLOADS = tuple(dict.fromkeys(kink.op for kink in KINKS if not isinstance(kink.set, Pole)))
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
REFUSED = ["not for this dtype or argument"]
# Not constant, both signs, both zeros.
COTANGENT = (1.0, -2.0, 0.75, -0.0, 3.5, 0.0, -0.125, 5.0)


def record() -> dict[str, Any]:
    """What the convention in force returns for every sample: the torch version's own with none."""
    rows = {op: [_gradients(op, call) for dtype in DTYPES for call in samples(op, dtype)] for op in OVERLOADS}
    return {"torch": torch.__version__, "rows": rows}


def _gradients(op: str, call: dict[str, Any]) -> dict[str, list[str]]:
    """The gradients of one call for each choice of differentiated arguments: all of them, and each alone."""
    tensors = [
        name
        for name, value in call.items()
        if isinstance(value, Tensor) and value.is_floating_point() and name not in ("noise", "random_samples")
    ]
    choices = dict.fromkeys([tuple(tensors), *((name,) for name in tensors)])
    return {",".join(names): _gradient(op, call, names) for names in choices}


def _gradient(op: str, call: dict[str, Any], names: tuple[str, ...]) -> list[str]:
    torch.default_generator.manual_seed(0)  # rrelu draws its slopes
    leaves = {name: call[name].clone().requires_grad_() for name in names}
    try:
        result = overload(op)(**{**call, **leaves})
        outputs = [each for each in ([result] if isinstance(result, Tensor) else result) if each.requires_grad]
        cotangents = [_cotangent(each) for each in outputs]
        gradients = torch.autograd.grad(outputs, list(leaves.values()), cotangents, materialize_grads=True)
    except RuntimeError:
        return REFUSED  # rrelu in training in half precision, the mean in scatter_reduce
    # Copied, since torch may return zeros without memory (sgn).
    copies = [torch.empty(each.shape, dtype=each.dtype).copy_(each) for each in gradients]
    return [float.hex(entry) for gradient in copies for entry in gradient.flatten().tolist()]


def _cotangent(out: Tensor) -> Tensor:
    return torch.tensor(list(islice(cycle(COTANGENT), out.numel())), dtype=out.dtype).reshape(out.shape)


if __name__ == "__main__":
    print(json.dumps(record(), indent=None, separators=(",", ":")))
