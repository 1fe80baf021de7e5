"""With ``compare_grad=True`` calls of `torch.autograd.grad` are compared too, in what they are asked for."""

from __future__ import annotations

from collections.abc import Sequence
from math import isclose

import torch
from torch import Tensor

import subgrad

OLD, NEW = "torch-2.13", "torch-2.14"
COTANGENT = torch.tensor([1.0, -2.0, 4.0, 5.0])


def gradients(create_graph: bool = False) -> Sequence[Tensor]:
    """Of a leaf, and of what is made of it."""
    w = torch.tensor([0.0, 0.5, 1.0, 2.0], requires_grad=True)
    y = w * 2
    out = y.clamp(0, 2) + w.clamp_max(1) * 3
    return torch.autograd.grad((out * COTANGENT).sum(), [y, w], create_graph=create_graph)


def test_what_was_asked_for_is_compared() -> None:
    plain = gradients()
    with subgrad.audit(compare=(OLD, NEW), compare_grad=True) as audit:
        watched = gradients()
    assert [each.tolist() for each in watched] == [each.tolist() for each in plain]
    found = {}
    for name in (OLD, NEW):
        with subgrad.use(name):
            found[name] = gradients()
    (effect,) = audit.effects
    differences = [after - before for before, after in zip(found[OLD], found[NEW], strict=True)]
    assert [change.differ for change in effect.changes] == [int((each != 0).sum()) for each in differences] == [2, 2]
    relative = torch.cat(differences).double().norm() / torch.cat(tuple(found[OLD])).double().norm()
    assert isclose(effect.relative or 0, relative, rel_tol=1e-12)
    assert [cause.operator for cause in effect.causes] == ["clamp", "clamp_max"]
    assert not audit.unseen


def test_the_size_of_each_line_is_what_it_changes_alone() -> None:
    with subgrad.audit(compare=(OLD, NEW), compare_grad=True) as audit:
        gradients()
    with subgrad.use(OLD):
        before = torch.cat(tuple(gradients()))
    sizes = {}  # with 0, which torch returns at the bounds since 2.14
    for operator in ("clamp", "clamp_max"):
        with subgrad.use(subgrad.Convention(OLD, **{operator: 0.0})):
            sizes[operator] = float((torch.cat(tuple(gradients())) - before).double().norm() / before.double().norm())
    found = {cause.operator: cause.relative for cause in audit.effects[0].causes}
    assert found.keys() == sizes.keys()
    assert all(isclose(found[each] or 0, sizes[each], rel_tol=1e-12) for each in sizes)


def test_what_the_program_goes_on_with_is_said() -> None:
    with subgrad.audit(compare=(OLD, NEW), compare_grad=True) as audit:
        gradients(create_graph=True)
    assert len(audit.effects) == 1
    assert "the program goes on with gradients" in audit.unseen[0]


def test_without_it_they_are_not() -> None:
    with subgrad.audit(compare=(OLD, NEW)) as audit:
        gradients()
    assert not audit.effects
