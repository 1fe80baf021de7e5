"""The process around subgrad: plain torch, other threads and the user's settings notice nothing of it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fresh import COMPILER, run_fresh
from torch import Tensor, nn

import subgrad
from subgrad.apply.current_pass import KEY

X = torch.tensor([0.0, -1.0, 2.0])


def is_on() -> bool:
    """Whether calls of this thread can reach the kernels of passes."""
    return torch._C._dispatch_tls_is_dispatch_key_included(KEY)


def slope(function: Callable[[Tensor], Tensor]) -> list[float]:
    x = X.clone().requires_grad_()
    return torch.autograd.grad(function(x), x, torch.tensor([1.0, 2.0, 3.0]))[0].tolist()


# Where no pass is running.


def test_no_kernel_of_a_pass_can_be_reached_where_none_is_running() -> None:
    seen = []

    def program(x: Tensor) -> Tensor:
        seen.append(is_on())
        return x.abs().sum()

    subgrad.grad(program)(torch.zeros(2))
    subgrad.jvp(program, (torch.zeros(2),), (torch.ones(2),))
    with subgrad.audit():
        program(torch.zeros(2, requires_grad=True))
    assert seen.count(True) > 2  # in every pass, and not where values nearby are computed in plain torch
    assert not is_on()


def test_nor_after_something_was_raised_inside() -> None:
    def program(x: Tensor) -> Tensor:
        if x.abs().sum() == 0:
            raise KeyError("in the program")
        return x.sum()

    with pytest.raises(KeyError):
        subgrad.grad(program)(torch.zeros(2))
    assert not is_on()
    with pytest.raises(KeyError), subgrad.audit():
        program(torch.zeros(2, requires_grad=True))
    assert not is_on()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.compiled
def test_what_broke_once_is_compiled_as_before(backend: str) -> None:
    subgrad.grad(torch.abs)(torch.tensor(0.0))
    with subgrad.audit():
        torch.relu(X)
    for function in (lambda x: (x * 1).pow_(3), lambda x: x - torch.div(x, 2.0, rounding_mode="floor")):
        torch._dynamo.reset()
        assert slope(torch.compile(function, backend=backend)) == slope(function)
    x = X.clone().requires_grad_()
    torch.compile(lambda x: x.norm(p=3), backend=backend)(x).backward()
    torch.testing.assert_close(x.grad, X * X.abs() / X.norm(p=3) ** 2)


# Threads.


class Beside:
    """Calls in another thread, which waits for this one at the start."""

    def __init__(self, call: Callable[[], Any]):
        self.result: Any = None
        self._thread = threading.Thread(target=lambda: setattr(self, "result", call()))

    def finish(self) -> Any:
        self._thread.start()
        self._thread.join()
        return self.result


def in_plain_torch() -> list[Any]:
    x = X.clone().requires_grad_()
    of_number = torch.func.grad(lambda x: (x - torch.div(x, 2.0, rounding_mode="floor")).sum())(X)
    return [is_on(), slope(torch.relu), slope(torch.abs), bool((x == 0).any()), of_number.tolist()]


def test_another_thread_sees_plain_torch_while_this_one_runs_a_pass() -> None:
    plain, seen = in_plain_torch(), []

    def program(x: Tensor) -> Tensor:
        seen.append(Beside(in_plain_torch).finish())
        return (torch.relu(x) + x.abs()).sum()

    subgrad.grad(program)(torch.zeros(3))
    assert len(seen) > 1  # the passes of a program that meets kinks
    assert all(each == plain for each in seen)


def test_another_thread_sees_plain_torch_while_this_one_audits() -> None:
    plain = in_plain_torch()
    with subgrad.audit() as audit:
        seen = Beside(in_plain_torch).finish()
        torch.relu(X.clone().requires_grad_())
    assert seen == plain
    assert [(row.operator, row.total.hits) for row in audit.rows] == [("relu", 1)]


# Inside a pass: calls reach its rules where torch would reach autograd, whatever comes before that.


def test_autocast_comes_first_inside_a_program() -> None:
    weight = torch.tensor([[1.0], [1.0], [2.0]])

    def program(x: Tensor) -> Tensor:
        with torch.autocast("cpu", torch.bfloat16):
            found = nn.functional.linear(x, weight)
            assert found.dtype is torch.bfloat16
            return torch.quantile(found, 0.5)  # which torch has for float32 only, to which autocast casts

    assert torch._C._dispatch_has_kernel_for_dispatch_key("aten::quantile.scalar", "AutocastCPU")
    # The median of x, x and 2x is x on both sides of 0.
    assert subgrad.grad(program)(torch.zeros(1)).tolist() == [1.0]


def test_an_audit_meets_a_call_once_under_each_transform() -> None:
    with subgrad.audit() as audit:
        torch.func.grad(lambda x: torch.relu(x).sum())(X)
    (note,) = audit.notes
    assert "relu" in note
    assert "transformed" in note


def test_numbers_beside_low_precision_are_not_rounded_inside_a_program() -> None:
    x = torch.linspace(-3, 3, 2001).bfloat16()
    plain, found = torch.div(x, 0.1, rounding_mode="floor"), []

    def program(y: Tensor) -> Tensor:
        found.append(torch.div(x, 0.1, rounding_mode="floor"))
        return y.abs().sum()

    subgrad.grad(program)(torch.zeros(2))
    assert all(torch.equal(each, plain) for each in found)


class Doubled(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(x: Tensor) -> Tensor:
        return x * 2

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Any) -> None: ...

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:
        return cotangent * 2


def test_operators_of_higher_order_run_inside_an_audit() -> None:
    with subgrad.audit():
        assert torch.func.grad(lambda x: Doubled.apply(x).sum())(X).tolist() == [2.0, 2.0, 2.0]


@pytest.mark.compiled
def test_compiled_functions_run_inside_an_audit() -> None:
    function = torch.compile(lambda x: (x * 1).pow_(3) + torch.div(x, 2.0, rounding_mode="floor"), backend="aot_eager")
    plain = slope(function)
    with subgrad.audit():
        assert slope(function) == plain
    assert slope(function) == plain


def test_a_step_inside_backward_ends_and_begins_what_an_audit_records() -> None:
    """Torch takes back what backward has done to a thread's dispatch keys; the audit goes on all the same."""
    weight = nn.Parameter(torch.zeros(2))
    optimizer = torch.optim.SGD([weight], 0.0)
    weight.register_post_accumulate_grad_hook(lambda _: optimizer.step())
    with subgrad.audit(every=2) as audit:
        for _ in range(4):
            torch.relu(weight).sum().backward()
    assert audit.recorded == (0, 2)


