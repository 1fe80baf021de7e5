"""What passes without us must pass under a convention: forward values to the bit, and torch's own gradient checks."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Any

import torch
from entries import Case, seed
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck
from torch.utils._pytree import tree_leaves

import subgrad

CONVENTIONS = ("min-norm", "torch-2.13", "mean")

# Everything that a check does not switch on is off.
FUNCTIONS = {
    "first": gradcheck,
    "second": gradgradcheck,
    "second, strided": partial(gradgradcheck, gen_non_contig_grad_outputs=True),
}
OF_GRADGRADCHECK = ("check_rev_over_rev", "check_undefined_grad", "check_batched_grad", "check_fwd_over_rev")
SWITCHES = {
    "first": (
        "check_backward_ad",
        "check_undefined_grad",
        "check_batched_grad",
        "check_forward_ad",
        "check_batched_forward_grad",
    ),
    "second": OF_GRADGRADCHECK,
    "second, strided": OF_GRADGRADCHECK,
}


@dataclass(frozen=True)
class Check:
    """One of torch's gradient checks: the order of derivative, and what is switched on."""

    name: str
    order: str
    on: tuple[str, ...]


CHECKS = (
    Check("gradcheck", "first", ("check_backward_ad", "check_undefined_grad")),
    Check("batched gradients", "first", ("check_backward_ad", "check_batched_grad")),
    Check("forward mode", "first", ("check_forward_ad", "check_undefined_grad")),
    Check("batched forward mode", "first", ("check_forward_ad", "check_batched_forward_grad")),
    Check("gradgradcheck", "second", ("check_rev_over_rev", "check_undefined_grad")),
    Check("batched gradgradcheck", "second", ("check_rev_over_rev", "check_batched_grad")),
    Check("forward over reverse", "second", ("check_fwd_over_rev",)),
    Check("gradgradcheck, strided", "second, strided", ("check_rev_over_rev", "check_undefined_grad")),
)
NAMES = ("forward", *(check.name for check in CHECKS))


class Verdict(Enum):
    PASSED = "passed"
    ON_A_KINK = "on a kink"  # the element is not the central difference: a mismatch there is what was asked for
    REGRESSION = "regression"
    NOT_BY_TORCH = "torch does not pass"


@dataclass(frozen=True)
class Outcome:
    """How one check of one case came out under one convention, or without any."""

    case: str
    check: str
    convention: str
    verdict: Verdict
    reason: str = ""

    def __str__(self) -> str:
        return f"{self.case}: {self.check} under {self.convention}: {self.verdict.value}. {self.reason}"


@dataclass(frozen=True)
class Fingerprint:
    """What a call returns, and what it leaves of its inputs, as digests."""

    results: str
    inputs: str


@dataclass(frozen=True)
class Baseline:
    """What a case does without us.

    Attributes:
        forward: the fingerprint of what the call returns and leaves behind; None where torch refuses it.
        passing: the gradient checks that pass.
        failing: those that do not.
        hits: the kinks that the case lies on exactly.
    """

    case: str
    forward: Fingerprint | None
    passing: tuple[Check, ...] = ()
    failing: tuple[Check, ...] = ()
    hits: frozenset[str] = frozenset()

    def outcomes(self) -> Iterator[Outcome]:
        """What torch itself does not pass, which is counted and not asked of us."""
        names = [check.name for check in self.failing]
        for name in names if self.forward is not None else ["forward", *names]:
            yield Outcome(self.case, name, "torch", Verdict.NOT_BY_TORCH)


def baseline(case: Case, checks: Collection[Check] = ()) -> Baseline:
    """Run a case without us; gradient checks only if asked for."""
    forward = fingerprint(case)
    if isinstance(forward, Exception):
        return Baseline(str(case), None)
    if not checks or not case.inputs:
        return Baseline(str(case), forward)
    failed = failures(case, checks)
    passing = tuple(check for check in checks if check not in failed)
    return Baseline(str(case), forward, passing, tuple(failed), frozenset(case.met().hits))


Context = Callable[[], AbstractContextManager[Any]]


