"""Many small programs at their kinks and what the library says of each: to see whether a change of a rule shows.

``record()`` runs all of them; ``changes(before)`` runs them again and names what differs, and what of that is wrong.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

import torch
import torch.nn.functional as F

import subgrad
from clarke.known import CASES
from clarke.mixed import judge
from clarke.mixed.programs import OPERATIONS, Program, Step, numbered
from clarke.mixed.table import PIECEWISE
from clarke.nearby import doubt_of_slope, doubts_of_gradient, jumps

POINTS = ((0.0, 0.0, 0.0, 0.0), (1.0, -1.0, 1.0, 0.5), (2.0, 2.0, 0.0, -1.0))
GIVEN = ({"c": 0.0, "low": 0.0, "high": 1.0, "a": 0.5}, {"c": 1.0, "low": -1.0, "high": 1.0, "a": 2.0})
TURNED = ((0.0, 0.0, 0.0, 1.0), (2.0, 0.0, 0.0, 0.0), (0.0, -1.0, 0.0, 0.0), (0.0, 0.0, 0.5, 0.0))
RANDOM = range(100)  # random programs besides
Said = list[Any]  # "ok" and numbers, "refused" and why, or "died" and of what


# What the operations of random programs do not write: reductions, weights, several rows, dimensions.
LINES = (
    "(x * torch.bucketize(x, boundaries=x.new_tensor([0.5])).to(x)).sum() + x.abs().sum()",
    "torch.histogram(x, bins=3, range=(-9.0, 9.0)).hist[0] + x.abs().sum()",
    "(x[:3].scatter_reduce(0, torch.tensor([0, 1, 0]), x[3:], 'prod') * w[:3]).sum() + x.abs().sum()",
    "(x.view(3, 2).scatter_reduce(1, torch.tensor([[0, 0], [1, 0]]), x.view(3, 2)[:2], 'mean')"
    " * w[:6].view(3, 2)).sum() + x.abs().sum()",
    "(F.embedding_bag(torch.arange(3), x.view(3, 2), torch.tensor([0, 2]), mode='mean').abs() * w[:2]).sum()",
    "(F.embedding_bag(torch.arange(3), x.view(3, 2), torch.tensor([0, 2]), mode='sum').abs() * w[:2]).sum()",
    "F.multi_margin_loss(x.view(2, 3), torch.tensor([0, 1]))",
    "F.multi_margin_loss(x.view(2, 3), torch.tensor([2, 1]), reduction='sum')",
    "F.multi_margin_loss(x.view(2, 3), torch.tensor([2, 1]), margin=0.0, weight=x.new_tensor([1., 2., 4.]))",
    "F.multi_margin_loss(x.view(2, 3), torch.tensor([2, 1]), p=2)",
    "F.multilabel_margin_loss(x.view(2, 3), torch.tensor([[0, 2, -1], [1, -1, 0]]))",
    "F.multilabel_margin_loss(x.view(2, 3), torch.tensor([[0, 2, -1], [1, -1, 0]]), reduction='sum')",
    "F.smooth_l1_loss(x, x.flip(0), beta=0.0)",
    "F.smooth_l1_loss(x, x.flip(0), reduction='sum', beta=1.0)",
    "F.triplet_margin_loss(x[:2], x[2:4], x[4:], eps=0.0)",
    "(F.max_pool2d(x.view(1, 1, 2, 3), 2, 1, padding=1) * w[:12].view(1, 1, 3, 4)).sum()",
    "(F.max_pool2d(x.view(1, 1, 2, 3), (2, 2), dilation=(1, 2)) * 2).sum()",
    "(F.adaptive_max_pool2d(x.view(1, 2, 1, 3), (1, 2)) * w[:4].view(1, 2, 1, 2)).sum()",
    "(x.view(2, 3).sort(1, descending=True).values * w[:6].view(2, 3)).sum()",
    "(x.view(2, 3).topk(2, 0).values * w[:6].view(2, 3)).sum()",
    "(x.view(2, 3).kthvalue(2, 1).values * w[:2]).sum()",
    "(x.view(2, 3).median(0).values * w[:3]).sum()",
    "(x.view(2, 3).cummax(0).values * w[:6].view(2, 3)).sum()",
    "(x.view(2, 3).amax((0, 1)) * 2 - x.view(2, 3).amin(1)[0])",
    "(x.view(2, 3).std(1) * w[:2]).sum()",
    "(x.view(2, 3).norm(dim=0) * w[:3]).sum()",
    "(torch.linalg.vector_norm(x.view(2, 3), ord=1, dim=1) * w[:2]).sum()",
    "(torch.linalg.vector_norm(x.view(2, 3), ord=3, dim=0) * w[:3]).sum()",
    "(torch.linalg.vector_norm(x.view(2, 3), ord=inf, dim=(0, 1)))",
    "(torch.linalg.vector_norm(x.view(2, 3), ord=-inf, dim=1) * w[:2]).sum()",
    "(torch.cdist(x.view(3, 2), x.view(3, 2).flip(0) * 2, p=2.0) * w[:9].view(3, 3)).sum()",
    "(F.pdist(x.view(3, 2), p=1.0) * w[:3]).sum()",
    "(torch.renorm(x.view(2, 3), 1, 1, 0.75) * w[:6].view(2, 3)).sum()",
    "(F.batch_norm(x.view(3, 2), None, None, w[:2], w[2:4], True).relu() * w[:6].view(3, 2)).sum()",
    "(F.layer_norm(x.view(2, 3), (3,), w[:3]).abs() * w[:6].view(2, 3)).sum()",
    "(F.instance_norm(x.view(1, 2, 3), weight=w[:2]).relu() * w[:6].view(1, 2, 3)).sum()",
    "(F.embedding(torch.tensor([0, 2, 0]), x.view(3, 2), padding_idx=2).relu() * w[:6].view(3, 2)).sum()",
    "(F.embedding_bag(torch.arange(3), x.view(3, 2), torch.tensor([0, 2]), mode='max') * w[:4].view(2, 2)).sum()",
    "(x.new_zeros(3).scatter_reduce(0, torch.tensor([0, 0, 1, 1, 1, 0]), x, 'amax') * w[:3]).sum()",
    "(x.new_ones(2).scatter_reduce(0, torch.tensor([0, 0, 1, 1, 1, 0]), x, 'amin', include_self=False) * w[:2]).sum()",
    "(torch.segment_reduce(x, 'min', lengths=torch.tensor([2, 4]), initial=1.0) * w[:2]).sum()",
    "(torch.quantile(x.view(2, 3), x.new_tensor([0.25, 1.0]), dim=1) * w[:4].view(2, 2)).sum()",
    "(torch.linalg.svdvals(x.view(2, 3)) * w[:2]).sum()",
    "(torch.linalg.eigvalsh(x.view(2, 3).mT @ x.view(2, 3)) * w[:3]).sum()",
    "F.grid_sample(w.view(1, 1, 4, 4), x.view(1, 3, 1, 2), align_corners=False).sum()",
    "F.grid_sample(w.view(1, 1, 4, 4), x.view(1, 3, 1, 2), padding_mode='reflection', align_corners=True).sum()",
    "(F.prelu(x.view(1, 2, 3), x.new_tensor([0.5, 2.0])) * w[:6].view(1, 2, 3)).sum()",
    "(torch.minimum(x[:3], x[3:]) * torch.clamp(x[3:], x[:3], 2 * x[:3])).sum()",
    "(torch.clamp(x[:3], max=x[3:]) * w[:3]).sum()",
    "F.scaled_dot_product_attention(x.view(1, 3, 2).relu(), x.view(1, 3, 2), x.view(1, 3, 2), is_causal=True).sum()",
    # What is only run in another way, beside a kink.
    "(torch.nn.utils.rnn.pack_padded_sequence(x.view(3, 2).relu(), torch.tensor([3, 2])).data * w[:5]).sum()",
    "(F.layer_norm(x.view(2, 3), (3,), None, x[:3].abs()) * w[:6].view(2, 3)).sum()",
    "(F.batch_norm(x.view(3, 2), None, None, x[2:4].abs(), None, True) * w[:6].view(3, 2)).sum()",
    "(F.batch_norm(x.view(3, 2), None, None, None, x[:2].abs(), True) * w[:6].view(3, 2)).sum()",
    "(torch._foreach_addcmul([x], [x.abs()], [x + 1], [2.0])[0] * w[:6]).sum()",
    "(w[:6] / (x.abs() + torch.as_tensor(1.0))).sum()",
    "(torch.copysign(w[:6], x) * x).sum()",
    "(x.float().double() * w[:6]).abs().sum()",
    # Sums, means and products of groups.
    "(torch.segment_reduce(x.abs(), 'prod', lengths=torch.tensor([2, 4])) * w[:2]).sum()",
    "(torch.segment_reduce(x.abs(), 'mean', lengths=torch.tensor([2, 4])) * w[:2]).sum()",
    "(x[:3].abs().index_reduce(0, torch.tensor([0, 1, 0]), x[3:], 'mean') * w[:3]).sum()",
    "x[0].abs().index_reduce(0, torch.tensor([0]), x[1], 'mean') + x[2].abs()",
    # Without dimensions, with all of them, and with windows that are others in every plane.
    "x[0].amax(0) * 2 + x[1:].abs().sum()",
    "torch.linalg.vector_norm(x, inf, dim=())",
    "(F.fractional_max_pool2d(torch.stack([x, x.flip(0)], 1).view(1, 6, 2, 1), (2, 1), (1, 1),"
    " _random_samples=x.new_zeros(1, 6, 2)).flatten() * w[:6]).sum()",
    # Where something jumps.
    "(torch.arctan(torch.complex(x[:3], x[3:] + 2)).real * x[:3] * w[:3]).sum()",
    "torch.arctan(torch.complex(x[:3], x[3:] - 1)).real.sum()",
    "F.grid_sample(w.view(1, 1, 4, 4), x.view(1, 3, 1, 2), mode='nearest', align_corners=True).sum()",
    "torch.histogram(x, x.new_tensor([0.0, 0.6, 1.0])).hist[0] + x.sum()",
    "torch.histogram(x[:3], 2).hist[0] + x.sum()",
    # Vectors of values that repeat, or vanish.
    "(lambda l, q: (q * l.exp().unsqueeze(-2) @ q.mT * w[:9].view(3, 3)).sum())"
    "(*torch.linalg.eigh(torch.diag_embed(x.view(2, 3))))",
    "(lambda u, s, v: (u * s.sin() @ v * w[:6].view(2, 3)).sum())"
    "(*torch.linalg.svd(x.view(2, 3), full_matrices=False))",
    "torch.linalg.eigvalsh(torch.stack([torch.eye(2) * x[0], torch.diag(x[1:3] + 3 * w[:2])])).sum(-1).abs().sum()",
)
# Points that lie near kinks are given with a tolerance.
NEAR_LINES = (("(F.hardsigmoid(x) * w[:6]).sum()", (3.0, -3.0, 3.0, -3.0, 0.0, 3.0)),)
LINE_POINTS = ((0.0,) * 6, (1.0, -1.0, 1.0, 0.0, 0.0, 2.0), (0.5, 0.5, -0.5, 1.0, 1.0, 0.0))
STRIDE = 47
NEAR, TOLERANCE = 1e-7, 1e-5  # how far tied quantities are apart where a tolerance is given


@dataclass(frozen=True)
class Line:
    """One line of code as a program, which only its values in float64 tell the truth of."""

    code: str
    point: tuple[float, ...]

    def function(self, x: torch.Tensor) -> torch.Tensor:
        w = (torch.arange(1, 17, dtype=x.dtype) * 0.7).sin().round(decimals=2)
        return eval(self.code, {"torch": torch, "F": F, "inf": inf, "x": x, "w": w})

    def value(self, point: Sequence[float]) -> float:
        with torch.no_grad():
            return float(self.function(torch.tensor(point, dtype=torch.float64)))


@dataclass(frozen=True)
class Probe:
    """A program at a point; ``program`` says what is true there, and with ``tol`` the point is moved a little."""

    name: str
    function: Any
    point: torch.Tensor
    program: Program | Line | None
    direction: tuple[int, ...]
    tol: float = 0.0

    def said(self) -> tuple[Said, Said, Said]:
        """Of the element, of the derivative in a direction, and of the gradient once the program is known."""
        return _said(self._element), _said(self._derivative), _said(self._known)

    @cached_property
    def found(self) -> subgrad.clarke.Element:
        return subgrad.element(self.function, seed=len(self.name), tol=self.tol)(self.point)

    @cached_property
    def value(self) -> Callable[[Sequence[float]], float]:
        """What is true, kept for each point: several gradients are held against the same values."""
        assert self.program is not None
        of_program, known = self.program.value, dict[tuple[float, ...], float]()

        def value(point: Sequence[float]) -> float:
            at = tuple(point)
            if at not in known:
                known[at] = of_program(point)
            return known[at]

        return value

    def _element(self) -> list[float]:
        found = self.found
        return [*found.gradient.flatten().tolist(), found.slope, found.product, float(found.extrapolated)]

    def _known(self) -> list[float]:
        gradient = subgrad.grad(self.function, seed=len(self.name), tol=self.tol)
        gradient(self.point)
        return gradient(self.point).flatten().tolist()

    def _derivative(self) -> list[float]:
        ahead = torch.tensor(self.direction, dtype=self.point.dtype).reshape(self.point.shape)
        return [subgrad.jvp(self.function, (self.point,), (ahead,), tol=self.tol)[1].item()]


def _said(work: Any) -> Said:
    try:
        with judge.limited(10):
            return ["ok", *work()]
    except subgrad.clarke.Refused as error:
        return ["refused", str(error)[:200]]
    except Exception as error:
        return ["died", f"{type(error).__name__}: {error}"[:200]]


def probes() -> Iterator[Probe]:
    directions = ((1, -2, 0, 1), (0, 1, 1, -1))
    for name in OPERATIONS:
        for number, program in enumerate(spellings(name)):
            direction = directions[number % 2][: len(program.point)]
            yield Probe(f"{name} {number}", program.function, program.tensor(), program, direction)
    for number in RANDOM:
        program, direction = numbered(5, number)
        yield Probe(f"random {number}", program.function, program.tensor(), program, direction)
    yield from _near()
    for code in LINES:
        for number, point in enumerate(LINE_POINTS):
            line = Line(code, point)
            yield Probe(f"{code} {number}", line.function, torch.tensor(point).double(), line, (1, -2, 0, 1, 1, -1))
    for case in CASES:
        yield Probe(f"case {case.name}", case.function, case.tensor(), None, (1,) * len(case.x))


def _near() -> Iterator[Probe]:
    """Piecewise affine programs whose ties are missed by a little, with a tolerance that takes them for ties."""
    for name in PIECEWISE:
        if name in ("square", "product"):
            continue
        for number, program in enumerate(spellings(name)):
            width = len(program.point)
            away = program.tensor() + NEAR * torch.tensor([1.0, -2.0, 3.0, -1.0][:width])
            yield Probe(f"{name} {number} near", program.function, away, program, (1, -2, 0, 1)[:width], TOLERANCE)
    for code, point in NEAR_LINES:
        line = Line(code, point)
        away = torch.tensor(point).double() + NEAR * torch.tensor([1.0, -2.0, 3.0, -1.0, 2.0, -3.0])
        yield Probe(f"{code} near", line.function, away, line, (1, -2, 0, 1, 1, -1), TOLERANCE)


def spellings(name: str) -> Iterator[Program]:
    """Every way to write an operation, at points where it ties; other arguments are turned, so that they move apart."""
    operation = OPERATIONS[name]
    width = min(max(operation.narrowest, 3), operation.widest)
    turn = [list(line[:width]) for line in TURNED[:width]]
    turned = [Step("affine", 0, (at,), (("W", turn), ("b", [0.0] * width))) for at in range(operation.arity - 1)]
    for way in range(len(operation.ways)):
        for at in range(len(POINTS) if way < 6 else 1):
            kept = _parameters(operation.parameters, width, GIVEN[(way + at) % 2])
            step = Step(name, way, tuple(range(operation.arity)), kept)
            point = POINTS[(way + at) % 3][:width]
            if max(map(abs, point)) > operation.largest:
                continue
            program = Program(point, (*turned, step), ())
            size = len(program.exact_vectors(point)[-1])
            yield Program(point, program.steps, ((operation.arity, (1.0, -2.0, 0.5, 3.0)[:size]),))


def _parameters(names: tuple[str, ...], width: int, given: dict[str, float]) -> tuple[tuple[str, Any], ...]:
    square = [[1.0, -1.0, 2.0, 0.5][:width], [0.0, 1.0, 1.0, -1.0][:width], [2.0, 0.0, -1.0, 1.0][:width]]
    square = [*square, [1.0] * width][:width]
    more = {"k": 2, "p": 2.0, "q": -1.0, "t": [1.0, 2.0, 4.0], "W": square, "b": [0.0] * width, "fraction": 0.25}
    everything = {**given, **more}
    return tuple((name, everything[name]) for name in names)


def record() -> dict[str, tuple[Said, Said, Said]]:
    _prepare()
    return {probe.name: probe.said() for probe in probes()}


def changes(before: dict[str, Any]) -> dict[str, list[str]]:
    """Probes by what became of them: "wrong", "refused", "died", or "other" where a result differs and is right.

    What is right only because the certificate has refused the rule, so that it is extrapolated, counts as refused. One
    that is not "other" is enough. Programs are taken in an order in which neighbours have little in common.
    """
    _prepare()
    found: dict[str, list[str]] = {"wrong": [], "refused": [], "died": [], "other": []}
    every = list(probes())
    for probe in (each for start in range(STRIDE) for each in every[start::STRIDE]):
        if found["wrong"] or found["refused"] or found["died"]:
            return found
        for which, (was, now) in enumerate(zip(before[probe.name], probe.said(), strict=True)):
            if not _same(was, now):
                found[_kind(probe, which, was, now)].append(
                    f"{probe.name}{('', ' jvp', ' known')[which]}: {now[:4]}, before {was[:4]}"
                )
    return found


def _prepare() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


def _same(was: Said, now: Said) -> bool:
    if was[0] != now[0] or len(was) != len(now):
        return False
    if now[0] != "ok":
        return True
    return all(abs(a - b) <= 1e-9 * (1 + abs(a)) or (a != a and b != b) for a, b in zip(was[1:], now[1:], strict=True))


def _kind(probe: Probe, which: int, was: Said, now: Said) -> str:
    if now[0] != "ok":
        return now[0] if was[0] == "ok" or now[0] == "died" else "other"
    if is_wrong(probe, which, now):
        return "wrong"
    return "refused" if which == 0 and was[0] == "ok" and now[-1] > was[-1] else "other"


def is_wrong(probe: Probe, which: int, now: Said) -> bool:
    """Whether what was said, which is no refusal, is sharply contradicted by the values."""
    if probe.program is None:
        return which == 1 or _case_is_missed(probe)
    value, x = probe.value, list(probe.program.point)
    if which == 1:
        v = [float(each) for each in probe.direction[: len(x)]]
        doubts = [doubt_of_slope(value, x, v, now[1])]
    else:
        found = probe.found
        v = found.direction.flatten().tolist()
        gradient = found.gradient.flatten().tolist() if which == 0 else now[1:]
        slope = found.slope if which == 0 else sum(a * b for a, b in zip(gradient, v, strict=True))
        doubts = [doubt_of_slope(value, x, v, slope), *doubts_of_gradient(value, x, v, gradient)]
    return any(each is not None and each.is_sharp for each in doubts) or jumps(value, x, [v])


def _case_is_missed(probe: Probe) -> bool:
    (case,) = (each for each in CASES if f"case {each.name}" == probe.name)
    return not case.distance(subgrad.grad(case.function, seed=len(probe.name))(case.tensor())) < 1e-9
