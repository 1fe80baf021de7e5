"""Places where torch breaks its documented rule as issue reports, each with a reproducer in plain torch."""

from __future__ import annotations

import contextlib
import io
import math
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from subgrad.apply.use import use
from subgrad.kinks.joint_samples import affected
from subgrad.kinks.overloads import argument_names, qualified, with_defaults
from subgrad.survey.convexity import CONCAVE, CONVEX, FIRST_ORDER, SMOOTH, shape
from subgrad.survey.finding import Finding
from subgrad.survey.measure import NEAR, Place

NOTES = "https://docs.pytorch.org/docs/stable/notes/autograd.html#gradients-for-non-differentiable-functions"
# The rules of the notes that decide here, word for word.
RULES = {
    1: "If the function is differentiable and thus a gradient exists at the current point, use it.",
    2: "If the function is convex (at least locally), use the sub-gradient of minimum norm (it is the steepest descent "
    "direction).",
    3: "If the function is concave (at least locally), use the super-gradient of minimum norm (consider `-f(x)` and "
    "apply the previous point).",
    4: "If the function is defined, define the gradient at the current point by continuity (note that `inf` is "
    "possible here, for example for `sqrt(0)`). If multiple values are possible, pick one arbitrarily.",
}
DECIDES = {SMOOTH: 1, CONVEX: 2, CONCAVE: 3}

# How users call an overload, in the overload's own names. Tensors are given by position, all else by keyword where it
# is not the default; ``mode=interpolation_mode`` renames. What is not here is called as torch.ops.aten:
# smooth_l1_loss too, since F.smooth_l1_loss with beta 0 is l1_loss, and right.
SPELLINGS = {
    "leaky_relu": "F.leaky_relu(self, negative_slope)",
    "_prelu_kernel": "F.prelu(self, weight)",
    "elu": "F.elu(self, alpha)",
    "selu": "F.selu(self)",
    "softshrink": "F.softshrink(self, lambd)",
    "logit": "torch.logit(self, eps)",
    "clamp": "torch.clamp(self, min, max)",
    "clamp_min": "torch.clamp(self, min)",
    "clamp_max": "torch.clamp(self, max)",
    "clamp.Tensor": "torch.clamp(self, min=min, max=max)",
    "clamp_min.Tensor": "torch.clamp_min(self, min)",
    "clamp_max.Tensor": "torch.clamp_max(self, max)",
    "fmax": "torch.fmax(self, other)",
    "fmin": "torch.fmin(self, other)",
    "hypot": "torch.hypot(self, other)",
    "max.dim": "torch.max(self, dim, keepdim).values",
    "min.dim": "torch.min(self, dim, keepdim).values",
    "median.dim": "torch.median(self, dim, keepdim).values",
    "nanmedian.dim": "torch.nanmedian(self, dim, keepdim).values",
    "kthvalue": "torch.kthvalue(self, k, dim, keepdim).values",
    "sort": "torch.sort(self, dim, descending).values",
    "sort.stable": "torch.sort(self, stable, dim, descending).values",
    "topk": "torch.topk(self, k, dim, largest, sorted).values",
    "cummax": "torch.cummax(self, dim).values",
    "cummin": "torch.cummin(self, dim).values",
    "segment_reduce": "torch.segment_reduce(data, reduce, lengths=lengths)",
    "_embedding_bag": "F.embedding_bag(indices, weight, offsets, mode)",
    "max_pool2d_with_indices": "F.max_pool2d(self, kernel_size, stride, padding, dilation, ceil_mode)",
    "max_pool3d_with_indices": "F.max_pool3d(self, kernel_size, stride, padding, dilation, ceil_mode)",
    "adaptive_max_pool2d": "F.adaptive_max_pool2d(self, output_size)",
    "adaptive_max_pool3d": "F.adaptive_max_pool3d(self, output_size)",
    "fractional_max_pool2d": "F.fractional_max_pool2d(self, kernel_size, output_size, _random_samples=random_samples)",
    "fractional_max_pool3d": "F.fractional_max_pool3d(self, kernel_size, output_size, _random_samples=random_samples)",
    "_cdist_forward": "torch.cdist(x1, x2, p)",
    "_pdist_forward": "F.pdist(self, p)",
    "renorm": "torch.renorm(self, p, dim, maxnorm)",
    "_linalg_svd": "torch.linalg.svdvals(A)",
    "_linalg_eigh": "torch.linalg.eigvalsh(A, UPLO)",
    "grid_sampler_2d": "F.grid_sample(input, grid, mode=interpolation_mode, padding_mode, align_corners)",
    "grid_sampler_3d": "F.grid_sample(input, grid, mode=interpolation_mode, padding_mode, align_corners)",
}
# What users write for the numbers that overloads take.
WORDS = {
    "mode": ("sum", "mean", "max"),
    "interpolation_mode": ("bilinear", "nearest", "bicubic"),
    "padding_mode": ("zeros", "border", "reflection"),
}
# Variables of the reproducers that read better than the names of the schema.
VARIABLES = {"self": "x", "input": "image", "min": "low", "max": "high"}


