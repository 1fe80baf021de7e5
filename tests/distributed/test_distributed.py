"""Two processes take the element that one process takes: DDP, FSDP2, tensor and pipeline parallel, and DTensors."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from torch.torch_version import TorchVersion

import subgrad
from distributed.once import run_once
from distributed.workload import CONVENTIONS, OPERATORS, carrying, network_gradients, operator_gradients

ENGINES = ("DDP", "FSDP2", "tensor parallel", "tensor parallel with DTensors between", "pipeline")
# Plain torch has no sharding strategy for the backward of these, and says so.
REFUSED = {"hardtanh"}
REFUSED_BY_2_11 = {"max over a dimension"}

Found = dict[str, dict[str, Any]]
Convention = subgrad.Convention


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return json.loads(run_once("distributed.worker", tmp_path_factory).read_text())


@pytest.mark.parametrize("convention", CONVENTIONS, ids=str)
@pytest.mark.parametrize("engine", ENGINES)
def test_a_network_gets_the_gradient_of_one_process(engine: str, convention: Convention, found: Found) -> None:
    with subgrad.use(convention):
        wanted = network_gradients()
    assert found[str(convention)]["engines"][engine] == wanted


@pytest.mark.parametrize("engine", ["DDP", "FSDP2"])
def test_modules_and_converted_models_carry_their_convention_into_both(engine: str, found: Found) -> None:
    with subgrad.use("mean"):
        wanted = network_gradients()
    assert found["carrying"][engine] == wanted
    with subgrad.use("left"):
        assert network_gradients(carrying) == wanted


@pytest.mark.parametrize("convention", CONVENTIONS, ids=str)
@pytest.mark.parametrize("operator", OPERATORS)
def test_dtensors_get_the_element_of_one_process(operator: str, convention: Convention, found: Found) -> None:
    """Or are refused, where plain torch refuses them too: never torch's own element instead."""
    with subgrad.use(convention):
        wanted = operator_gradients(operator)
    plain = found["torch"]["operators"][operator]
    got = found[str(convention)]["operators"][operator]
    allowed = {layout: [wanted, got[layout]] if is_refused(got[layout], plain[layout]) else [wanted] for layout in got}
    assert {layout: each for layout, each in got.items() if each not in allowed[layout]} == {}


def is_refused(got: Any, plain: Any) -> bool:
    return isinstance(got, str) and isinstance(plain, str)


def test_plain_torch_refuses_only_what_is_known(found: Found) -> None:
    plain = found["torch"]["operators"]
    refused = {operator for operator, got in plain.items() for each in got.values() if isinstance(each, str)}
    known = REFUSED | REFUSED_BY_2_11 if TorchVersion(torch.__version__) < "2.13" else REFUSED
    assert refused <= known


@pytest.mark.parametrize("operator", [None, *(each for each in OPERATORS if each not in ("amax", "indices of max"))])
def test_kinks_are_met_so_that_a_lost_convention_would_show(operator: str | None) -> None:
    """All but amax, which shares among its ties in every convention, as torch does, and indices."""
    gradients = []
    for convention in CONVENTIONS:
        with subgrad.use(convention):
            gradients.append(network_gradients() if operator is None else operator_gradients(operator))
    assert any(each != gradients[0] for each in gradients)
