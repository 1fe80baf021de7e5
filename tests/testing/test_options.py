"""The arguments of torch's gradcheck and gradgradcheck, each of which ours takes, and what each of them catches."""

from __future__ import annotations

import inspect
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from torch.autograd import Function

import subgrad
from subgrad.testing import GradcheckError, gradcheck, gradgradcheck

KINKED = torch.tensor([-1.0, 0.0, 2.0], dtype=torch.float64)
SMOOTH = torch.tensor([-1.0, 0.5, 2.0], dtype=torch.float64)


@pytest.mark.parametrize("name", ["gradcheck", "gradgradcheck"])
def test_all_arguments_of_torchs_are_there(name: str) -> None:
    ours, theirs = (inspect.signature(getattr(module, name)).parameters for module in (subgrad.testing, torch.autograd))
    assert set(ours) - set(theirs) == {"seed"}
    assert [ours[each].kind for each in theirs] == [theirs[each].kind for each in theirs]
    # Ours finds out itself whether there is a forward mode, and takes tolerances by the dtype.
    other = {each for each in theirs if ours[each].default != theirs[each].default}
    assert other <= {"eps", "atol", "rtol", "check_forward_ad"}


class Noisy(Function):
    """Another gradient each time."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * (2 + 1e-7 * torch.rand_like(grad))


class Unbatched(Function):
    """A backward that asks for numbers."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return torch.tensor([2 * each for each in grad.tolist()]).to(grad)


class Undefined(Function):
    """A backward that takes a cotangent which is missing for one of ones."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> tuple[Tensor, Tensor]:
        ctx.set_materialize_grads(False)
        return x * 2, x * 3

    @staticmethod
    def backward(ctx: Any, one: Tensor | None, other: Tensor | None) -> Tensor:  # type: ignore[override]
        grads = [torch.ones(3, dtype=torch.float64) if each is None else each for each in (one, other)]
        return grads[0] * 2 + grads[1] * 3


class Slight(Function):
    """A gradient that is one hundredth too large, of a function with large values or small ones."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, offset: float = 0.0) -> Tensor:
        ctx.save_for_backward(x)
        return x.sin() + offset

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:  # type: ignore[override]
        return grad * ctx.saved_tensors[0].cos() * 1.01, None


class OtherForward(Function):
    """A sine whose forward mode has the wrong derivative."""

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x.sin()

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * ctx.saved_tensors[0].cos()

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor) -> Tensor:
        return tangent * ctx.saved_tensors[0].sin()


CAUGHT = [
    (Noisy, {}, {"nondet_tol": 1e-5}, "not reentrant"),
    (Unbatched, {"check_batched_grad": True}, {}, "batched gradients"),
    (OtherForward, {}, {"check_forward_ad": False}, "Forward mode and reverse mode disagree"),
    (OtherForward, {"check_forward_ad": True, "check_backward_ad": False}, {"check_forward_ad": False}, "not that of"),
    (Slight, {}, {"rtol": 0.1}, "not that of the values"),
    (Slight, {}, {"atol": 0.1}, "not that of the values"),
    (Slight, {"fast_mode": True}, {"fast_mode": True, "rtol": 0.1}, "not that of the values"),
    (Slight, {"eps": 1e-4}, {"eps": 1e-4, "rtol": 0.1}, "not that of the values"),
]


@pytest.mark.parametrize(("function", "caught", "let_through", "says"), CAUGHT)
def test_an_option_decides_whether_it_is_caught(
    function: type[Function], caught: dict[str, Any], let_through: dict[str, Any], says: str
) -> None:
    given = SMOOTH.clone().requires_grad_()
    with pytest.raises(GradcheckError, match=says):
        gradcheck(function.apply, given, **caught)
    assert gradcheck(function.apply, given, raise_exception=False, **caught) is False
    assert gradcheck(function.apply, given, **let_through)


def test_undefined_cotangents_count_as_zeros() -> None:
    def first(x: Tensor) -> Tensor:  # the other result is lost, and its cotangent undefined
        return Undefined.apply(x)[0]

    with pytest.raises(GradcheckError):
        gradcheck(Undefined.apply, SMOOTH)
    with pytest.raises(GradcheckError):
        gradcheck(first, SMOOTH)


@pytest.mark.parametrize("offset", [0.0, 1e5, 1e6, 1e7])
def test_rounding_of_large_values_hides_no_gradient_that_is_off_by_a_hundredth(offset: float) -> None:
    with pytest.raises(GradcheckError, match="not that of the values"):
        gradcheck(lambda x: Slight.apply(x, offset), SMOOTH)


@pytest.mark.parametrize("options", [{}, {"fast_mode": True}, {"check_forward_ad": True, "check_backward_ad": False}])
def test_kinks_pass_in_every_mode(options: dict[str, Any]) -> None:
    assert gradcheck(torch.relu, KINKED, **options)


