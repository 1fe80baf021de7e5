"""`gradcheck` and `gradgradcheck`, with the arguments of those of `torch.autograd`, and right at kinks as well."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch.autograd.gradcheck import GradcheckError

from subgrad.testing import torchs_own
from subgrad.testing.check import Check
from subgrad.testing.complaint import Complaint
from subgrad.testing.fast import is_doubtful
from subgrad.testing.inputs import Inputs, IsComplex
from subgrad.testing.modes import has_forward_mode, modes_disagree
from subgrad.testing.program import Program, undisturbed
from subgrad.testing.second_order import SecondOrder, with_gradients
from subgrad.testing.tolerance import for_quotients

Function = Callable[..., Any]


def gradcheck(
    func: Function,
    inputs: Any,
    *,
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_batched_forward_grad: bool = False,
    check_forward_ad: bool | None = None,
    check_backward_ad: bool = True,
    fast_mode: bool = False,
    masked: bool | None = None,
    seed: int = 0,
) -> bool:
    """Check the gradients of a function against its values, as `torch.autograd.gradcheck`; also at kinks.

    At a kink every element of the set of generalised derivatives is right, for each entry of the result, and nothing
    else is. The set is that of the function, whatever operators it is written with.

    >>> import torch
    >>> from subgrad.testing import gradcheck
    >>> gradcheck(torch.relu, torch.zeros(3, dtype=torch.float64, requires_grad=True))
    True

    Gradients are those under the convention in force.

    Args:
        func: a function of the inputs that returns a tensor, or a pytree that has some.
        inputs: a tensor, or a tuple of arguments, each a tensor, a pytree of tensors, or anything else. Those that
            require grad are checked; all of floating point if none does.
        eps: how far around the point is looked; kinks within count as at it. In double precision 1e-6.
        atol, rtol: absolute and relative tolerance. In double precision 1e-5 and 1e-3.
        raise_exception: raise, or return False.
        nondet_tol: what the same backward may differ by from one time to the next.
        check_undefined_grad: whether undefined cotangents count as zeros.
        check_grad_dtypes: whether gradients have the dtype of what they belong to.
        check_batched_grad, check_batched_forward_grad: whether gradients can be batched by `torch.func.vmap`.
        check_forward_ad: whether forward mode gives the same as reverse mode. None: if the function has one.
        check_backward_ad: whether to check reverse mode. Otherwise forward mode is held against values.
        fast_mode: check products with random vectors, and all entries only if those are in doubt.
        masked: for sparse tensors, as torch has it. They, and complex ones, are left to torch.
        seed: of points nearby, directions and cotangents.

    Raises:
        GradcheckError: torch's, where something is wrong; with the point, the gradient, the set, and the line.
        ValueError: for options that contradict each other, and for inputs that are too coarse.
    """
    if not (check_forward_ad or check_backward_ad):
        raise ValueError("check_backward_ad=False: then set check_forward_ad=True, or nothing is checked.")
    if check_batched_grad and not check_backward_ad:
        raise ValueError("check_batched_grad=True needs check_backward_ad=True.")
    if check_batched_forward_grad and check_forward_ad is False:
        raise ValueError("check_batched_forward_grad=True needs check_forward_ad=True.")
    options = {
        "nondet_tol": nondet_tol,
        "check_undefined_grad": check_undefined_grad,
        "check_grad_dtypes": check_grad_dtypes,
        "check_batched_grad": check_batched_grad,
        "check_batched_forward_grad": check_batched_forward_grad,
        "check_backward_ad": check_backward_ad,
        "masked": masked,
    }

    def check(given: Inputs) -> None:
        program, tolerance = Program(func, given, seed), for_quotients(given, eps, atol, rtol)
        has_forward = check_forward_ad or (check_forward_ad is None and has_forward_mode(program))
        if not check_backward_ad or not fast_mode or is_doubtful(program, tolerance):
            _raise(Check(program, tolerance, is_forward=not check_backward_ad).complaint())
        if check_backward_ad and has_forward:
            _raise(modes_disagree(program, tolerance, fast_mode))
        if given.size and program.size:
            torchs_own.besides_values(func, given, has_forward, **options)

    def leave(given: Inputs) -> None:
        numbers = {"eps": eps, "atol": atol, "rtol": rtol}
        forward = bool(check_forward_ad or check_batched_forward_grad)
        torchs_own.wholly(func, given, numbers, check_forward_ad=forward, fast_mode=fast_mode, **options)

    return _verdict(check, leave, Inputs(inputs), raise_exception)


def gradgradcheck(
    func: Function,
    inputs: Any,
    grad_outputs: Any = None,
    *,
    eps: float | None = None,
    atol: float | None = None,
    rtol: float | None = None,
    gen_non_contig_grad_outputs: bool = False,
    raise_exception: bool = True,
    nondet_tol: float = 0.0,
    check_undefined_grad: bool = True,
    check_grad_dtypes: bool = False,
    check_batched_grad: bool = False,
    check_fwd_over_rev: bool = False,
    check_rev_over_rev: bool = True,
    fast_mode: bool = False,
    masked: bool = False,
    seed: int = 0,
) -> bool:
    """Check the gradients of gradients, as `torch.autograd.gradgradcheck`; also at kinks.

    There a gradient jumps. Its derivative beside the kink is held against it, and each entry of what is returned at the
    kink must lie between those nearby.

    >>> import torch
    >>> from subgrad.testing import gradgradcheck
    >>> gradgradcheck(lambda x: torch.relu(x) ** 2, torch.zeros(3, dtype=torch.float64, requires_grad=True))
    True

    Args:
        grad_outputs: the cotangents; random ones if not given. The rest is as for `gradcheck`.

    Raises:
        GradcheckError: torch's, where something is wrong.
    """
    if not (check_fwd_over_rev or check_rev_over_rev):
        raise ValueError("check_rev_over_rev=False: then set check_fwd_over_rev=True, or nothing is checked.")
    options = {
        "gen_non_contig_grad_outputs": gen_non_contig_grad_outputs,
        "nondet_tol": nondet_tol,
        "check_undefined_grad": check_undefined_grad and check_rev_over_rev,
        "check_grad_dtypes": check_grad_dtypes,
        "check_batched_grad": check_batched_grad,
        "check_fwd_over_rev": check_fwd_over_rev,
        "check_rev_over_rev": check_rev_over_rev,
        "masked": masked,
    }

    def check(given: Inputs) -> None:
        program, tolerance = Program(func, given, seed), for_quotients(given, eps, atol, rtol)
        second = Program(*with_gradients(program, grad_outputs), seed)
        for is_forward, is_wanted in ((False, check_rev_over_rev), (True, check_fwd_over_rev)):
            if is_wanted:
                _raise(SecondOrder(program, second, tolerance, is_forward).complaint())
        if given.size and program.size:
            torchs_own.besides_values_second(func, given, grad_outputs, **options)

    def leave(given: Inputs) -> None:
        numbers = {"eps": eps, "atol": atol, "rtol": rtol}
        torchs_own.wholly_second(func, given, grad_outputs, numbers, fast_mode=fast_mode, **options)

    return _verdict(check, leave, Inputs(inputs), raise_exception)


def _verdict(check: Callable[[Inputs], None], leave: Callable[[Inputs], None], inputs: Inputs, raises: bool) -> bool:
    """Whether a check passes; what is complex or sparse is left to torch."""
    with undisturbed(inputs):
        try:
            if torchs_own.are_left_to_torch(inputs):
                leave(inputs)
            else:
                try:
                    check(inputs)
                except IsComplex:  # what it returns
                    leave(inputs)
        except GradcheckError:
            if raises:
                raise
            return False
    return True


def _raise(complaint: Complaint | None) -> None:
    if complaint is not None:
        raise GradcheckError(str(complaint))
