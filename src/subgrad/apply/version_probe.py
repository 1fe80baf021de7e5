"""A version of torch that was never tried: does it return at kinks what the table says?

A convention takes torch's own gradient where the table says that it is the wanted one. On versions that were tried,
tests hold the table against torch. On a newer one this module does, when a convention is first used: with the samples
of each row, on the CPU and in float64.
"""

from __future__ import annotations

import threading
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.scopes import Scope
from subgrad.conventions import Convention, Spot, torch_element
from subgrad.kinks import KINKS, Kink
from subgrad.kinks.overloads import argument_names, overload
from subgrad.kinks.sets import Joint, Jump
from subgrad.torch_internals import versions
from subgrad.version import __version__

SAME, SAME_NEARBY = 1e-9, 1e-4
STEP, PAIRS = 2.0**-20, 3  # of points near a kink: so near that smooth parts do not bend
SHOWN = 5  # rows in the warning

_looked_at: set[Convention | None] = set()
_probed: set[Kink] = set()
_lock = threading.Lock()


def warn_where_torch_differs(convention: Convention | None) -> None:
    """Compare the rows that a convention chooses at, or all, with the installed torch if it was never tried.

    Each row is looked at once per process, so that nothing is said twice.
    """
    if not versions.is_newer_than_tried() or convention in _looked_at:
        return
    with _lock:
        _looked_at.add(convention)
        kinks = [kink for kink in KINKS if kink not in _probed and _chooses(convention, kink)]
        _probed.update(kinks)
    found = differences(kinks)
    if found:
        more = f", and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
        warnings.warn(
            f"subgrad {__version__} was never tried with torch {torch.__version__}, only with {versions.tried()}. At "
            f"some kinks this torch does not return what subgrad's table says: {'; '.join(found[:SHOWN])}{more}. "
            "Where a convention leaves them to torch, its gradients may be others than the convention asks for. "
            "Install a newer subgrad, or a torch that was tried.",
            stacklevel=4,  # the line that puts the convention in force
        )


def _chooses(convention: Convention | None, kink: Kink) -> bool:
    """Whether a convention depends on the column of a kink."""
    if isinstance(kink.set, Jump) or kink.torch_picks(versions.COLUMN) is None:
        return False
    if convention is None:
        return True
    choice = convention.choice(kink)
    if choice in ("torch", "straight-through") or (choice == "pass-through" and kink.family != "clamp"):
        return False  # what passes everywhere depends on no column
    # Shared by subgrad itself, whomever torch picks; left to torch by the conventions named after versions of it.
    return kink.torch_picks(versions.COLUMN) != "one" or str(choice).startswith("torch-")


def differences(kinks: Sequence[Kink]) -> list[str]:
    """The kinks at which the installed torch is not what the table says, in words.

    Measured in a thread of its own: modes, transforms and autocast of the caller, which are those of its thread, do not
    reach it.
    """
    found: list[str] = []
    if kinks:
        thread = threading.Thread(target=lambda: found.extend(_differences(kinks)), name="subgrad-version-probe")
        thread.start()
        thread.join()
    return found


def _differences(kinks: Sequence[Kink]) -> Iterator[str]:
    by_op: dict[str, list[Kink]] = {}
    for kink in kinks:
        by_op.setdefault(kink.op, []).append(kink)
    entrywise = set(KINKS.entrywise)
    with Scope(Convention("torch")), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says of some operators that they are new
        for op, of_op in by_op.items():
            try:
                yield from _entrywise(op, of_op) if op in entrywise else _joint(op, of_op)
            except Exception as error:  # an operator that is gone or takes other arguments is told of, too
                yield f"{of_op[0].name} raises {type(error).__name__}: {error}"