def test_batched_gradients_can_be_asked_for_at_a_kink() -> None:
    options = {"check_batched_grad": True, "check_batched_forward_grad": True, "check_forward_ad": True}
    assert gradcheck(torch.relu, KINKED, **options)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"eps": 0.0}, "eps=0.0: give a radius larger than 0."),
        ({"eps": -1.0}, "eps=-1.0: give a number from 0 on."),
        ({"rtol": "a"}, "rtol='a': give a number from 0 on."),
        ({"check_backward_ad": False}, "then set check_forward_ad=True"),
        ({"check_backward_ad": False, "check_forward_ad": True, "check_batched_grad": True}, "needs check_backward_ad"),
        ({"check_forward_ad": False, "check_batched_forward_grad": True}, "needs check_forward_ad=True"),
    ],
)
def test_options_that_make_no_sense_are_an_error(options: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        gradcheck(torch.relu, KINKED, **options)


@pytest.mark.parametrize(
    ("inputs", "error", "says"),
    [
        (3, TypeError, "inputs are a int: give a tensor, or a tuple with all arguments."),
        (torch.tensor([1, 2]), ValueError, "No tensor of floating point is among the inputs"),
        (
            KINKED.half(),
            ValueError,
            r"torch.float16, too coarse for difference quotients: give float64 .* x.double\(\)",
        ),
    ],
)
def test_inputs_that_cannot_be_checked_are_an_error(inputs: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        gradcheck(torch.relu, inputs)


# What is left to torch, and what torch's own cannot take.


class OfThePlane(Function):
    """A rotation by a right angle whose backward goes the wrong way round."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1j

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return grad * 1j


def test_complex_numbers_are_left_to_torch() -> None:
    x = torch.tensor([1 + 2j, -0.5j], requires_grad=True, dtype=torch.complex128)
    assert gradcheck(lambda z: z * z.conj(), x)
    assert gradcheck(torch.fft.fft, SMOOTH)  # real inputs, and a complex result
    with pytest.raises(GradcheckError, match="imaginary part"):
        gradcheck(OfThePlane.apply, x)
    assert gradgradcheck(lambda z: z * z * z.conj(), x)


def test_sparse_tensors_are_left_to_torch() -> None:
    x = torch.eye(3, dtype=torch.float64).to_sparse().requires_grad_()
    assert gradcheck(torch.sparse.sum, x, masked=True)
    with pytest.raises(GradcheckError):
        gradcheck(torch.sparse.sum, x)


def test_single_precision_is_checked_as_far_as_it_goes() -> None:
    x = torch.tensor([-1.0, 0.0, 2.0])
    assert gradcheck(torch.relu, x)
    with pytest.raises(GradcheckError, match="not that of the values"):
        gradcheck(lambda x: Slight.apply(x) * 1.5 - 0.5 * x.sin().detach(), x)


@pytest.mark.parametrize("size", [0, 3])
def test_tensors_without_entries_pass(size: int) -> None:
    assert gradcheck(torch.relu, torch.zeros(0, dtype=torch.float64, requires_grad=True))
    assert gradcheck(lambda x: x[:0], torch.zeros(size, dtype=torch.float64, requires_grad=True))


def test_arguments_and_results_may_be_nested() -> None:
    def f(given: dict[str, Tensor], factor: float) -> dict[str, Any]:
        return {"scaled": given["x"] * factor, "rest": (given["x"].relu(), 3)}

    assert gradcheck(f, ({"x": KINKED.clone().requires_grad_()}, 2.0))
    assert gradgradcheck(f, ({"x": KINKED.clone().requires_grad_()}, 2.0))


def test_nothing_is_left_behind() -> None:
    norm, x, before = torch.nn.BatchNorm1d(3).double(), torch.randn(4, 3, dtype=torch.float64), torch.get_rng_state()
    assert gradcheck(norm, x)
    assert gradcheck(lambda x: F.dropout(x, 0.5), x)  # the same random numbers each time
    assert (int(norm.num_batches_tracked), x.grad, x.requires_grad) == (0, None, False)
    assert torch.equal(torch.get_rng_state(), before)


# Gradients of gradients.


class Cubed(Function):
    """A cube whose backward cannot be differentiated rightly."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x**3

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * 3 * x.detach() ** 2


class Ramp(Function):
    """2 max(x, 0), with slope 5 at 0."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return 2 * torch.relu(x)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return grad * torch.where(x == 0, 5.0, 2.0 * (x > 0))


class Parabola(Function):
    """max(x, 0) squared, whose derivative is the ramp above."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return torch.relu(x) ** 2

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return Ramp.apply(ctx.saved_tensors[0]) * grad


@pytest.mark.parametrize(
    "options", [{}, {"check_fwd_over_rev": True}, {"check_batched_grad": True, "gen_non_contig_grad_outputs": True}]
)
def test_second_derivatives_that_are_right_pass(options: dict[str, Any]) -> None:
    assert gradgradcheck(torch.tanh, SMOOTH, **options)
    assert gradgradcheck(lambda x: torch.relu(x) ** 2, KINKED, **options)


def test_second_derivatives_that_are_wrong_are_named() -> None:
    with pytest.raises(GradcheckError) as caught:
        gradgradcheck(Cubed.apply, SMOOTH)
    said = str(caught.value)
    assert said.startswith("The second derivative at a point nearby is not that of the gradient there.\n")
    assert "inputs[0] = -1.0" in said
    assert "Cubed, with a backward of its own" in said
    assert gradcheck(Cubed.apply, SMOOTH)
    assert gradgradcheck(Cubed.apply, SMOOTH, raise_exception=False) is False


def test_a_second_derivative_at_a_kink_lies_between_those_beside_it() -> None:
    with pytest.raises(GradcheckError, match="A second derivative does not lie between those nearby") as caught:
        gradgradcheck(Parabola.apply, KINKED)
    assert "Ramp, with a backward of its own" in str(caught.value)


def test_cotangents_may_be_given() -> None:
    cotangent = torch.tensor([1.0, -2.0, 0.5], dtype=torch.float64)
    assert gradgradcheck(torch.tanh, SMOOTH, cotangent)
    with pytest.raises(ValueError, match=r"grad_outputs must have the shapes of the results, \[\[3\]\]"):
        gradgradcheck(torch.tanh, SMOOTH, cotangent[:2])
