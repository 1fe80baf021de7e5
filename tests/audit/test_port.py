"""A reference tells how its kinks are answered: which convention, which lines, and what is no matter of kinks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import subgrad
from subgrad.audit import Port


def integers(*shape: int) -> Tensor:
    return torch.randint(-2, 3, shape, dtype=torch.float64)


@pytest.fixture
def model() -> nn.Module:
    torch.manual_seed(0)
    found = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1)).double()
    with torch.no_grad():
        for parameter in found.parameters():
            parameter.copy_(torch.randint(-1, 2, parameter.shape))
    return found


@pytest.fixture
def loss(model: nn.Module) -> Callable[[], Tensor]:
    x, y, weights = integers(20, 3), integers(20, 1), torch.linspace(0.5, 2, 20, dtype=torch.float64)[:, None]

    def closure() -> Tensor:
        far = ((model(x) - y).abs() * weights).mean()
        return far + 0.1 * (model[0](x).clamp(-1, 1) * weights).sum()

    return closure


def gradients(loss: Callable[[], Tensor], model: nn.Module, convention: str | subgrad.Convention) -> dict[str, Tensor]:
    """In numbers alone, as another framework would have written them."""
    with subgrad.use(convention):
        found = torch.autograd.grad(loss(), list(model.parameters()))
    return {name: each.clone() for (name, _), each in zip(model.named_parameters(), found, strict=True)}


@pytest.mark.parametrize("wanted", ["right", "left", "mean", "min-norm"])
def test_a_difference_of_kinks_is_explained_wholly(
    model: nn.Module, loss: Callable[[], Tensor], wanted: str, tmp_path: Path
) -> None:
    """From a file, under one convention, by the lines that the reference answers in another way."""
    np.savez(tmp_path / "grads.npz", **{name: each.numpy() for name, each in gradients(loss, model, wanted).items()})
    with subgrad.use("torch-2.13"):
        port = subgrad.compare(loss, model, reference=tmp_path / "grads.npz")
    assert isinstance(port, Port)
    assert wanted in (port.convention, *port.also)
    assert port.explained == 1
    assert port.distance is not None
    assert port.distance > 0.01
    assert not port.unexplained
    assert {cause.operator for cause in port.causes} <= {"relu", "clamp", "abs"}
    assert "explain 100% of that" in port.verdict
    assert f'subgrad.set_default("{port.convention}")' in port.verdict
    assert "grads.npz" in str(port)
    with subgrad.use(port.convention):
        again = subgrad.compare(loss, model, reference=tmp_path / "grads.npz")
    assert "nothing to explain" in again.verdict
    assert not again.causes


def test_lines_that_follow_another_convention_are_named(model: nn.Module, loss: Callable[[], Tensor]) -> None:
    reference = gradients(loss, model, subgrad.Convention("torch-2.13", relu="mean"))
    with subgrad.use("torch-2.14"):
        port = subgrad.compare(loss, model, reference=reference)
    assert port.explained == 1
    assert [(operator, name) for _, operator, name in port.elsewhere] == [("relu", "mean")]
    assert 'subgrad.use("mean") around' in port.verdict


def test_what_is_no_matter_of_kinks_is_named_by_parameter(model: nn.Module, loss: Callable[[], Tensor]) -> None:
    reference = gradients(loss, model, "right")
    reference["2.bias"] = reference["2.bias"] + 0.5
    with subgrad.use("torch-2.13"):
        port = subgrad.compare(loss, model, reference=reference)
    assert port.convention == "right"
    assert 0 < port.explained < 1
    assert [(each.parameter, each.entries, each.differ) for each in port.unexplained] == [("2.bias", 1, 1)]
    assert "Not explained: 2.bias (1 of 1 entry" in port.verdict


def test_a_difference_away_from_kinks_has_no_convention(model: nn.Module, loss: Callable[[], Tensor]) -> None:
    reference = gradients(loss, model, "torch")
    reference["0.weight"] = reference["0.weight"] * 1.5
    port = subgrad.compare(loss, model, reference=reference)
    assert port.convention == "torch"
    assert port.explained == 0
    assert not port.causes
    assert "The kinks explain none of it" in port.verdict
    assert [each.parameter for each in port.unexplained] == ["0.weight"]


def test_conventions_may_be_given(model: nn.Module, loss: Callable[[], Tensor]) -> None:
    with subgrad.use("torch-2.13"):
        port = subgrad.compare(loss, model, ["left"], reference=gradients(loss, model, "right"))
    assert port.convention in ("left", "torch-2.13")
    assert port.explained < 1


def test_roundings_of_other_orders_are_no_difference(model: nn.Module, loss: Callable[[], Tensor]) -> None:
    reference = {name: each * (1 + 1e-14) for name, each in gradients(loss, model, "torch").items()}
    assert "nothing to explain" in subgrad.compare(loss, model, reference=reference).verdict
    assert "differ" in subgrad.compare(loss, model, reference=reference, rtol=1e-16).verdict


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda given: {**given, "0.weight": given["0.weight"].T}, r"give it as \.T"),
        (lambda given: {**given, "0.bias": torch.zeros(3)}, r"\(3,\) for the gradient of 0.bias, which is \(4,\)"),
        (lambda given: {"weight": given["0.weight"]}, "Missing: 0.weight, .*; not a parameter: weight"),
    ],
)
def test_other_names_and_shapes_are_refused(
    model: nn.Module,
    loss: Callable[[], Tensor],
    change: Callable[[Mapping[str, Tensor]], Mapping[str, Tensor]],
    said: str,
) -> None:
    with pytest.raises(ValueError, match=said):
        subgrad.compare(loss, model, reference=change(gradients(loss, model, "torch")))


def test_something_to_compare_with_must_be_given(model: nn.Module, loss: Callable[[], Tensor]) -> None:
    with pytest.raises(ValueError, match=r"two or more conventions, or .* reference="):
        subgrad.compare(loss, model)  # pyright: ignore[reportCallIssue]
