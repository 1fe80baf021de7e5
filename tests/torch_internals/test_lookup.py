"""Private names of torch: all are there, handed on as they are; one that is not is missed only where it is used."""

from __future__ import annotations

from collections.abc import Callable
from types import resolve_bases
from typing import Any

import pytest
import torch
from fresh import run_fresh

from subgrad.torch_internals import autograd, cuda, dispatcher, dynamo, settings, tensors, tracing, transforms, versions
from subgrad.torch_internals.lookup import (
    NAMES,
    Missing,
    UnavailableError,
    attribute,
    method,
    private,
    require,
    variable,
)

MODULES = (autograd, dispatcher, dynamo, settings, tensors, tracing, transforms)
MODULES += (cuda,) if torch.version.cuda else ()


def test_the_installed_torch_has_every_name() -> None:
    assert [name for module in MODULES for name, each in vars(module).items() if isinstance(each, Missing)] == []


def test_every_name_says_what_it_is_for() -> None:
    assert len(NAMES) > 50
    assert all(len(name.purpose) > 10 for name in NAMES)
    assert len({name.path for name in NAMES}) == len(NAMES)


def test_the_installed_torch_was_tried() -> None:
    assert versions.OLDEST_TRIED <= versions.INSTALLED <= versions.NEWEST_TRIED
    assert not versions.is_newer_than_tried()


def test_functions_are_handed_on_and_not_wrapped() -> None:
    assert autograd.current_graph_task_id is torch._C._current_graph_task_id
    assert transforms.peek_interpreter_stack is torch._C._functorch.peek_interpreter_stack
    assert autograd.below_autograd_and_views is torch._C._AutoDispatchBelowADInplaceOrView


def test_what_changes_is_read_anew() -> None:
    assert autograd.forward_level() == -1
    with torch.autograd.forward_ad.dual_level():
        assert autograd.forward_level() == 0
    x = torch.zeros(3)
    before = tensors.version_of(x)
    x.add_(1)
    assert tensors.version_of(x) == before + 1
    assert tensors.base_of(x[1:]) is x


def test_python_functions_in_a_graph_are_told_from_operators() -> None:
    class Own(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            return x * 2

    x = torch.ones(2, requires_grad=True)
    assert autograd.forward_class_of(Own.apply(x).grad_fn) is Own
    assert autograd.forward_class_of(x.relu().grad_fn) is None
    assert autograd.names_of_saved(type(x.relu().grad_fn)) == ("_raw_saved_result",)
    assert "_raw_saved_tensors" in autograd.names_of_saved(type(Own.apply(x).grad_fn))


GONE = "torch._C:_gone"
USES: dict[str, Callable[[Any], Any]] = {
    "called": lambda gone: gone(1, key=2),
    "asked for an attribute": lambda gone: gone.peek(),
    "given an attribute": lambda gone: setattr(gone, "hook", 1),
    "entered": lambda gone: gone.__enter__(),
    "a type": lambda gone: isinstance(1, gone),
    "a base": lambda gone: resolve_bases((gone,)),
    "compared": lambda gone: gone == 1,
    "tested": lambda gone: not gone,
    "required": require,
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_a_missing_name_raises_where_it_is_used(use: Callable[[Any], Any]) -> None:
    gone = private(GONE, "something that is needed")
    NAMES.pop()
    with pytest.raises(UnavailableError) as error:
        use(gone)
    assert f"torch {torch.__version__} has no torch._C._gone" in str(error.value)
    assert "something that is needed" in str(error.value)
    assert "tried on torch 2.11 to 2.15" in str(error.value)


@pytest.mark.parametrize("look", [attribute, method, variable])
def test_a_missing_attribute_method_or_variable_raises_too(look: Callable[[str, str], Any]) -> None:
    gone = look("torch.autograd:gone._gone", "something that is needed")
    NAMES.pop()
    with pytest.raises(UnavailableError):
        gone(torch.zeros(1))


def test_a_missing_module_raises_where_it_is_used() -> None:
    gone = private("torch._gone:config", "something that is needed")
    NAMES.pop()
    with pytest.raises(UnavailableError):
        gone.patch(x=1)


# What torch itself does not need while it is imported, each with something of subgrad that needs it.
LACKING = {
    "torch._C._get_graph_exec_group": "subgrad.audit.recomputing.graph_exec_group()",
    "torch._C._storage_Use_Count": "subgrad.clarke.engine.side_effects.is_shared(torch.zeros(2))",
    "torch._C._get_cudnn_benchmark": "subgrad.audit.attribution._repeatable().__enter__()",
}
PROGRAM = """
import torch
{deleted}
import subgrad, subgrad.audit, subgrad.clarke, subgrad.functional, subgrad.survey, subgrad.bench.measure
x = torch.tensor([0.0, 1.0], requires_grad=True)
with subgrad.use("right"):
    y = x.relu().sum()
print(torch.autograd.grad(y, x)[0].tolist())
print(subgrad.grad(lambda x: x.sin().sum())(torch.tensor([0.0]))[0].tolist())
for use in {uses}:
    try:
        eval(use)
    except RuntimeError as error:
        print(type(error).__name__, error)
"""


def test_a_torch_that_lacks_names_is_imported_and_used_where_they_are_not_needed() -> None:
    deleted = "; ".join(f"del {name}" for name in LACKING)
    program = PROGRAM.format(deleted=deleted, uses=list(LACKING.values()))
    done = run_fresh(program)
    assert done.returncode == 0, done.stderr
    right, smooth, *errors = done.stdout.splitlines()
    assert (right, smooth) == ("[1.0, 1.0]", "1.0")
    for name, error in zip(LACKING, errors, strict=True):
        assert error.startswith(f"UnavailableError torch {torch.__version__} has no {name}, which subgrad needs: ")


def test_a_torch_that_lacks_what_our_autograd_functions_are_made_of_is_named_at_once() -> None:
    program = "import torch; del torch.autograd.function._SingleLevelFunction; import subgrad; subgrad.use"
    done = run_fresh(program)
    assert done.returncode != 0
    assert f"torch {torch.__version__} has no torch.autograd.function._SingleLevelFunction" in done.stderr
