"""No verdict covers what was not seen: compiled code, calls from before or elsewhere, gradients inside a program."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

import subgrad
from audit.families import FAMILIES
from subgrad.audit import Audit, Effect
from subgrad.audit.graphs import nodes, unwatched
from subgrad.cli import main

OLD, NEW = "torch-2.13", "torch-2.14"
compiled = pytest.mark.compiled


def loss(x: Tensor) -> Tensor:
    """Its gradient at 0 is 2 in one version and -1 in the other."""
    return (3 * torch.clamp_min(x, 0) - x).sum()


def zero() -> Tensor:
    return torch.zeros(1, requires_grad=True)


def watched(program: Callable[[Tensor], Tensor], **given: Any) -> Audit:
    x = zero()
    with subgrad.audit(**{"compare": (OLD, NEW), "every": 1, **given}) as audit:
        program(x).backward()
    return audit.result


def test_the_program_differs_as_it_is() -> None:
    for version, slope in ((OLD, 2.0), (NEW, -1.0)):
        with subgrad.use(version):
            assert torch.autograd.grad(loss(x := zero()), x)[0].tolist() == [slope]
    assert "changes 1 of 1 gradient, " in watched(loss).verdicts[0]


# Compiled code.


@compiled
@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
@pytest.mark.parametrize("when", ["before", "inside"])
def test_of_compiled_code_the_verdict_says_that_it_was_not_seen(backend: str, when: str) -> None:
    torch.compiler.reset()
    program = torch.compile(loss, backend=backend)
    if when == "before":
        program(zero()).backward()
    audit = watched(program)
    assert len(audit.unseen) == 1
    assert "torch.compile has compiled" in audit.unseen[0]
    (verdict,) = audit.verdicts
    assert "same gradients" not in verdict
    assert audit.unseen[0] in verdict
    assert audit.unseen[0] in str(audit)
    assert audit.unseen[0] in audit.to_html().replace("&#x27;", "'")
    assert audit.unseen[0] in audit._repr_html_().replace("&#x27;", "'")
    assert Audit.from_json(audit.to_json()) == audit
    assert Audit.from_json(audit.to_json()).verdicts == audit.verdicts


@compiled
def test_without_a_comparison_compiled_code_is_said_too() -> None:
    program = torch.compile(loss, backend="aot_eager")
    assert "torch.compile has compiled" in watched(program, compare=()).unseen[0]
    x = zero()
    with subgrad.audit() as audit:
        torch.autograd.grad(program(x), x)
    assert "torch.compile has compiled" in str(audit)
    assert audit.hits == 0


@compiled
def test_in_compiled_code_beside_eager_code_what_was_seen_is_said_and_what_was_not() -> None:
    program = torch.compile(loss, backend="aot_eager")
    x = zero()
    with subgrad.audit(compare=(OLD, NEW)) as audit:
        x.clamp(max=0).sum().backward()
        program(x).backward()
    assert {row.operator for row in audit.rows} == {"clamp"}
    assert "changes 1 of 1 gradient, " in audit.verdicts[0]
    assert "Of what was not seen nothing is known: gradients at test_unseen.py" in audit.verdicts[0]


@compiled
def test_asked_to_run_eagerly_compiled_functions_are_seen() -> None:
    program = torch.compile(loss, backend="aot_eager")
    program(zero()).backward()
    with torch.compiler.set_stance("force_eager"):
        audit = watched(program)
    assert audit.effects[0].flips == 1
    assert not audit.unseen


@compiled
def test_compare_runs_compiled_functions_as_they_are_written() -> None:
    for backend in ("aot_eager", "inductor"):
        program, x = torch.compile(loss, backend=backend), zero()
        for _ in range(2):  # compiled by now or not
            effect = subgrad.compare(lambda: program(x), [x], [OLD, NEW])  # noqa: B023
            assert (effect.flips, effect.unseen) == (1, ())
            program(x).backward()
        assert subgrad.compare(lambda: torch.compile(loss, backend=backend)(x), [x], [OLD, NEW]).flips == 1  # noqa: B023
        module = nn.Sequential(nn.Linear(1, 1, bias=False), nn.Hardtanh(0, 1))
        nn.init.zeros_(module[0].weight)
        module.compile(backend=backend)
        assert subgrad.compare(lambda: module(torch.ones(1, 1)).sum(), module, ["left", "right"]).differing == 1  # noqa: B023


@compiled
def test_a_graph_that_was_compiled_is_not_passed_over_by_compare() -> None:
    program, x = torch.compile(loss, backend="aot_eager"), zero()
    made = program(x)
    with pytest.raises(ValueError, match=r"they depend on code that torch\.compile has compiled"):
        subgrad.compare(lambda: made, [x], [OLD, NEW])


def scripted(x: Tensor) -> Tensor:
    return 3 * torch.clamp(x, min=0.0) - torch.relu(x) - x


@pytest.mark.filterwarnings("ignore")
def test_scripted_and_traced_code_is_seen() -> None:
    watched(loss)  # from its first use on, subgrad lets scripted operators be called one by one
    for made in (torch.jit.script(scripted), torch.jit.trace(scripted, torch.ones(1))):
        for _ in range(4):
            assert watched(lambda x: made(x).sum()).effects[0].flips == 1  # noqa: B023
            x = zero()
            assert subgrad.compare(lambda: made(x).sum(), [x], [OLD, NEW]).flips == 1  # noqa: B023


@pytest.mark.filterwarnings("ignore")
def test_scripted_code_that_was_compiled_before_is_said() -> None:
    """The profiling executor differentiates whole parts by formulas of its own."""

    def alike(x: Tensor) -> Tensor:
        return 3 * torch.clamp(x, min=0.0) - torch.relu(x) - x

    watched(loss)
    made, x = torch.jit.script(alike), zero()
    was = torch._C._jit_set_profiling_mode(True)
    try:
        for _ in range(4):
            out = made(x)
    finally:
        torch._C._jit_set_profiling_mode(was)
    assert "DifferentiableGraph" in out.grad_fn.name()
    audit = watched(lambda x: made(x).sum())
    assert not audit.effects
    assert "torch.jit has compiled" in audit.verdicts[0]
    with pytest.raises(ValueError, match=r"they depend on code that torch\.jit has compiled"):
        subgrad.compare(lambda: made(x).sum(), [x], [OLD, NEW])


@compiled
def test_exported_programs_are_seen() -> None:
    class Loss(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return loss(x)

    module = torch.export.export(Loss(), (torch.ones(1),)).module()
    assert watched(module).effects[0].flips == 1
    x = zero()
    assert subgrad.compare(lambda: module(x), [x], [OLD, NEW]).flips == 1


@compiled
def test_the_command_says_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(
        "import torch\n"
        "x = torch.zeros(1, requires_grad=True)\n"
        "torch.compile(lambda x: (3 * x.clamp(min=0) - x).sum(), backend='aot_eager')(x).backward()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.setitem(sys.modules, "__main__", sys.modules["__main__"])
    assert main(["audit", "--compare", OLD, NEW, "--json", "audit.json", "train.py"]) == 0
    said = capsys.readouterr().err
    assert "code that torch.compile has compiled" in said
    assert "same gradients" not in said
    assert main(["report", "audit.json"]) == 0
    assert "code that torch.compile has compiled" in capsys.readouterr().out
    assert "code that torch.compile has compiled" in (tmp_path / "subgrad-audit.html").read_text()


# Calls that were not watched.

WITHOUT_CHOICE = ("sign", "sqrt", "round", "gt", "le", "a mask")  # jumps and comparisons


def test_calls_from_before_the_audit_are_said() -> None:
    x = zero()
    made = loss(x)
    with subgrad.audit(compare=(OLD, NEW)) as audit:
        made.backward(retain_graph=True)
    assert "clamp_min was not watched" in audit.verdicts[0]
    assert "clamp_min was not watched" in subgrad.compare(lambda: made, [x], [OLD, NEW]).verdict


def test_calls_in_steps_that_are_not_compared_are_said() -> None:
    x = zero()
    with subgrad.audit(compare=(OLD, NEW), every=1, compare_every=2) as audit:
        audit.step()
        made = loss(x)
        audit.step()
        made.backward()
        (x * x).sum().backward()
    assert [bool(effect.unseen) for effect in audit.effects] == [True, True]
    assert "clamp_min was not watched" in audit.verdicts[0]


def test_calls_in_other_threads_are_said() -> None:
    x, made = zero(), []
    with subgrad.audit(compare=(OLD, NEW)) as audit:
        thread = threading.Thread(target=lambda: made.append(loss(x * 1)))
        thread.start()
        thread.join()
        made[0].backward()
    assert "clamp_min was not watched: called before, in another thread" in audit.verdicts[0]


def test_random_numbers_are_not_drawn_again_and_that_is_said() -> None:
    x = torch.zeros(3, requires_grad=True)
    with subgrad.audit(compare=("left", "right")) as audit:
        (F.rrelu(x, training=True) * torch.tensor([1.0, 2.0, 3.0])).sum().backward()
    assert "rrelu_with_noise was not watched" in audit.verdicts[0]


@pytest.mark.parametrize("family", [name for name in FAMILIES if name not in WITHOUT_CHOICE])
def test_operators_with_kinks_are_known_by_the_names_of_their_nodes(family: str) -> None:
    x, y = (((torch.arange(64.0) * step % 7 - 3).reshape(8, 8)).requires_grad_() for step in (5, 3))
    out: Any = FAMILIES[family].call(x, y)
    outputs = [each for each in (out if isinstance(out, tuple) else (out,)) if each.requires_grad]
    assert len(unwatched(nodes(outputs), ())) == 1


# Gradients inside the program.


def penalty(x: Tensor) -> Tensor:
    (inner,) = torch.autograd.grad(x.clamp(min=0).sum(), x, create_graph=True)
    return ((inner + x) ** 2).sum()


def test_gradients_that_the_program_goes_on_with_are_said() -> None:
    """One version has 1 for the inner gradient, and 2 for that of the penalty; the other has 0 for both."""
    for version, slope in ((OLD, 2.0), (NEW, 0.0)):
        with subgrad.use(version):
            assert torch.autograd.grad(penalty(x := zero()), x)[0].tolist() == [slope]
    assert "the program goes on with gradients taken at" in watched(penalty).verdicts[0]
    x = zero()
    effect = subgrad.compare(lambda: penalty(x), [x], [OLD, NEW])
    assert "the program goes on with gradients taken at test_unseen.py" in effect.verdict


def test_gradients_without_kinks_that_differ_are_nothing_to_be_said() -> None:
    def smooth(x: Tensor) -> Tensor:
        (inner,) = torch.autograd.grad((x**3).sum(), x, create_graph=True)
        return (inner**2 + x.clamp(min=0)).sum()

    audit = watched(smooth)
    assert not audit.unseen
    assert audit.effects[0].differing == 1


# Functions with a backward of their own.


class Own(torch.autograd.Function):
    """Frees what it kept, as it may: nobody walks its graph twice."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.mask = x > 0
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx: Any, cotangent: Tensor) -> Tensor:  # type: ignore[override]
        mask, ctx.mask = ctx.mask, None
        return cotangent * mask + torch.rand(1).item()


