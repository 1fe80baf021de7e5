"""With no convention in force torch runs its own kernels, and what has no derivative stays as it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from fresh import run_fresh
from torch import Tensor

import subgrad
from subgrad.apply.dispatch import install
from subgrad.kinks import KINKS
from subgrad.kinks.overloads import overload
from subgrad.kinks.samples import samples
from subgrad.torch_internals.versions import COLUMN

# Measured before any kernel of ours is registered in this process would be ideal, but tests share processes: so in one
# of their own, see test_the_first_use_changes_nothing_for_those_who_do_not_use_it.
PLAIN = """
import json, torch
from subgrad.kinks import KINKS
from subgrad.kinks.overloads import overload
from subgrad.kinks.samples import samples

def measure():
    found = {}
    for op in KINKS.entrywise:
        for number, call in enumerate(samples(op)):
            torch.manual_seed(0)
            tensors = {n: v for n, v in call.items() if isinstance(v, torch.Tensor) and n != "noise"}
            leaves = {n: v.clone().requires_grad_() for n, v in tensors.items()}
            out = overload(op)(**{**call, **leaves})
            cotangent = torch.linspace(-1, 2, out.numel(), dtype=out.dtype)
            grads = torch.autograd.grad(out, list(leaves.values()), cotangent)
            found[f"{op} {number}"] = [out.grad_fn.name(), [g.tolist() for g in (out, *grads)]]
    return json.dumps(found)

before = measure()
import subgrad
with subgrad.use("mean"):
    inside = measure()
after = measure()
subgrad.set_default("right")
subgrad.set_default("torch")
again = measure()
print(before == after == again, before != inside)
"""


def test_the_first_use_changes_nothing_for_those_who_do_not_use_it() -> None:
    done = run_fresh(PLAIN)
    assert done.stdout.split() == ["True", "True"], done.stderr


FUNCTIONS: dict[str, tuple[Callable[[Tensor], Tensor], str]] = {
    "relu": (torch.relu, "ReluBackward0"),
    "clamp": (lambda x: x.clamp(0, 1), "ClampBackward1"),
    "maximum": (lambda x: torch.maximum(x, torch.zeros(())), "MaximumBackward0"),
    "abs": (torch.abs, "AbsBackward0"),
    "relu6": (torch.nn.functional.relu6, "HardtanhBackward0"),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_torch_keeps_its_own_nodes_where_no_convention_is_in_force(name: str) -> None:
    install()
    function, node = FUNCTIONS[name]
    assert function(torch.zeros(3, requires_grad=True)).grad_fn.name() == node


@pytest.mark.parametrize("op", ["relu", "abs", "celu", "hardtanh"])
def test_torch_keeps_its_own_nodes_where_it_already_agrees(op: str) -> None:
    with subgrad.use("min-norm"):
        out = overload(op)(torch.zeros(3, requires_grad=True))
    assert out.grad_fn.name().lower().startswith(op)


FIRST_USE = """
import sys, torch, subgrad
from subgrad.apply import dispatch
for convention in sys.argv[1:]:
    with subgrad.use(eval(convention)):
        forms = dispatch.registered.forms
        print("relu" in {op for key, op in forms if key == "AutogradCPU"}, bool(forms))
        x = torch.tensor([0.0, 6.0], requires_grad=True)
        y = torch.relu(x) + torch.nn.functional.relu6(x)
        print(torch.autograd.grad(y, x, torch.tensor([1.0, 3.0]))[0].tolist())
"""


@pytest.mark.parametrize(
    ("conventions", "printed"),
    [
        (("'torch'",), ["False False", "[0.0, 3.0]"]),
        (("'min-norm'",), ["False True", "[0.0, 3.0]"]),  # relu stays torch's own, and costs nothing
        (("'min-norm'", "'right'"), ["False True", "[0.0, 3.0]", "True True", "[2.0, 3.0]"]),
        # What relu6 calls has a kernel of its own, for another convention.
        (("subgrad.Convention('torch', hardtanh='right')",), ["False True", "[0.0, 3.0]"]),
    ],
    ids=lambda value: str(value) if isinstance(value, tuple) else "",
)
def test_only_what_a_convention_may_change_has_a_kernel(conventions: tuple[str, ...], printed: list[str]) -> None:
    done = run_fresh(FIRST_USE, *conventions)
    assert done.stdout.splitlines() == printed, done.stderr


CHANGED = """
import sys, torch, subgrad
from subgrad.apply import dispatch
with subgrad.use(sys.argv[1]):
    print(*{op.partition(".")[0].rstrip("_") for key, op in dispatch.registered.forms if key == "AutogradCPU"})