@dataclass(frozen=True)
class Reproducer:
    """A program of plain torch that prints a derivative at a kink.

    Attributes:
        code: the program.
        results: expressions of its variables that hold the derivative.
        expected: what the documented rule asks for, one tensor for each result.
    """

    code: str
    results: tuple[str, ...]
    expected: tuple[Tensor, ...]

    def run(self) -> tuple[str, tuple[Tensor, ...]]:
        """What the program prints, and its results."""
        printed, namespace = io.StringIO(), {}
        with contextlib.redirect_stdout(printed):
            exec(self.code, namespace)
        found = [eval(result, namespace) for result in self.results]
        zeros = [torch.zeros_like(each) for each in self.expected]  # what is not reached has no gradient at all
        return printed.getvalue(), tuple(
            zero if each is None else each for each, zero in zip(found, zeros, strict=True)
        )

    def is_as_expected(self) -> bool:
        _, found = self.run()
        return all(bool(((one - other).abs() < NEAR).all()) for one, other in zip(found, self.expected, strict=True))


def reproducer(place: Place, finding: Finding) -> Reproducer:
    """The first program that shows torch break its rule at a place; where it keeps it, the first that shows that."""
    programs = list(_programs(place, finding))
    with use("torch"):
        return next((each for each in programs if not each.is_as_expected()), programs[0])


def _programs(place: Place, finding: Finding) -> Iterator[Reproducer]:
    """Reverse mode with a cotangent of 1 and of -1, then forward mode along the first entry that is not as expected."""
    assert finding.documented is not None, "a jump has no rule to keep"
    names = place.differentiated
    wanted = [_rounded(finding.documented[name]).reshape(place.call[name].shape) for name in names]
    results = tuple(f"{_variable(name)}.grad" for name in names)
    for cotangent in (1.0, -1.0):
        given = "" if cotangent == 1 else f"torch.tensor({cotangent})"
        code = f"{_head(place)}\n{_entry(place)}.backward({given})\nprint({', '.join(results)})\n"
        yield Reproducer(code, results, tuple(cotangent * each + 0.0 for each in wanted))
    for position, name in enumerate(names if finding.forward is not None else ()):
        misses = _rounded(finding.forward[name]).reshape(wanted[position].shape) - wanted[position]  # type: ignore[index]
        for entry in (~(misses.abs() < NEAR)).flatten().nonzero()[:1].tolist():
            yield Reproducer(
                _forward(place, position, *entry), ("derivative",), (wanted[position].flatten()[entry[0]],)
            )


def _forward(place: Place, position: int, entry: int) -> str:
    """A program for the derivative in one entry by forward mode."""
    variables = ", ".join(_variable(name) for name in place.differentiated)
    tangents = [torch.zeros_like(place.call[name]) for name in place.differentiated]
    tangents[position].view(-1)[entry] = 1
    directions = "".join(f"{_tensor(tangent)}, " for tangent in tangents).strip()
    return (
        f"{_head(place, leaves=False)}\n"
        f"def function({variables}):\n    return {_entry(place)}\n\n\n"
        f"_, derivative = torch.func.jvp(function, ({variables},), ({directions}))\nprint(derivative)\n"
    )


def _head(place: Place, leaves: bool = True) -> str:
    """Imports, and the tensors of the call as literals."""
    lines = ["import torch", *["import torch.nn.functional as F"] * ("F." in _call(place)), ""]
    for name, value in place.call.items():
        if isinstance(value, Tensor) and _is_given(place, name):
            differentiated = leaves and name in place.differentiated
            lines.append(f"{_variable(name)} = {_tensor(value, ', requires_grad=True' * differentiated)}")
    return "\n".join(lines) + ("" if leaves else "\n\n")


def _is_given(place: Place, name: str) -> bool:
    return re.search(rf"\b{_variable(name)}\b", _call(place).partition("(")[2]) is not None


def _entry(place: Place) -> str:
    """The affected entry of the result as an expression."""
    expression = _call(place)
    output, entry = affected(place.kink)
    with torch.no_grad(), use("torch"):
        variables = {_variable(name): value for name, value in place.call.items()}
        result = eval(expression, {"torch": torch, "F": torch.nn.functional, **variables})
    if not isinstance(result, Tensor):
        expression, result = f"{expression}[{output}]", result[output]
    if result.ndim == 0:
        return expression
    index = torch.unravel_index(torch.tensor(entry), result.shape)
    return f"{expression}[{', '.join(str(int(each)) for each in index)}]"


def _call(place: Place) -> str:
    """The call as users write it where they can, else by its overload."""
    op, defaults = place.kink.op, with_defaults(place.kink.op, {})
    given = {name: value for name, value in place.call.items() if not _is_same(value, defaults[name])}
    function, arguments, rest = _spelling(op, given)
    written = []
    for argument in arguments:
        keyword, _, name = argument.rpartition("=")
        if name in given:
            is_positional = isinstance(given[name], Tensor) and not keyword
            value = _variable(name) if isinstance(given[name], Tensor) else _literal(name, given[name], op)
            written.append(value if is_positional else f"{keyword or name}={value}")
    return f"{function}({', '.join(written)}){rest}"


