"""Write src/subgrad/testing/conformance_pack.json: calls on kinks, and their gradients under every convention.

    python scripts/conformance_pack.py     # what is named after a version of torch comes from that very version

JSON knows no nan and no infinity; Python's reads and writes them as NaN and Infinity.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from itertools import cycle, islice
from typing import Any

import torch
from torch import Tensor

import subgrad
from subgrad.conventions import CHOICES, Spot, convention
from subgrad.kinks import KINKS
from subgrad.kinks.joint_samples import affected
from subgrad.kinks.kink import Kink
from subgrad.kinks.overloads import overload, tensor_names
from subgrad.kinks.samples import samples
from subgrad.kinks.sets import Ball, Joint, Jump, Slopes, Ties

# Not constant, and of both signs; never 0, which would hide an element.
COTANGENT = (1.0, -2.0, 0.75, 3.5, -0.5, -0.125, 5.0)
BEYOND = (float("nan"), float("inf"), -float("inf"))
REAL = {"torch-2.13": "2.13.0", "torch-2.14": "2.14.1"}
# Random, or of a signature that is torch's alone.
LEFT_OUT = ("fractional_max_pool2d", "fractional_max_pool3d", "_embedding_bag", "_euclidean_dist", "segment_reduce")

# What weights of one argument lie between.
BETWEEN = {Ties: (0.0, 1.0), Ball: (-1.0, 1.0)}

Call = dict[str, Any]


def calls() -> Iterator[tuple[str, Call, list[Kink]]]:
    """Overload, arguments and the kinks that are met."""
    for op in (*KINKS.entrywise, *KINKS.joint):
        for call in samples(op, torch.float32):
            if call.get("training") or op in LEFT_OUT:
                continue
            call = _with_what_lies_beyond(op, call)
            rows = [kink for kink in KINKS.of_overload(op) if kink.applies(call, torch.float32)]
            met = [kink for kink in rows if not isinstance(kink.set, Jump) and bool(kink.hits(call).any())]
            if not any(bool(kink.hits(call).any()) for kink in rows if isinstance(kink.set, Jump)):
                yield op, call, met


def _with_what_lies_beyond(op: str, call: Call) -> Call:
    """Operators that work entry by entry meet nan and infinities, too."""
    if op not in KINKS.entrywise:
        return call
    tensors = [name for name in tensor_names(op) if isinstance(call.get(name), Tensor)]
    added = {name: torch.cat([call[name], torch.tensor(BEYOND)]) for name in tensors[:1]}
    added |= {name: torch.cat([call[name], call[name][-1:].expand(len(BEYOND))]) for name in tensors[1:]}
    return {**call, **added}


def differentiated(call: Call, kinks: list[Kink]) -> list[str]:
    named = {name for kink in kinks for name in kink.set.candidates} or {"self"}
    return [name for name in call if name in named and isinstance(call[name], Tensor)]


def evaluated(op: str, call: Call, names: list[str], kinks: list[Kink]) -> tuple[Tensor, dict[str, list[float]]]:
    """The value, and the gradients under the convention in force."""
    leaves = {name: call[name].clone().requires_grad_() for name in names}
    out = overload(op)(**{**call, **leaves})
    out = out if isinstance(out, Tensor) else out[affected(kinks[0])[0] if kinks else 0]
    cotangent = torch.tensor(list(islice(cycle(COTANGENT), out.numel()))).reshape(out.shape)
    found = torch.autograd.grad(out, list(leaves.values()), cotangent, materialize_grads=True)
    return out.detach(), {name: (each + 0.0).tolist() for name, each in zip(names, found, strict=True)}


def gradients(like: str) -> list[dict[str, list[float]] | None]:
    """Of every call, under a convention; None where that leaves a kink to the installed torch."""
    with subgrad.use(like):
        return [
            evaluated(op, call, differentiated(call, kinks), kinks)[1] if _decides(like, call, kinks) else None
            for op, call, kinks in calls()
        ]


def _decides(like: str, call: Call, kinks: list[Kink]) -> bool:
    if like == "torch":
        return True
    spots = [Spot.of(kink, call, differentiated(call, kinks)) for kink in kinks]
    return like == "pass-through" or all(convention(like).element(spot) is not None for spot in spots)


def rows(by_convention: dict[str, list[Any]]) -> Iterator[dict[str, Any]]:
    for place, (op, call, kinks) in enumerate(calls()):
        names = differentiated(call, kinks)
        value, _ = evaluated(op, call, names, kinks)
        tensors = [name for name in tensor_names(op) if name in call]
        cotangent = torch.tensor(list(islice(cycle(COTANGENT), value.numel()))).reshape(value.shape)
        found = {like: given[place] for like, given in by_convention.items() if given[place] is not None}
        if found:
            yield {
                "operator": KINKS[op][0].name,
                "overload": f"aten::{op}",
                "arguments": {name: each.tolist() if isinstance(each, Tensor) else each for name, each in call.items()},
                "tensors": tensors,
                "differentiated": names,
                "cotangent": cotangent.tolist(),
                "value": value.tolist(),
                "gradients": found,
                "kinks": [_kink(kink, call) for kink in kinks],
            }


def _kink(kink: Kink, call: Call) -> dict[str, Any]:
    if isinstance(kink.set, Joint):
        return {"place": kink.words, "set": f"the {kink.set}", "between": None, "hit": None}
    hit = kink.hits(call)
    first = int(hit.nonzero()[0])
    numbers = {name: each[first].item() if isinstance(each, Tensor) else each for name, each in call.items()}
    found = kink.set.at(numbers)
    between = sorted((found.left_slope, found.right_slope)) if isinstance(found, Slopes) else BETWEEN[type(found)]
    return {"place": kink.words, "set": _words(found), "between": between, "hit": hit.tolist()}


def _words(found: Slopes | Ties | Ball) -> str:
    return str(found) if isinstance(found, Slopes) else f"the {found}"


def main() -> None:
    if sys.argv[1:] == ["--real"]:  # inside an environment of that version
        print(json.dumps(gradients("torch")))
        return
    from environments import ROOT, run

    by_convention = {like: json.loads(run(version, __file__, "--real")) for like, version in REAL.items()}
    by_convention |= {like: gradients(like) for like in CHOICES if like != "torch" and like not in REAL}
    pack = {"torch": torch.__version__.partition("+")[0], "conventions": list(by_convention)}
    pack["cases"] = list(rows(by_convention))
    target = ROOT / "src" / "subgrad" / "testing" / "conformance_pack.json"
    lines = ",\n".join(json.dumps(row) for row in pack.pop("cases"))
    target.write_text(json.dumps(pack)[:-1] + ', "cases": [\n' + lines + "\n]}\n")
    print(f"{target.relative_to(ROOT)}: {lines.count(chr(10)) + 1} cases under {len(by_convention)} conventions")


if __name__ == "__main__":
    main()
