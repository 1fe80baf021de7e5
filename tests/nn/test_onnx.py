"""Modules as ONNX: the graph that torch makes of their counterparts, of standard operators, run by onnxruntime."""

from __future__ import annotations

import io
import warnings
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
from each_module import CASES, Case
from torch import Tensor
from torch.torch_version import TorchVersion

import subgrad

onnx = pytest.importorskip("onnx", reason="needs onnx, onnxscript and onnxruntime: pip install 'subgrad[dev]'")
pytest.importorskip("onnxscript", reason="needs onnxscript: pip install 'subgrad[dev]'")
runtime = pytest.importorskip("onnxruntime", reason="needs onnxruntime: pip install 'subgrad[dev]'")

# Torch has no ONNX for these, under any name.
WITHOUT = {"FractionalMaxPool2d", "FractionalMaxPool3d"}
# And none in the older exporter for these, nor in the newer one for these.
WITHOUT_OLD = {
    *("HingeEmbeddingLoss", "L1Loss", "MarginRankingLoss", "MultiLabelMarginLoss", "MultiMarginLoss", "SmoothL1Loss"),
    "Threshold",
}
WITHOUT_NEW = {"RReLU"}
if TorchVersion(torch.__version__) < "2.12":
    WITHOUT_NEW |= {"AdaptiveMaxPool1d", "AdaptiveMaxPool2d", "AdaptiveMaxPool3d", "MultiLabelMarginLoss"}
# Curved or rounded otherwise: onnxruntime's own kernels are apart from torch's in the last bits, whoever exported.
OWN_ROUNDING = {"CELU", "ELU", "SELU", "Hardsigmoid", "Hardswish"}

OLD = [case for case in CASES if case.name not in WITHOUT | WITHOUT_OLD]
NEW = [case for case in CASES if case.name not in WITHOUT | WITHOUT_NEW]


@pytest.fixture(autouse=True)
def no_warning_of_ours() -> Iterator[None]:
    """What is run by ONNX is never trained, so that there is nothing to warn of."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.filterwarnings("error", message="subgrad")
        yield


def exported(module: torch.nn.Module, inputs: tuple[Any, ...], **options: Any) -> Any:
    file = io.BytesIO()
    torch.onnx.export(module, inputs, file, **options)
    return onnx.load_from_string(file.getvalue())


def is_standard(model: Any) -> bool:
    return not model.functions and {node.domain for node in model.graph.node} == {""}


def run(model: Any, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    session = runtime.InferenceSession(model.SerializeToString(), providers=["CPUExecutionProvider"])
    given = {each.name: value.detach().numpy() for each, value in zip(session.get_inputs(), inputs, strict=True)}
    return [torch.from_numpy(np.asarray(each)) for each in session.run(None, given)]


def is_as_eager(case: Case, found: Tensor) -> bool:
    wanted = case.ours()(*case.inputs).detach()
    return torch.allclose(found, wanted, 1e-6, 1e-6) if case.name in OWN_ROUNDING else torch.equal(found, wanted)


@pytest.mark.parametrize("case", OLD, ids=lambda case: case.name)
def test_every_module_runs_as_in_torch_to_the_last_bit(case: Case) -> None:
    model = exported(case.ours("mean"), case.inputs, dynamo=False)
    assert is_standard(model)
    assert is_as_eager(case, run(model, case.inputs)[0])
    if case.name != "Clamp":
        theirs = exported(case.theirs(), case.inputs, dynamo=False)
        assert [node.op_type for node in model.graph.node] == [node.op_type for node in theirs.graph.node]


class Everything(torch.nn.Module):
    """All of them at once, since exporting one takes seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.parts = torch.nn.ModuleList(case.ours("mean") for case in NEW)

    def forward(self, *inputs: tuple[Tensor, ...]) -> list[Tensor]:
        with subgrad.use("right"):
            return [part(*given) for part, given in zip(self.parts, inputs, strict=True)]


def test_so_do_all_of_them_in_the_newer_exporter() -> None:
    inputs = tuple(case.inputs for case in NEW)
    model = exported(Everything().eval(), inputs, dynamo=True, verbose=False, optimize=False)
    assert is_standard(model)
    found = run(model, tuple(each for given in inputs for each in given))
    wrong = [case.name for case, result in zip(NEW, found, strict=True) if not is_as_eager(case, result)]
    assert not wrong


@pytest.mark.parametrize("name", sorted(WITHOUT | WITHOUT_OLD))
def test_what_torch_cannot_export_under_its_own_name_is_refused_as_torch_refuses_it(name: str) -> None:
    case = next(case for case in CASES if case.name == name)
    for module in (case.ours(), case.theirs()):
        with pytest.raises((torch.onnx.errors.OnnxExporterError, torch.onnx.errors.SymbolicValueError)):
            exported(module, case.inputs, dynamo=False)
