"""Networks on their kinks: zero weights, blank images, integer data. Elements are gradients a little further on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
import torch.utils.checkpoint
from torch import Tensor, nn

import subgrad

FURTHER = 1e-6
CLOSE = 1e-4

Parameters = dict[str, Tensor]


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(width, width), nn.ReLU(inplace=True), nn.Linear(width, width))

    def forward(self, x: Tensor) -> Tensor:
        return F.relu(x + self.inner(x), inplace=True)


def perceptron() -> tuple[nn.Module, Tensor]:
    """Integer weights and data: many units at exactly 0."""
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), Residual(6), nn.Hardtanh(), nn.Linear(6, 2), nn.LeakyReLU(0.25))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randint(-1, 2, parameter.shape))
    return model, torch.randint(-1, 2, (5, 4)).double()


def zero_head() -> tuple[nn.Module, Tensor]:
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU6(), nn.Linear(6, 2))
    nn.init.zeros_(model[2].weight)
    nn.init.zeros_(model[2].bias)
    return model, torch.randn(5, 4, dtype=torch.float64)


def convolutional() -> tuple[nn.Module, Tensor]:
    """A blank image: every window ties, and padding does with it."""
    model = nn.Sequential(
        nn.Conv2d(1, 3, 3, padding=1, bias=False),
        nn.BatchNorm2d(3).eval(),
        nn.ReLU(inplace=True),
        nn.MaxPool2d(2),
        nn.Conv2d(3, 4, 3, padding=1),
        nn.ReLU(),
        nn.AdaptiveMaxPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 2),
    )
    image = torch.zeros(2, 1, 6, 6, dtype=torch.float64)
    image[1, 0, 2:, 2:] = 1
    return model, image


def transformer() -> tuple[nn.Module, Tensor]:
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation="relu", batch_first=True)
    nn.init.zeros_(layer.linear1.weight)
    nn.init.zeros_(layer.linear1.bias)
    return nn.Sequential(layer, nn.Linear(8, 2)), torch.randn(2, 3, 8, dtype=torch.float64)


def recurrent() -> tuple[nn.Module, Tensor]:
    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.RNN(3, 4, nonlinearity="relu", batch_first=True)
            self.head = nn.Linear(4, 2)

        def forward(self, x: Tensor) -> Tensor:
            return self.head(self.cells(x)[0][:, -1])

    model = Last()
    for parameter in model.cells.parameters():
        nn.init.zeros_(parameter)
    return model, torch.randn(2, 3, 3, dtype=torch.float64)


NETWORKS = [perceptron, zero_head, convolutional, transformer, recurrent]


def loss(logits: Tensor) -> Tensor:
    """Hinge losses, and a softplus written by hand."""
    logits = logits.reshape(-1, 2)
    hinge = F.relu(1 + logits[:, 0] - logits[:, 1]).mean()
    return hinge + (F.relu(logits) + torch.log1p(torch.exp(-logits.abs()))).mean() + logits.amax(1).sum()


def of(model: nn.Module, inputs: Tensor) -> Callable[[Parameters], Tensor]:
    return lambda parameters: loss(torch.func.functional_call(model, parameters, (inputs,)))


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
@pytest.mark.parametrize("seed", [0, 1])
def test_the_element_is_the_gradient_a_little_further_on(network: Callable, seed: int) -> None:
    torch.manual_seed(seed)
    model, inputs = network()
    model = model.double()
    function = of(model, inputs)
    parameters = {name: each.detach() for name, each in model.named_parameters()}
    found = subgrad.element(function, seed=seed)(parameters)
    assert found.kinks > 0
    further = {name: each + FURTHER * found.direction[name] for name, each in parameters.items()}
    for name, wanted in torch.func.grad(function)(further).items():
        torch.testing.assert_close(found.gradient[name], wanted, rtol=CLOSE, atol=CLOSE)


@pytest.mark.parametrize("network", NETWORKS, ids=lambda network: network.__name__)
def test_backward_is_the_same_as_grad(network: Callable) -> None:
    torch.manual_seed(0)
    model, inputs = network()
    model = model.double()
    parameters = {name: each.detach().clone() for name, each in model.named_parameters()}
    value, wanted = subgrad.value_and_grad(of(model, inputs), seed=4)(parameters)
    found = subgrad.backward(lambda: loss(model(inputs)), model.parameters(), seed=4)
    assert torch.equal(found, value)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(parameter.grad, wanted[name])
        assert torch.equal(parameter.detach(), parameters[name])


def test_statistics_are_counted_once() -> None:
    torch.manual_seed(0)
    inputs = torch.randint(-1, 2, (6, 1, 4, 4)).double()
    once, ours = (nn.Sequential(nn.BatchNorm2d(1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()).double() for _ in range(2))
    for model in (once, ours):
        nn.init.zeros_(model[0].weight)
    once(inputs).sum().backward()
    subgrad.backward(lambda: ours(inputs).sum(), ours.parameters())
    for name, buffer in once.named_buffers():
        torch.testing.assert_close(ours.get_buffer(name), buffer)


@pytest.mark.compiled
def test_compiled_programs_have_the_same_gradient() -> None:
    torch.manual_seed(0)
    model, inputs = perceptron()
    model = model.double()
    subgrad.backward(lambda: loss(model(inputs)), model.parameters())
    wanted = [each.grad.clone() for each in model.parameters()]
    compiled = torch.compile(model, backend="eager")
    for _ in range(2):  # before and after it was compiled
        model.zero_grad()
        subgrad.backward(lambda: loss(compiled(inputs)), model.parameters())
        for parameter, each in zip(model.parameters(), wanted, strict=True):
            torch.testing.assert_close(parameter.grad, each)
        loss(compiled(inputs)).backward()


@pytest.mark.compiled
def test_a_compiled_function_may_take_the_gradient_of_a_program() -> None:
    kinked = subgrad.grad(lambda x: (F.relu(x) - F.relu(-x)).sum())

    @torch.compile(backend="eager")
    def step(x: Tensor) -> Tensor:
        return 2 * x - kinked(x + 1)

    for _ in range(2):
        assert step(-torch.ones(3)).tolist() == [-3.0, -3.0, -3.0]


def test_checkpointed_programs_have_the_same_gradient() -> None:
    torch.manual_seed(0)
    model, inputs = perceptron()
    model = model.double()
    subgrad.backward(lambda: loss(model(inputs)), model.parameters())
    wanted = [each.grad.clone() for each in model.parameters()]
    model.zero_grad()

    def checkpointed() -> Tensor:
        return loss(torch.utils.checkpoint.checkpoint(model, inputs, use_reentrant=False))

    subgrad.backward(checkpointed, model.parameters())
    for parameter, each in zip(model.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, each)


@pytest.mark.parametrize("make", [nn.BatchNorm1d, nn.InstanceNorm1d])
def test_batches_are_counted_as_in_one_plain_run(make: Callable[..., nn.Module]) -> None:
    def run(norm: nn.Module, x: Tensor) -> Tensor:
        return F.relu(norm(x)).sum() + x.abs().sum()

    mine, plain = (make(3, track_running_stats=True, momentum=None) for _ in range(2))
    gradient, x = subgrad.grad(lambda x: run(mine, x)), torch.randn(4, 3, 5).round()
    for _ in range(3):
        assert subgrad.element(lambda x: run(mine, x))(x).kinks
        gradient(x)
        for _ in range(2):
            run(plain, x)
    assert mine.state_dict().keys() == plain.state_dict().keys()
    for name, kept in mine.state_dict().items():
        torch.testing.assert_close(kept, plain.state_dict()[name], msg=name)