def _spelling(op: str, given: Mapping[str, Any]) -> tuple[str, list[str], str]:
    """A function, its arguments, and what follows the call."""
    if op in SPELLINGS:
        function, arguments, rest = re.fullmatch(r"([\w.]+)\((.*)\)(.*)", SPELLINGS[op]).groups()  # type: ignore[union-attr]
        names = arguments.split(", ")
        if set(given) <= {name.rpartition("=")[2] for name in names}:
            return function, names, rest
    first, *others = argument_names(op)
    return f"torch.ops.{qualified(op).replace('::', '.')}", [first, *(f"{name}={name}" for name in others)], ""


def _is_same(value: Any, default: Any) -> bool:
    if isinstance(value, Tensor):
        return False
    if isinstance(value, list) and isinstance(default, list):
        return set(value) == set(default)  # [0] is written for [0, 0]
    return value == default and type(value) is type(default)


def _variable(name: str) -> str:
    return VARIABLES.get(name, name)


def _literal(name: str, value: Any, op: str) -> str:
    if op in SPELLINGS and name in WORDS and isinstance(value, int):
        value = WORDS[name][value]
    if isinstance(value, float) and not math.isfinite(value):
        return f'float("{value}")'
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _tensor(tensor: Tensor, options: str = "") -> str:
    return f"torch.tensor({tensor.tolist()}{options})"


def _rounded(element: float | tuple[float, ...]) -> Tensor:
    """An element without what differences nearby leave open."""
    entries = element if isinstance(element, tuple) else (element,)
    return torch.tensor([0.0 if abs(each) < 1e-6 else float(f"{each:.5g}") for each in entries])


def reports(measured: Sequence[tuple[Place, Finding]]) -> list[str]:
    """An issue report in markdown for each overload that breaks the rule at some of these places."""
    broken: dict[str, list[tuple[Place, Finding]]] = {}
    for place, finding in measured:
        others = broken.setdefault(place.kink.op, [])
        if finding.keeps_rule is False and not any(_is_part(finding, other) for _, other in others):
            others.append((place, finding))
    return [report(each) for each in broken.values() if each]


def _is_part(one: Finding, other: Finding) -> bool:
    """Whether one finding is another with some of its arguments constant."""
    where = (one.place, one.arguments) == (other.place, other.arguments)
    return where and set(one.differentiated) < set(other.differentiated)


def report(broken: Sequence[tuple[Place, Finding]]) -> str:
    """The issue report for some places of one overload."""
    function = _call(broken[0][0]).partition("(")[0].replace("F.", "torch.nn.functional.")
    where = " and at ".join(dict.fromkeys(finding.place for _, finding in broken))
    shapes = [shape(place) for place, _ in broken]
    missed = "the documented one" if any(each in DECIDES for each in shapes) else "the one of minimum norm"
    parts = [
        f"# `{function}`: at {where} the gradient is not {missed} (`{broken[0][1].overload}`)",
        "## Expected",
        f'["Gradients for non-differentiable functions"]({NOTES}) in the notes on autograd mechanics defines it, '
        "by rules that apply in order:",
        "\n".join(f"> {rule}. {RULES[rule]}" for rule in sorted({rule for each in shapes for rule in _rules(each)})),
        "## Code",
        *(_section(*each, bend) for each, bend in zip(broken, shapes, strict=True)),
        "## Versions",
        f"torch {torch.__version__}, Python {platform.python_version()}, {platform.system()} {platform.machine()}, CPU",
    ]
    return "\n\n".join(parts)


def _rules(bend: str) -> tuple[int, ...]:
    """The rules that decide for a shape."""
    rule = DECIDES.get(bend.removesuffix(FIRST_ORDER))
    return (4,) if rule is None else (rule, 4) if bend.endswith(FIRST_ORDER) else (rule,)


def _section(place: Place, finding: Finding, bend: str) -> str:
    found = reproducer(place, finding)
    with use("torch"):
        printed, _ = found.run()
    return (
        f"{_reason(finding, bend)}\n\n```python\n{found.code}```\n\n"
        f"prints\n\n```text\n{printed}```\n\n"
        f"instead of\n\n```text\n{' '.join(str(each) for each in found.expected)}\n```"
    )


def _reason(finding: Finding, bend: str) -> str:
    """Which rule decides at a place, and how strictly."""
    article = "" if finding.set.startswith("[") else "the "
    where = f"At {finding.place} the generalised derivatives are {article}{finding.set}"
    if bend == SMOOTH:
        return f"At {finding.place} the function is differentiable: rule 1."
    if bend in (CONVEX, CONCAVE):
        return f"{where}, and the function is {bend} nearby: rule {DECIDES[bend]}."
    if bend.endswith(FIRST_ORDER):
        first = bend.removesuffix(FIRST_ORDER)
        return (
            f"{where}. The kink is {first}, though the smooth parts beside it bend the other way: rule "
            f"{DECIDES[first]} as far as the kink goes; read to the letter, rule 4 leaves the choice open."
        )
    return (
        f"{where}. The function is neither convex nor concave nearby, so rule 4 leaves the choice open; "
        "the element of minimum norm would be the one that the other rules take."
    )
