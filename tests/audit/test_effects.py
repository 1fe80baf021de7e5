"""What another convention does to gradients is what two runs show, and the line is found by switching."""

from __future__ import annotations

from collections.abc import Callable
from math import isclose

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.torch_version import TorchVersion

import subgrad
from subgrad.audit import Effect

OLD, NEW = "torch-2.13", "torch-2.14"


def cotangent(like: Tensor) -> Tensor:
    return (torch.arange(like.numel(), dtype=like.dtype) * 7 % 11 - 5).reshape(like.shape)


def loss(out: Tensor) -> Tensor:
    return (out * cotangent(out)).sum()


# Programs of w, 4 by 6 small integers, and v, 6 of them: kinks of every kind, met many times.
PROGRAMS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "clamp": lambda w, v: loss(w.clamp(-1, 2)),
    "clamp_ of a copy": lambda w, v: loss((w * 1).clamp_(-1, 2)),
    "clamp_ of a view": lambda w, v: loss(torch.cat([w, w]).narrow(0, 2, 3).clamp_(min=0) * 2),
    "relu of a clamp": lambda w, v: loss(F.relu(w.clamp(min=0) - 1)),
    "elu_": lambda w, v: loss(F.elu_(w * 1, 2.0)),
    "prelu": lambda w, v: loss(F.prelu(w, v[:1])),
    "hypot": lambda w, v: loss(torch.hypot(w, v + 0 * w)),
    "maximum of broadcast": lambda w, v: loss(torch.maximum(w, v)),
    "maximum with itself": lambda w, v: loss(torch.maximum(w, w)),
    "clamp between tensors": lambda w, v: loss(torch.clamp(w, v, v + 1)),
    "fmax": lambda w, v: loss(torch.fmax(w, v) * w),
    "max over a dimension": lambda w, v: loss(w.max(1).values) + loss(w.max(0)[0] * v),
    "sort": lambda w, v: loss(w.sort(1).values * v),
    "max_pool2d": lambda w, v: loss(F.max_pool2d(w[None], 2)),
    "cummax": lambda w, v: loss(w.cummax(1).values),
    "a transpose": lambda w, v: loss(w.t().clamp(max=2) @ w),
    "a column": lambda w, v: loss(w[:, 1].clamp(max=0)),
    "channels last": lambda w, v: loss(
        w.reshape(1, 2, 3, 4).contiguous(memory_format=torch.channels_last).clamp(0, 3) * 2
    ),
    "nothing that differs": lambda w, v: loss(F.relu(w) + w.abs()),
}
if TorchVersion(torch.__version__) >= "2.13":  # before, it has no derivative
    PROGRAMS["aminmax"] = lambda w, v: sum(loss(each) for each in w.aminmax(dim=1))  # type: ignore[return-value]
PAIRS = [(OLD, NEW), ("min-norm", "right"), ("torch", "min-norm"), ("pass-through", "mean")]