def test_functions_with_their_own_backward_are_named_and_left_as_they_are() -> None:
    def run() -> tuple[list[float], Tensor]:
        torch.manual_seed(0)
        x = torch.tensor([0.0, 1.0, 2.0], requires_grad=True)
        (Own.apply(x).clamp(max=1) * torch.tensor([1.0, 2.0, 3.0])).sum().backward()  # type: ignore[no-untyped-call]
        return x.grad.tolist(), torch.get_rng_state()  # type: ignore[union-attr]

    plain = run()
    with subgrad.audit(compare=(OLD, NEW)) as audit:
        found = run()
    assert found[0] == plain[0]
    assert torch.equal(found[1], plain[1])
    assert audit.notes == ("Own has a backward of its own: kinks inside it are not counted",)
    assert not audit.unseen
    assert len(audit.effects) == 1


# As data.


def test_older_files_are_read_and_merged() -> None:
    audit = watched(lambda x: loss(x) + penalty(x))
    given = json.loads(audit.to_json())
    del given["unseen"], given["compared"]
    for effect in given["effects"]:
        del effect["unseen"]
    older = Audit.from_json(json.dumps(given))
    assert (older.unseen, older.compared, older.effects[0].unseen) == ((), (), ())
    merged = Audit.merge([older, audit])
    assert merged.unseen == audit.unseen
    assert isinstance(merged.effects[0], Effect)
    assert audit.unseen[0] in merged.verdicts[0]