def outcomes(case: Case, native: Baseline, convention: str, context: Context | None = None) -> Iterator[Outcome]:
    """Run what passes without us under a convention; ``context`` replaces it, to see planted mistakes found."""
    if native.forward is None:
        return
    with (context or partial(subgrad.use, convention))():
        found = fingerprint(case)
        failed = failures(case, native.passing)
        # At a kink only the numbers may differ. Everything else must hold: no error, no nan, batched as one by one.
        unexcused = failures(case, failed, atol=1e100) if failed and native.hits else failed
    outcome = partial(Outcome, str(case), convention=convention)
    yield _of_forward(case, native.forward, found, outcome)
    for check in native.passing:
        if check not in failed:
            yield outcome(check.name, verdict=Verdict.PASSED)
        elif check not in unexcused:
            yield outcome(check.name, verdict=Verdict.ON_A_KINK, reason=", ".join(sorted(native.hits)))
        else:
            yield outcome(check.name, verdict=Verdict.REGRESSION, reason=_in_short(unexcused[check]))


def _of_forward(case: Case, native: Fingerprint, found: Fingerprint | Exception, outcome: Any) -> Outcome:
    if found == native:
        return outcome("forward", verdict=Verdict.PASSED)
    if isinstance(found, Exception):
        return outcome("forward", verdict=Verdict.REGRESSION, reason=_in_short(found))
    if found.inputs != native.inputs:
        return outcome("forward", verdict=Verdict.REGRESSION, reason="the inputs have changed")
    if _varies(case):
        return outcome("forward", verdict=Verdict.NOT_BY_TORCH, reason="torch's own results vary")
    return outcome("forward", verdict=Verdict.REGRESSION, reason="other bits or strides")


def _varies(case: Case) -> bool:
    """Whether torch's own bits depend on where in memory it works, as those of BLAS do (linalg.lstsq)."""
    kept = []
    for size in range(1, 200):
        kept.append(torch.empty(3 * size))
        if fingerprint(case) != fingerprint(case):
            return True
    return False


def _in_short(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:200]


def failures(case: Case, checks: Iterable[Check], **options: float) -> dict[Check, Exception]:
    """Which checks a case fails, and how. Together first, which is faster; one by one where that fails."""
    found: dict[Check, Exception] = {}
    for order in FUNCTIONS:
        group = [check for check in checks if check.order == order]
        if group and _failure(case, order, {switch for check in group for switch in check.on}, **options):
            alone = {check: _failure(case, order, check.on, **options) for check in group}
            found |= {check: error for check, error in alone.items() if error}
    return found


def _failure(case: Case, order: str, on: Collection[str], **options: float) -> Exception | None:
    info = case.info
    switches = {name: name in on for name in SWITCHES[order]}
    # As torch's own suite: fast unless the entry forbids it.
    options |= {"nondet_tol": info.gradcheck_nondet_tol, "fast_mode": info.gradcheck_fast_mode is not False}
    try:
        seed()
        FUNCTIONS[order](case.function, case.inputs, check_grad_dtypes=True, **switches, **options)
    except Exception as error:
        return error
    return None


def fingerprint(case: Case) -> Fingerprint | Exception:
    """Everything a call returns, and its inputs afterwards: type, shape, strides and every bit, nan included."""
    try:
        seed()
        results = tree_leaves(case.forward())
    except Exception as error:
        return error
    return Fingerprint(digest(results), digest(case.tensors))


def digest(leaves: Iterable[Any]) -> str:
    digest = hashlib.blake2b()
    for leaf in leaves:
        for part in _parts(leaf):
            digest.update(part)
    return digest.hexdigest()


def _parts(leaf: Any) -> Iterator[bytes]:
    if not isinstance(leaf, Tensor):
        yield repr(leaf).encode()
        return
    yield repr((leaf.dtype, leaf.shape, leaf.layout, leaf.requires_grad, leaf.is_conj(), leaf.is_neg())).encode()
    if leaf.layout is torch.sparse_coo:
        yield from _parts(leaf.detach()._indices())
        yield from _parts(leaf.detach()._values())
        return
    if leaf.layout is not torch.strided:
        leaf = leaf.to_dense()
    yield repr(leaf.stride()).encode()
    plain = leaf.detach().resolve_conj().resolve_neg().contiguous().reshape(-1)
    yield plain.view(torch.uint8).numpy().tobytes()


def counted(found: Iterable[Outcome]) -> dict[str, int]:
    """How many outcomes of each kind, by ``"check, convention, verdict"``."""
    return dict(Counter(f"{each.check}|{each.convention}|{each.verdict.value}" for each in found))