def operands(dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    w = (torch.arange(24, dtype=dtype) * 5 % 7 - 3).reshape(4, 6)
    return w.requires_grad_(), (torch.arange(6, dtype=dtype) % 4 - 1).requires_grad_()


def under(convention: str, program: Callable[[Tensor, Tensor], Tensor]) -> list[Tensor]:
    w, v = operands()
    with subgrad.use(convention):
        return list(torch.autograd.grad(program(w, v), [w, v], materialize_grads=True))


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
@pytest.mark.parametrize("program", PROGRAMS)
def test_differences_are_those_of_two_runs(program: str, pair: tuple[str, str]) -> None:
    before, after = (under(each, PROGRAMS[program]) for each in pair)
    w, v = operands()
    effect = subgrad.compare(lambda: PROGRAMS[program](w, v), {"w": w, "v": v}, pair)
    assert isinstance(effect, Effect)
    found = {change.parameter: change for change in effect.changes}
    for name, one, other in zip("wv", before, after, strict=True):
        if name in found:
            same = (one == other) | (one.isnan() & other.isnan())
            assert found[name].differ == int((~same).sum())
            assert found[name].flips == int((one.sign() * other.sign() < 0).sum())
            distance, norm = (other - one).norm().item(), one.norm().item()
            if norm > 0 and norm < torch.inf:
                assert isclose(found[name].relative, distance / norm, rel_tol=1e-12)  # type: ignore[arg-type]
        else:
            assert torch.equal(one, other)
    assert bool(effect.causes) == bool(effect.differing)


def test_the_programs_show_what_they_are_for() -> None:
    for pair in PAIRS:
        for program in PROGRAMS.values():
            if any(not torch.equal(*each) for each in zip(*(under(name, program) for name in pair), strict=True)):
                break
        else:
            raise AssertionError(pair)


def first(x: Tensor) -> Tensor:
    return x.clamp(min=0)


def second(x: Tensor) -> Tensor:
    return x.clamp(max=2)


def harmless(x: Tensor) -> Tensor:
    return x.clamp(min=-1) * 0


def test_the_lines_are_found_by_switching_them() -> None:
    x = torch.tensor([0.0, 2.0, -1.0, 1.0], requires_grad=True)
    effect = subgrad.compare(lambda: loss(first(x) + 3 * second(x) + harmless(x)), [x], [OLD, NEW])
    assert [(cause.site.function, cause.operator, cause.differ) for cause in effect.causes] == [
        ("first", "clamp", 1),
        ("second", "clamp", 1),
    ]
    assert effect.first is effect.causes[0]
    assert effect.first.site.source == "return x.clamp(min=0)"


def test_lines_that_act_only_together_are_found() -> None:
    """Each of two guards blocks alone; only where both pass does the gradient change."""
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    effect = subgrad.compare(lambda: loss(second(first(x) + 2) + harmless(x)), [x], [NEW, OLD])
    assert [(cause.site.function, cause.alone, cause.differ) for cause in effect.causes] == [
        ("first", False, 1),
        ("second", False, 1),
    ]
    assert effect.differing == 1


def test_effects_that_cancel_when_switched_together_are_found() -> None:
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    effect = subgrad.compare(lambda: loss(first(x) - x.clamp_min(0) + 2 * second(x)), [x], [OLD, NEW])
    assert effect.differing == 0
    x = torch.tensor([2.0, 0.0], requires_grad=True)
    effect = subgrad.compare(lambda: loss(first(x) + 2 * second(x) - x.clamp_min(0)), [x], [OLD, NEW])
    assert ("second", 1) in [(cause.site.function, cause.differ) for cause in effect.causes]


def test_the_verdict_is_a_sentence_with_the_line_and_what_keeps_the_gradients() -> None:
    layer = nn.Linear(2, 3, bias=False)
    nn.init.zeros_(layer.weight)
    x = torch.tensor([[1.0, -2.0]])
    effect = subgrad.compare(lambda: (layer(x).clamp(0, 6) * torch.tensor([2.0, 4.0, 8.0])).sum(), layer, [OLD, NEW])
    line = test_the_verdict_is_a_sentence_with_the_line_and_what_keeps_the_gradients.__code__.co_firstlineno + 4
    where = f"test_effects.py:{line}"
    assert effect.verdict == (
        f"Upgrading from torch 2.13 to 2.14 changes 1 of 1 gradient, by 100.0% of its norm, all "
        f'because of {where} (`clamp`). To keep them: with subgrad.use("torch-2.13"): around {where}.'
    )


def test_signs_that_flip_are_said() -> None:
    x = torch.tensor([0.0, 0.0, 1.0], requires_grad=True)
    effect = subgrad.compare(lambda: loss(3 * x.clamp(min=0) - 2 * F.relu(x) - x), [x], ["torch-2.13", "torch-2.14"])
    assert (effect.flips, effect.differing) == (2, 2)
    assert ", 2 entries change sign." in effect.verdict
    same = subgrad.compare(lambda: loss(x * x), [x], ["min-norm", "right"])
    assert same.verdict == "min-norm and right give the same gradients here."


def test_the_first_convention_is_held_against_each_of_the_others() -> None:
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    own = subgrad.Convention("torch", relu=0.25)
    found = subgrad.compare(lambda: loss(F.relu(x)), [x], ["torch", "right", own])
    assert isinstance(found, tuple)
    assert [(each.before, each.after, each.differing) for each in found] == [
        ("torch", "right", 1),
        ("torch", str(own), 1),
    ]
    pinned = subgrad.compare(lambda: loss(F.relu(x)), [x], [own, "torch"]).verdict
    assert "with subgrad.use(subgrad.Convention('torch', relu=0.25)): around" in pinned


def test_fewer_than_two_conventions_are_refused() -> None:
    with pytest.raises(ValueError, match="give two conventions or more"):
        subgrad.compare(lambda: torch.zeros(()), [], ["torch"])
    with pytest.raises(ValueError, match="give two conventions or more"):
        subgrad.audit(compare=["torch"])


def test_a_closure_without_a_loss_is_refused() -> None:
    with pytest.raises(ValueError, match="must return a loss"):
        subgrad.compare(lambda: None, [], ["torch", "mean"])


def test_generators_statistics_and_gradients_are_as_before() -> None:
    model = nn.Sequential(nn.Dropout(), nn.Linear(3, 4), nn.BatchNorm1d(4))
    nn.init.zeros_(model[2].weight)
    for parameter in model.parameters():
        parameter.grad = torch.full_like(parameter, 3.0)
    kept = {name: value.clone() for name, value in model.state_dict().items()}
    gradients = [parameter.grad for parameter in model.parameters()]
    state = torch.get_rng_state()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def closure() -> Tensor:
        optimizer.zero_grad(set_to_none=False)
        out = loss(model(torch.eye(3)).clamp(min=0))
        out.backward()
        return out

    effect = subgrad.compare(closure, model, [OLD, NEW])
    assert effect.differing > 0
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(value, kept[name]) for name, value in model.state_dict().items())
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        assert parameter.grad is gradient
        assert torch.equal(gradient, torch.full_like(gradient, 3.0))