def test_what_was_to_be_compared_and_was_not_is_said() -> None:
    with subgrad.audit(compare=(OLD, NEW, "mean")) as audit:
        torch.relu(zero())
    assert audit.verdicts == (
        f"No gradients were compared under {OLD} and {NEW}.",
        f"No gradients were compared under {OLD} and mean.",
    )


# Operators on lists of tensors.

LISTS: dict[str, Callable[[Tensor], Tensor]] = {
    "clamp_min": lambda x: torch._foreach_clamp_min([x], 0.0)[0],  # pyright: ignore[reportPrivateImportUsage]
    "clamp_max": lambda x: torch._foreach_clamp_max([x], [x * 0])[0],  # pyright: ignore[reportPrivateImportUsage]
    "maximum": lambda x: torch._foreach_maximum([x], [0.0])[0],  # pyright: ignore[reportPrivateImportUsage]
    "abs": lambda x: torch._foreach_abs([x])[0],  # pyright: ignore[reportPrivateImportUsage]
    "max": lambda x: torch._foreach_max([x])[0],  # pyright: ignore[reportPrivateImportUsage]
}


@pytest.mark.parametrize("operator", LISTS)
def test_what_works_on_lists_is_said_not_to_be_seen(operator: str) -> None:
    program: Callable[[Tensor], Tensor] = lambda x: LISTS[operator](x).sum()  # noqa: E731
    said = f"torch._foreach_{operator} was not watched"
    for audit in (watched(program), watched(program, compare=())):
        assert len(audit.unseen) == 1
        assert said in audit.unseen[0]
        assert said in str(audit)
    assert "same gradients" not in watched(program).verdicts[0]
    effect = subgrad.compare(lambda: program(x), [x := zero()], [OLD, NEW])
    assert isinstance(effect, Effect)
    assert said in effect.unseen[0]


def test_what_has_no_kink_needs_no_word_and_where_a_convention_is_in_force_lists_are_seen() -> None:
    assert not watched(lambda x: torch._foreach_exp([x])[0].sum()).unseen  # pyright: ignore[reportPrivateImportUsage]
    with subgrad.use(OLD):
        audit = watched(lambda x: LISTS["clamp_min"](x).sum())
    assert (audit.hits, audit.unseen) == (1, ())
    assert audit.effects[0].differing == 1
