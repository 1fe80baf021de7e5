"""A MobileNet-style network from training to int8: trained, quantised, exported to ONNX, run in onnxruntime.

    python examples/mobile_int8.py            # about half a minute on one core

It needs scikit-learn, whose handwritten digits of 8 by 8 pixels it learns; and for what runs in onnxruntime onnx,
onnxscript and onnxruntime. It trains under one convention, so that it does so on any version of torch, and is exported
as standard operators: `subgrad.functional.fake_quantize` as QuantizeLinear and DequantizeLinear. What it prints is in
`mobile_int8.txt`.
"""

from __future__ import annotations

import argparse
import logging
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.fusion import fuse_conv_bn_eval

import subgrad

CONVENTION = "pass-through"


class Layer(nn.Module):
    """A convolution with its norm, and ReLU6 where wanted."""

    def __init__(
        self, inputs: int, outputs: int, size: int = 1, stride: int = 1, groups: int = 1, bounded: bool = True
    ):
        super().__init__()
        self.conv: nn.Module = nn.Conv2d(inputs, outputs, size, stride, size // 2, groups=groups, bias=False)
        self.norm: nn.Module = nn.BatchNorm2d(outputs)
        self.bound: nn.Module = nn.ReLU6() if bounded else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        return self.bound(self.norm(self.conv(x)))


class Inverted(nn.Module):
    """Expand, filter each channel, project; a shortcut where the shapes allow it."""

    def __init__(self, inputs: int, outputs: int, stride: int = 1):
        super().__init__()
        inner = 4 * inputs
        self.layers = nn.Sequential(
            Layer(inputs, inner), Layer(inner, inner, 3, stride, inner), Layer(inner, outputs, bounded=False)
        )
        self.is_shortcut = stride == 1 and inputs == outputs

    def forward(self, x: Tensor) -> Tensor:
        return x + self.layers(x) if self.is_shortcut else self.layers(x)


def network() -> nn.Sequential:
    blocks = (Inverted(16, 24), Inverted(24, 24), Inverted(24, 32, stride=2), Inverted(32, 32))
    return nn.Sequential(
        Layer(1, 16, 3), *blocks, Layer(32, 96), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(96, 10)
    )


class Quantiser(nn.Module):
    """Of activations, by 8 bits: sees the range first, and quantises from then on."""

    def __init__(self) -> None:
        super().__init__()
        self.largest, self.is_looking = 0.0, True

    def forward(self, x: Tensor) -> Tensor:
        if self.is_looking:
            self.largest = max(self.largest, float(x.detach().abs().max()))
            return x
        return subgrad.functional.fake_quantize(x, self.largest / 127, 0, -128, 127, convention=CONVENTION)


class QuantisedConv(nn.Module):
    """A convolution with 8 bits: weights by channel, what it is given by a quantiser."""

    def __init__(self, conv: nn.Conv2d):
        super().__init__()
        self.conv, self.given = conv, Quantiser()
        self.register_buffer("scale", conv.weight.detach().abs().amax((1, 2, 3)) / 127)
        self.register_buffer("zero_point", torch.zeros(conv.out_channels, dtype=torch.int32))

    def forward(self, x: Tensor) -> Tensor:
        conv = self.conv
        weight = subgrad.functional.fake_quantize(
            conv.weight, self.scale, self.zero_point, -128, 127, 0, convention=CONVENTION
        )
        return F.conv2d(self.given(x), weight, conv.bias, conv.stride, conv.padding, groups=conv.groups)


def quantised(model: nn.Module) -> nn.Module:
    """In place: norms go into their convolutions, and these are quantised."""
    for module in [each for each in model.modules() if isinstance(each, Layer)]:
        module.conv = QuantisedConv(fuse_conv_bn_eval(module.conv.eval(), module.norm.eval()))
        module.norm = nn.Identity()
    return model


def calibrate(model: nn.Module, x: Tensor) -> None:
    with torch.no_grad():
        model.eval()(x)
    for module in model.modules():
        if isinstance(module, Quantiser):
            module.is_looking = False


def digits() -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """To train with, and the last quarter to test with."""
    images, labels = load_digits(return_X_y=True)
    x, y = torch.tensor(images, dtype=torch.float32).reshape(-1, 1, 8, 8) / 16, torch.tensor(labels)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))
    x, y = x[order], y[order]
    return x[:1347], y[:1347], x[1347:], y[1347:]


def train(model: nn.Module, x: Tensor, y: Tensor, epochs: int, rate: float) -> None:
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    for _ in range(epochs):
        for chosen in torch.randperm(len(x)).split(64):
            with subgrad.use(CONVENTION):
                loss = F.cross_entropy(model(x[chosen]), y[chosen])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()


def accuracy(out: Tensor | np.ndarray, y: Tensor) -> float:
    return float((torch.as_tensor(out).argmax(1) == y).double().mean())


def in_onnxruntime(model: nn.Module, x: Tensor, file: Path) -> np.ndarray:
    """Exported without gradients, when there is no convention to choose, and run there."""
    import onnxruntime

    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.onnx.export(model.eval(), (x,), file, dynamo=True, opset_version=18, verbose=False, external_data=False)
    session = onnxruntime.InferenceSession(str(file))
    return session.run(None, {session.get_inputs()[0].name: x.numpy()})[0]


def operators(file: Path) -> str:
    import onnx

    nodes = onnx.load(str(file)).graph.node
    assert not any(node.domain for node in nodes), "only standard operators"
    return ", ".join(sorted({node.op_type for node in nodes}))


def stages(epochs: int, fine: int, onnx: bool = True) -> Iterator[tuple[str, float, str]]:
    """Each with its accuracy, and a remark."""
    torch.manual_seed(0)
    x, y, test_x, test_y = digits()
    model = network()
    train(model.train(), x, y, epochs, 5e-3)
    with torch.no_grad():
        plain = model.eval()(test_x)
    yield "float32", accuracy(plain, test_y), f"{sum(each.numel() for each in model.parameters()):,} parameters"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "model.onnx"
        if onnx:
            out = in_onnxruntime(model, test_x, file)
            apart = float(np.abs(out - plain.numpy()).max())
            yield "float32 in onnxruntime", accuracy(out, test_y), f"{apart:.0e} from torch"
        calibrate(quantised(model), x[:256])
        with torch.no_grad():
            yield "int8, as calibrated", accuracy(model(test_x), test_y), ""
        train(model, x, y, fine, 5e-4)
        with torch.no_grad():
            simulated = model(test_x)
        yield "int8, trained on", accuracy(simulated, test_y), ""
        if onnx:
            out = in_onnxruntime(model, test_x, file)
            same = int((torch.as_tensor(out).argmax(1) == simulated.argmax(1)).sum())
            yield "int8 in onnxruntime", accuracy(out, test_y), f"{same} of {len(test_y)} answers as in torch"
            yield "", 0.0, operators(file)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=12)
    options = parser.parse_args()
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    for name, found, remark in stages(options.epochs, max(1, options.epochs // 4)):
        print(f"{name:24} {found:6.1%}   {remark}".rstrip() if name else f"operators: {remark}")


if __name__ == "__main__":
    main()