def test_what_is_in_force_does_not_matter() -> None:
    """Places where both agree, and not with the convention of the run, are switched too."""
    x = torch.tensor([0.0, 0.0, 1.0], requires_grad=True)
    program = lambda: loss(torch.maximum(first(x), torch.zeros(3)))  # noqa: E731
    plain = subgrad.compare(program, [x], [OLD, NEW])
    with subgrad.use("min-norm"):
        assert subgrad.compare(program, [x], [OLD, NEW]).changes == plain.changes
    assert plain.differing == 2


def test_sparse_and_complex_gradients_are_compared() -> None:
    table = nn.Embedding(4, 2, sparse=True)
    nn.init.zeros_(table.weight)
    z = torch.zeros(2, dtype=torch.complex64, requires_grad=True)
    program = lambda: loss(table(torch.tensor([1, 3])).clamp(min=0)) + loss((z.real + z.imag).clamp(max=0))  # noqa: E731
    effect = subgrad.compare(program, {"table": table.weight, "z": z}, [OLD, NEW])
    assert [(change.parameter, change.differ) for change in effect.changes] == [("table", 4), ("z", 4)]


def test_backward_from_several_tensors_and_from_none_goes_on() -> None:
    x = torch.tensor([0.0, 1.0], requires_grad=True)
    with subgrad.audit(compare=[OLD, NEW]) as audit:
        one, other = x.clamp(min=0), x.clamp(max=1)
        torch.autograd.backward([one, other], [torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])])
        with pytest.raises(RuntimeError, match="only for scalar outputs"):
            x.clamp(min=0).backward()
    (effect,) = audit.effects
    assert [(change.parameter, change.differ) for change in effect.changes] == [("x", 2)]


def test_inside_an_audit_the_usual_loop_is_compared() -> None:
    x = torch.tensor([[1.0, 2.0, -1.0]])
    layer = nn.Linear(3, 4)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.0)
    with subgrad.audit(layer, compare=[OLD, NEW, "mean"], every=1, compare_every=2) as audit:
        for _ in range(3):
            optimizer.zero_grad()
            loss(layer(x).clamp(0, 6)).backward()
            optimizer.step()
    assert [(each.step, each.after) for each in audit.effects] == [(0, NEW), (0, "mean"), (2, NEW), (2, "mean")]
    alone = subgrad.compare(lambda: loss(layer(x).clamp(0, 6)), layer, [OLD, NEW])
    assert audit.effects[0].changes == alone.changes
    assert {change.parameter for change in alone.changes if change.differ} == {"weight", "bias"}


def test_branches_of_cond_are_compared() -> None:
    import torch._dynamo  # which torch.cond loads

    assert torch._dynamo
    x = torch.tensor([0.0, 2.0], requires_grad=True)
    effect = subgrad.compare(
        lambda: torch.cond(x.sum() > 0.5, lambda x: loss(x.clamp(min=0)), lambda x: loss(2 * x), (x,)), [x], [OLD, NEW]
    )
    assert isinstance(effect, Effect)
    assert [(change.differ, cause.operator) for change, cause in zip(effect.changes, effect.causes, strict=True)] == [
        (1, "clamp")
    ]


def test_operators_whose_first_tensor_has_another_name_are_compared() -> None:
    a = (torch.arange(6.0).reshape(3, 2).sin() + torch.eye(3, 2)).requires_grad_()
    effect = subgrad.compare(lambda: loss(torch.linalg.qr(a).R) + a.clamp(max=1).sum(), [a], [OLD, NEW])
    assert isinstance(effect, Effect)
    assert effect.changes[0].differ == 1