"""


@pytest.mark.parametrize("version", ["2.13", "2.14"])
def test_conventions_named_after_versions_leave_alone_what_they_have_in_common(version: str) -> None:
    """Up to 2.13 torch's own forward mode of some disagrees with its reverse mode."""
    done = run_fresh(CHANGED, f"torch-{version}")
    changed = {op for op in done.stdout.split() if "foreach" not in op}
    all_changed = {"clamp", "clamp_min", "clamp_max", "fmax", "fmin"}
    assert changed == (set() if version == COLUMN == "2.14" else all_changed), done.stderr


IN_PYTHON = """
import torch, torch._decomp, torch._refs, torch._meta_registrations
from subgrad.apply import dispatch
from subgrad.kinks.overloads import overload
forms = {form for op in dispatch.OPERATORS for form in (op.op, op.in_place) if form}
print(*sorted(form for form in forms if torch._C.DispatchKey.Autograd in overload(form).py_kernels))
"""


def test_the_operators_with_python_kernels_besides_are_those_that_are_named() -> None:
    from subgrad.apply.operators import ALSO_IN_PYTHON

    done = run_fresh(IN_PYTHON)
    assert tuple(done.stdout.split()) == ALSO_IN_PYTHON, done.stderr


@pytest.mark.parametrize("op", KINKS.entrywise)
def test_nothing_is_recorded_where_nothing_is_differentiated(op: str) -> None:
    for call in samples(op):
        with subgrad.use("right"):
            assert overload(op)(**call).grad_fn is None
            with torch.no_grad():
                leaf = call["self"].clone().requires_grad_()
                assert overload(op)(**{**call, "self": leaf}).grad_fn is None


def test_inference_mode_stays_inference() -> None:
    with subgrad.use("right"), torch.inference_mode():
        assert torch.relu(torch.zeros(3)).is_inference()


def test_integers_are_left_alone() -> None:
    with subgrad.use("mean"):
        assert torch.equal(torch.arange(-2, 3).clamp(-1, 1), torch.tensor([-1, -1, 0, 1, 1]))


def test_complex_tensors_are_left_alone() -> None:
    z = torch.zeros(3, dtype=torch.complex64, requires_grad=True)
    with subgrad.use("right"):
        assert torch.abs(z).grad_fn.name() == "AbsBackward0"


def test_out_variants_refuse_derivatives_as_torch_does() -> None:
    x, out = torch.zeros(3, requires_grad=True), torch.empty(3)
    with subgrad.use("right"):
        with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
            torch.clamp(x, 0, 1, out=out)
        assert torch.equal(torch.clamp(x.detach(), 0, 1, out=out), torch.zeros(3))


def test_in_place_on_a_leaf_is_refused_as_torch_does_and_leaves_it_as_it_was() -> None:
    x = torch.tensor([-1.0, 0.0, 2.0], requires_grad=True)
    with subgrad.use("right"), pytest.raises(RuntimeError, match="leaf Variable that requires grad"):
        x.clamp_(0, 1)
    assert x.tolist() == [-1.0, 0.0, 2.0]


def test_in_place_on_a_view_reaches_its_base() -> None:
    x, cotangent = torch.tensor([-1.0, 0.0, 2.0, 0.0], requires_grad=True), torch.tensor([1.0, 2.0, 3.0, 4.0])
    with subgrad.use("right"):
        base = x.clone()
        base[:2].relu_()
    (gradient,) = torch.autograd.grad(base, x, cotangent)
    assert gradient.tolist() == [0.0, 2.0, 3.0, 4.0]


def test_a_guarded_root_stays_finite() -> None:
    x = torch.tensor([0.0, 4.0], requires_grad=True)
    with subgrad.use("min-norm"):
        y = torch.clamp(x, min=0).sqrt()
    assert torch.autograd.grad(y, x, torch.tensor([2.0, 3.0]))[0].tolist() == [0.0, 0.75]
