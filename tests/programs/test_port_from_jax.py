"""A network that was trained in JAX has the same gradients in torch under `jax`, step by step, and not without."""

from __future__ import annotations

import pytest

import subgrad
from programs.port import STEPS, Network, distances, recorded


@pytest.mark.parametrize("compiled", [False, pytest.param(True, marks=pytest.mark.compiled)])
def test_gradients_are_those_of_jax_at_every_step(compiled: bool) -> None:
    assert len(recorded()["steps"]) == STEPS
    with subgrad.use("jax"):
        assert max(distances(recorded()["steps"], compiled)) < 1e-12


@pytest.mark.parametrize("convention", ["torch", "torch-2.13", "min-norm"])
def test_no_other_convention_has_them(convention: str) -> None:
    with subgrad.use(convention):
        assert min(distances(recorded()["steps"])) > 1e-3


def test_the_kinks_explain_all_of_the_difference() -> None:
    network = Network()
    with subgrad.use("torch-2.14"):
        port = subgrad.compare(network.loss, network, reference=recorded()["steps"][0]["gradients"])
    assert "jax" in (port.convention, *port.also)
    assert port.explained == 1
    assert {cause.operator for cause in port.causes} == {"clamp", "leaky_relu", "abs", "linalg_vector_norm"}


@pytest.mark.parametrize("name", ["first.weight", "second.bias", "third.weight"])
def test_a_mistake_away_from_kinks_is_not_explained(name: str) -> None:
    network, gradients = Network(), recorded()["steps"][0]["gradients"]
    wrong = {
        **gradients,
        name: [each * 2 if isinstance(each, float) else [2 * one for one in each] for each in gradients[name]],
    }
    with subgrad.use("torch-2.14"):
        port = subgrad.compare(network.loss, network, ["jax"], reference=wrong)
    assert [each.parameter for each in port.unexplained] == [name]
    assert port.explained < 1
    assert f"Not explained: {name}" in port.verdict
