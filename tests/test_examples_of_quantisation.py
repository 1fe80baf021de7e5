"""The examples, shortened; and what is written beside them, which `python examples/NAME.py` prints."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_a_small_network_is_trained_and_quantised() -> None:
    found = [*example("mobile_int8").stages(epochs=2, fine=1, onnx=False)]
    accuracies = {name: accuracy for name, accuracy, _ in found}
    assert list(accuracies) == ["float32", "int8, as calibrated", "int8, trained on"]
    assert accuracies["int8, trained on"] > 0.5  # ten digits, after two epochs


def test_it_runs_in_onnxruntime_with_standard_operators() -> None:
    for package in ("onnx", "onnxscript", "onnxruntime"):
        pytest.importorskip(package)
    found = [*example("mobile_int8").stages(epochs=1, fine=1)]
    accuracies = {name: accuracy for name, accuracy, _ in found}
    assert accuracies["float32 in onnxruntime"] == accuracies["float32"]
    assert abs(accuracies["int8 in onnxruntime"] - accuracies["int8, trained on"]) < 0.01
    assert "QuantizeLinear" in found[-1][2]


def test_what_it_printed_has_int8_within_a_point_of_float() -> None:
    lines = (EXAMPLES / "mobile_int8.txt").read_text().splitlines()
    accuracies = {line[:24].strip(): float(line[24:31].strip().rstrip("%")) for line in lines if "%" in line}
    assert accuracies["int8 in onnxruntime"] > accuracies["float32"] - 1
    assert accuracies["int8, as calibrated"] > accuracies["float32"] - 1


def test_two_bits_depend_on_the_version_and_not_under_a_convention() -> None:
    low = example("low_bit_qat")

    def weights(name: str, convention: str) -> torch.Tensor:
        quantise = next(each for of, each, _ in low.ROWS if of == name)
        return low.train(quantise, convention, seed=0, epochs=1).weights

    old, new = (weights("round, then clamp", each) for each in ("torch-2.13", "torch-2.14"))
    assert not torch.equal(old, new)
    assert torch.equal(weights("round, then clamp", "pass-through"), old)
    assert torch.equal(*(weights("fake_quantize", each) for each in ("torch-2.13", "torch-2.14")))


def test_what_they_printed_says_so_of_every_seed() -> None:
    lines = (EXAMPLES / "low_bit_qat.txt").read_text().splitlines()
    same = {(line[:18].strip(), line[19:36].strip()): line[-7:].strip() for line in lines[1:]}
    wanted = {("round, then clamp", "torch-2.14"): "0 of 6", ("round, then clamp", "pass-through"): "6 of 6"}
    assert (wanted | {("fake_quantize", "torch-2.14"): "6 of 6"}).items() <= same.items()
