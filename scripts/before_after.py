"""PyTorch's operator database in one process, before subgrad is used and after: torch must do the same.

    python scripts/before_after.py                    # all entries, six samples each, everything but torch.compile
    python scripts/before_after.py --samples 2 --compile
    python scripts/before_after.py --quick            # the smallest cases of each overload with a kernel, as the tests
    python scripts/before_after.py clamp abs          # these entries

Every case is called in plain torch in many ways (forward, `out=`, gradients, `torch.func`, fake tensors, traced,
compiled), and errors count as outcomes. Then comes a `subgrad.grad`, an `audit`, a `use`; then every case once more.
Exits with an error if anything came out otherwise.
"""

from __future__ import annotations

import argparse
import gc
import logging
import sys
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "database"))

from by_hand import calls
from met import with_kernels
from unchanged import DTYPES, entries, forms_called, is_error, outcomes, samples

import subgrad

QUICK = (torch.float32, torch.float64, torch.complex64)
SLOW = ("fake, Python's dispatcher", "make_fx", "AOTAutograd", "aot_eager")
COMPILED = ("div.Tensor_mode", "div_.Tensor_mode", "pow_", "norm", "copysign.Scalar", "relu_", "quantile", "lstm.input")
Found = dict[tuple[str, str], str]  # outcomes by case and way


def whole_programs() -> None:
    subgrad.grad(lambda x: (x.abs() + torch.relu(x)).sum())(torch.zeros(2))


def audits() -> None:
    x = torch.zeros(2, requires_grad=True)
    with subgrad.audit(compare=["left", "right"], every=1, compare_every=1):
        x.clamp(0, 1).sum().backward()


def conventions() -> None:
    """Two that differ from torch in other operators: the second one has every kernel registered."""
    x = torch.zeros(2, requires_grad=True)
    for name in ("min-norm", "mean"):
        with subgrad.use(name):
            torch.relu(x).sum().backward()


STAGES: dict[str, Callable[[], None]] = {"grad": whole_programs, "audit": audits, "use": conventions}


def every_case(names: Iterable[str], count: int) -> list[Any]:
    """All but what returns memory as it finds it."""
    written = [name for name in names if "empty" not in name]
    return [case for name in written for dtype in DTYPES for case in samples(name, dtype, count)]


def one_for_every_kernel() -> list[Any]:
    """For every overload with a kernel the smallest cases that call it, one of each type; and what none calls."""
    smallest: dict[tuple[str, torch.dtype], Any] = {}
    for name in entries():
        for dtype in QUICK:
            for case in samples(name, dtype, 6):
                for form in forms_called(case):
                    known = smallest.get((form, dtype))
                    if known is None or _size(case) < _size(known):
                        smallest[form, dtype] = case
    return [*{str(case): case for case in smallest.values()}.values(), *calls()]


def _size(case: Any) -> tuple[bool, int]:
    sizes = [each.numel() for each in case.tensors]
    return not case.inputs or 0 in sizes, sum(sizes)


def uncalled(cases: Iterable[Any]) -> list[str]:
    """The overloads with kernels that no case calls."""
    called = set().union(*map(forms_called, cases))
    return [form for form in with_kernels() if form not in called]


def found_in(cases: Iterable[Any], without: Callable[[Any], tuple[str, ...]]) -> Found:
    return {
        (str(case), way): outcome for case in cases for way, outcome in outcomes(case, without=without(case)).items()
    }


def differences(before: Found, after: Found) -> list[str]:
    return [
        f"{case}: {way}: {_in_short(outcome)} before, {_in_short(after[case, way])} after"
        for (case, way), outcome in before.items()
        if outcome != after[case, way]
    ]


def _in_short(outcome: str) -> str:
    return outcome if is_error(outcome) else f"result {outcome[:8]}"


def steady(cases: Iterable[Any], without: Callable[[Any], tuple[str, ...]]) -> Found:
    """What comes out before, but for what varies by itself, as results of BLAS that depend on where memory lies."""
    before, again = found_in(cases, without), found_in(cases, lambda case: SLOW)
    varying = {key for key, outcome in again.items() if before.get(key, outcome) != outcome}
    print(f"{len(varying)} outcomes vary in torch itself")
    return {key: outcome for key, outcome in before.items() if key not in varying}


def left_out(case: Any, quick: bool, compiles: bool) -> tuple[str, ...]:
    """The ways that take too long, and say no more, for all of the cases."""
    if compiles or not quick:
        return () if compiles else ("aot_eager",)
    if case.inputs and case.inputs[0].dtype is torch.float32:
        return () if any(str(case).startswith(name) for name in COMPILED) else ("aot_eager",)
    return SLOW


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("entries", nargs="*", help="names in the database; all if none are given")
    parser.add_argument("--samples", type=int, default=6, help="of each entry and type")
    parser.add_argument("--compile", action="store_true", help="torch.compile as well, a sixth of a second a case")
    parser.add_argument("--quick", action="store_true", help="a few cases, and all that is done in between at once")
    asked = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    started = time.monotonic()

    cases = one_for_every_kernel() if asked.quick else every_case(asked.entries or entries(), asked.samples)
    without = partial(left_out, quick=asked.quick, compiles=asked.compile)
    if not asked.entries:
        print(f"no case calls: {', '.join(uncalled(cases))}")
    gc.freeze()  # the database and the cases stay: they are not looked through again and again
    before, wrong = steady(cases, without), 0
    for stages in [list(STAGES)] if asked.quick else [[stage] for stage in STAGES]:
        for stage in stages:
            STAGES[stage]()
        found = differences(before, found_in(cases, without))
        wrong += len(found)
        print(f"after {', '.join(stages)}: {len(before):,} outcomes of {len(cases):,} cases, {len(found):,} differ")
        for line in found:
            print(f"  {line}")
    for way, number in Counter(way for _, way in before).items():
        errors = sum(is_error(outcome) for (_, each), outcome in before.items() if each == way)
        print(f"{number:8,} {way}, {errors:,} of them errors")
    print(f"{(time.monotonic() - started) / 60:.1f} minutes")
    return int(bool(wrong))


if __name__ == "__main__":
    sys.exit(main())