def _entrywise(op: str, kinks: Collection[Kink]) -> Iterator[str]:
    """Each sample is one call, with entries on all of its kinks."""
    from subgrad.kinks.samples import samples  # only needed here, on versions that were never tried

    left = list(kinks)
    for sample in samples(op):
        call = dict(sample)
        if "generator" in argument_names(op):
            call["generator"] = torch.Generator().manual_seed(0)  # not the program's
        weights = _weights(op, call, {name for kink in kinks for name in kink.set.candidates})
        for kink in left.copy():
            if not kink.applies(call):
                continue
            hits = kink.hits(call)
            wanted = torch_element(Spot.of(kink, call, kink.set.candidates), versions.COLUMN) or {}
            for name, weight in wanted.items():
                if name in weights and not _same(weights[name], weight, hits):
                    left.remove(kink)
                    yield f"{kink.name} at {kink.words}"
                    break


def _weights(op: str, call: Mapping[str, Any], names: Collection[str]) -> dict[str, Tensor]:
    """What each entry of the cotangent is multiplied with on its way to each argument."""
    leaves = {name: call[name].clone().requires_grad_() for name in names if isinstance(call.get(name), Tensor)}
    out = overload(op)(**{**call, **leaves})
    cotangent = torch.linspace(1.0, 2.0, out.numel(), dtype=out.dtype).view_as(out)
    # Given as an argument, the cotangent would have torch import its symbolic shapes: a quarter of a second.
    found = torch.autograd.grad((out * cotangent).sum(), list(leaves.values()))
    return {name: each / cotangent for name, each in zip(leaves, found, strict=True)}


def _same(found: Tensor, weight: Any, hits: Tensor) -> bool:
    wanted = torch.as_tensor(weight, dtype=found.dtype).expand_as(found)
    return bool(((found - wanted).abs() <= SAME)[hits.expand_as(found)].all())


def _joint(op: str, kinks: Collection[Kink]) -> Iterator[str]:
    """The first sample that meets a kink, and gradients near it, which span its set."""
    from subgrad.kinks.samples import samples  # only needed here, on versions that were never tried

    left = list(kinks)
    for call in samples(op):
        for kink in [kink for kink in left if kink.applies(call) and bool(kink.hits(call).any())]:
            left.remove(kink)
            is_wanted = kink.torch_picks(versions.COLUMN) == "least"
            # Of a tie, two opposite steps meet two vertices, which tells one vertex from the least element.
            if _is_least(kink, call, PAIRS if is_wanted else 1) != is_wanted:
                yield f"{kink.name} at {kink.words}"


def _is_least(kink: Kink, call: Mapping[str, Any], pairs: int) -> bool:
    """Whether torch's gradient looks like the least element of the hull of those nearby.

    The least element has at least its own square as product with every other, and lies on no side on which none does.
    """
    assert isinstance(kink.set, Joint)
    names = [name for name in kink.set.candidates if isinstance(call.get(name), Tensor)]
    inputs, generator = [call[name] for name in names], torch.Generator().manual_seed(0)
    found, nearby = _gradient(kink.op, call, names, inputs), []
    for _ in range(pairs):
        moves = [torch.rand(each.shape, generator=generator, dtype=each.dtype) - 0.5 for each in inputs]
        for step in (STEP, -STEP):
            moved = [each + step * move for each, move in zip(inputs, moves, strict=True)]
            nearby.append(_gradient(kink.op, call, names, moved))
    points = torch.stack(nearby)
    middle = points.mean(0)
    slack = SAME_NEARBY * (1 + float(points.square().sum(1).max()))
    is_nearest = bool((points @ found >= found @ found - slack).all())
    return is_nearest and bool(middle @ found >= (points @ middle).min() - slack)


def _gradient(op: str, call: Mapping[str, Any], names: Sequence[str], inputs: Sequence[Tensor]) -> Tensor:
    """Of the entry of the result that lies on the kink."""
    from subgrad.kinks.joint_samples import AFFECTED

    leaves = [each.clone().requires_grad_() for each in inputs]
    result = overload(op)(**{**call, **dict(zip(names, leaves, strict=True))})
    output, entry = AFFECTED.get(op, (0, 0))
    out = (result if isinstance(result, Tensor) else result[output]).flatten()[entry]
    return torch.cat([each.flatten() for each in torch.autograd.grad(out, leaves, materialize_grads=True)])