# Inference mode.


def test_inference_mode_and_conventions_leave_each_other_alone() -> None:
    x = X.clone().requires_grad_()
    with subgrad.use("right"):
        with torch.inference_mode():
            inside = torch.relu(x)
        assert slope(torch.relu) == [1.0, 0.0, 3.0]
    with torch.inference_mode(), subgrad.use("right"):
        assert torch.relu(X).tolist() == [0.0, 0.0, 2.0]
        with torch.inference_mode(False):
            assert slope(torch.relu) == [1.0, 0.0, 3.0]
    assert inside.is_inference()
    assert slope(torch.relu) == [0.0, 0.0, 3.0]


def test_an_audit_counts_what_is_differentiated_around_inference_mode() -> None:
    x = X.clone().requires_grad_()
    with subgrad.audit() as audit:
        with torch.inference_mode():
            torch.relu(x)
        torch.relu(x)
    assert [(row.operator, row.total.calls, row.total.hits) for row in audit.rows] == [("relu", 1, 1)]
    with torch.inference_mode(), subgrad.audit() as audit:
        torch.relu(x)
    assert not audit.rows
    assert slope(torch.abs) == [0.0, -2.0, 3.0]


# Warnings. In processes of their own: what torch loads, it loads once.

FIRST_CALLS = {
    "grad": "subgrad.grad(torch.abs)(torch.tensor(0.))",
    "jvp": "subgrad.jvp(torch.abs, (torch.tensor(0.),), (torch.tensor(1.),))",
    "min_norm": "subgrad.min_norm(lambda x: x.abs().sum())(torch.zeros(2))",
    "use": "subgrad.use('right')(torch.relu)(x).sum().backward()",
    "all kernels": "[subgrad.use(each)(torch.relu)(x) for each in ('min-norm', 'mean', 'right')]",
    "audit": "subgrad.audit(compare=['left', 'right'], every=1).__enter__(); torch.relu(x).sum().backward()",
    "compare": "subgrad.compare(lambda: torch.relu(x).sum(), [x], ['left', 'right'])",
    "compile": "subgrad.use('right')(torch.compile(torch.relu, backend='aot_eager'))(x).sum().backward()",
}


@pytest.mark.parametrize("name", FIRST_CALLS)
def test_the_first_call_warns_of_nothing_and_leaves_filters_as_they_are(name: str) -> None:
    script = f"""
import warnings, torch, subgrad
import torch._dynamo  # which torch loads in some of these calls, and which adds a filter for itself
x = torch.tensor([0., 1.], requires_grad=True)
before = list(warnings.filters), warnings.showwarning
{FIRST_CALLS[name]}
assert (list(warnings.filters), warnings.showwarning) == before
try:
    warnings.warn("of the user")
except UserWarning:
    print("reached")
"""
    found = run_fresh(script, imported=COMPILER, warn="error")
    assert (found.stdout, found.returncode) == ("reached\n", 0), found.stderr[-2000:]


def test_what_a_program_warns_of_reaches_the_user() -> None:
    def program(x: Tensor) -> Tensor:
        warnings.warn("of the program", stacklevel=1)
        return x.abs().sum()

    with pytest.warns(UserWarning, match="of the program"):
        subgrad.grad(program)(torch.zeros(2))
    with pytest.warns(UserWarning, match="of the program"), subgrad.audit():
        program(torch.zeros(2, requires_grad=True))


# The end.

USED = """
import torch, subgrad
x = torch.tensor([0.0, 1.0], requires_grad=True)
for convention in ("min-norm", "mean"):
    with subgrad.use(convention):
        torch.relu(x).sum().backward()
        torch.compile(torch.relu, backend="aot_eager")(x).sum().backward()
        torch.nn.functional.max_pool1d(x[None], 2).sum().backward()
subgrad.grad(torch.abs)(torch.tensor(0.0))
with subgrad.audit(compare=["left", "right"], every=1):
    torch.relu(x).sum().backward()
"""


def test_a_process_ends_as_any_when_it_has_used_all_of_it() -> None:
    """A new interpreter, whose modules are taken down in the end."""
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-W", "ignore", "-c", USED]
    done = subprocess.run(command, env=surroundings, capture_output=True, text=True, timeout=300)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
