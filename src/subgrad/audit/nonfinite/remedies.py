"""What to write instead of an operator whose slope is infinite: the table, one remedy a line or a few.

The code is a template. ``{x}`` is what the operator is called with, ``{y}`` its second operand; ``keep`` is true where the
result is used, ``hidden`` where it is masked. `tests/audit/test_remedies.py` runs each on its operator where the slope is
infinite, and holds the gradient against differences of values.
"""

from __future__ import annotations

from dataclasses import dataclass

MASKED, LIVE, ANY = "masked", "live", "any"  # whether a mask was to keep the entry out


@dataclass(frozen=True)
class Remedy:
    """What to write instead.

    Attributes:
        operators: as torch's graph names them.
        when: a mask was to keep the entry out (``MASKED``), or the result is used (``LIVE``), or either.
        words: what it does.
        code: a template.
        before: the operators before it for which it is, the nearest first, as a pattern; any if empty.
        masks: the masks for which it is; any if empty.
        is_gradient: it gives the gradient of the function that is meant, not one of a function nearby.
    """

    operators: tuple[str, ...]
    when: str
    words: str
    code: str
    before: str = ""
    masks: tuple[str, ...] = ()
    is_gradient: bool = True


INNER = "Keep the entry out before the operator as well, so that its slope is never asked for"
SELECTED = "Select before the operator, not after it"
NEARBY = "Stay away from the pole; this is the gradient of a function nearby"
BOUNDED = "Bound the operand first: no gradient beyond the bound, a finite one before it"
SELECTING = ("index", "index_select", "masked_select", "select", "slice", "gather", "take")

UNARY = """inside = torch.where(keep, {{x}}, {safe})  # keep: where the result is used
result = torch.where(keep, torch.{name}(inside), 0.0)"""
# By operator: a number at which its slope is finite, and how torch spells it.
SAFE = {
    **{name: ("1.0", name) for name in ("sqrt", "rsqrt", "log", "log2", "log10", "reciprocal", "lgamma", "digamma")},
    **{name: ("0.0", name) for name in ("acos", "asin", "atanh", "erfinv", "exp", "exp2", "expm1", "log1p", "sinh")},
    "cosh": ("0.0", "cosh"),
    "acosh": ("2.0", "acosh"),
    "logit": ("0.5", "logit"),
    "special_ndtri": ("0.5", "special.ndtri"),
    "special_entr": ("1.0", "special.entr"),
}

# fmt: off
# ruff: noqa: E501
REMEDIES = (
    # another operator is finite wherever its operand is, used or masked
    Remedy(("log",), ANY, "`logsigmoid` is finite wherever its operand is", "result = torch.nn.functional.logsigmoid({x})  # x: what sigmoid is called with", before="sigmoid"),
    Remedy(("log",), ANY, "`log_softmax` is finite wherever its operand is", "result = torch.log_softmax({x}, -1)  # x: what softmax is called with", before="softmax"),
    Remedy(("log",), ANY, "`logsumexp` neither overflows nor underflows", "result = torch.logsumexp({x}, -1)  # x: what exp is called with", before="sum exp"),

    # masked
    *(Remedy((name,), MASKED, SELECTED, f"result = torch.{spelled}({{x}}[keep])", masks=SELECTING) for name, (_, spelled) in SAFE.items()),
    *(Remedy((name,), MASKED, INNER, UNARY.format(name=spelled, safe=safe)) for name, (safe, spelled) in SAFE.items()),
    Remedy(("div",), MASKED, INNER, "divisor = torch.where(keep, {y}, 1.0)  # keep: where the result is used\nresult = torch.where(keep, {x} / divisor, 0.0)"),
    Remedy(("pow",), MASKED, INNER, "inside = torch.where(keep, {x}, 1.0)  # keep: where the result is used\nresult = torch.where(keep, inside ** {y}, 0.0)"),
    Remedy(("hypot",), MASKED, INNER, "inside = torch.where(keep, {x}, 1.0)  # keep: where the result is used\nresult = torch.where(keep, torch.hypot(inside, {y}), 0.0)"),
    Remedy(("xlogy",), MASKED, INNER, "inside = torch.where(keep, {y}, 1.0)  # keep: where the result is used\nresult = torch.where(keep, torch.xlogy({x}, inside), 0.0)"),
    Remedy(("log_softmax",), ANY, "Give a row in which everything is masked something to attend to, and leave it out afterwards", "empty = hidden.all(-1, keepdim=True)  # hidden: what is masked\nresult = torch.log_softmax({x}.masked_fill(hidden & ~empty, -torch.inf), -1).masked_fill(hidden, 0.0)"),
    Remedy(("softmax",), ANY, "Give a row in which everything is masked something to attend to, and leave it out afterwards", "empty = hidden.all(-1, keepdim=True)  # hidden: what is masked\nresult = torch.softmax({x}.masked_fill(hidden & ~empty, -torch.inf), -1).masked_fill(empty, 0.0)"),
    Remedy(("logsumexp",), ANY, "Leave rows out in which everything is -inf, before the operator as well", "empty = ({x} == -torch.inf).all(-1)\nresult = torch.where(empty, 0.0, torch.logsumexp(torch.where(empty[..., None], 0.0, {x}), -1))"),
    Remedy(("exp",), MASKED, "`softplus` does not overflow", "result = torch.nn.functional.softplus({x})  # for log(1 + exp(x))"),

    # live: another operator is safe
    Remedy(("sqrt",), LIVE, "The norm has a gradient of 0 at 0, the least element of its set", "result = torch.linalg.vector_norm({x}, dim=-1)  # x: what is squared and summed", before="sum (pow|mul)"),
    Remedy(("sqrt",), LIVE, "The norm has a gradient of 0 at 0, also where there is no error at all", "result = torch.linalg.vector_norm({x} - target) / target.numel() ** 0.5  # x: the prediction", before="mse_loss"),
    Remedy(("sqrt",), LIVE, "The norm has a gradient of 0 at 0, the least element of its set", "result = torch.linalg.vector_norm({x}, dim=-1) / {x}.shape[-1] ** 0.5  # x: what is squared and averaged", before="mean (pow|mul)"),
    Remedy(("sqrt",), LIVE, "`std` has a gradient of 0 where nothing varies", "result = {x}.std(-1)  # x: what `var` is called with", before="var"),
    Remedy(("hypot",), LIVE, "The norm has a gradient of 0 at 0, the least element of its set", "result = torch.linalg.vector_norm(torch.stack(({x}, {y})), dim=0)"),
    Remedy(("acos",), LIVE, "The angle between two vectors without `acos`: finite where they are parallel", "result = torch.atan2(torch.linalg.vector_norm(torch.linalg.cross(a, b), dim=-1), (a * b).sum(-1))  # between a and b"),
    Remedy(("std",), ANY, "One number has no deviation by `correction=1`, and one of 0 without it", "result = {x}.std(-1, correction=0)"),
    Remedy(("native_layer_norm",), ANY, "An eps above 0 bounds the slope", "result = torch.nn.functional.layer_norm({x}, {x}.shape[-1:], eps=1e-5)", is_gradient=False),
    Remedy(("native_group_norm",), ANY, "An eps above 0 bounds the slope", "result = torch.nn.functional.group_norm({x}, 1, eps=1e-5)", is_gradient=False),
    Remedy(("linalg_eigh",), ANY, "Eigenvalues have gradients where they repeat, their vectors have none", "result = torch.linalg.eigvalsh({x})"),
    Remedy(("linalg_svd",), ANY, "Singular values have gradients where they repeat, their vectors have none", "result = torch.linalg.svdvals({x})"),

    # live: away from the pole
    Remedy(("sqrt",), LIVE, NEARBY, "result = torch.sqrt({x} + 1e-12)", is_gradient=False),
    Remedy(("log", "log2", "log10"), LIVE, BOUNDED, "result = torch.log({x}.clamp(min=1e-12))", is_gradient=False),
    Remedy(("log1p",), LIVE, BOUNDED, "result = torch.log1p({x}.clamp(min=-1 + 1e-6))", is_gradient=False),
    Remedy(("acos",), LIVE, BOUNDED, "result = torch.acos({x}.clamp(-1 + 1e-6, 1 - 1e-6))", is_gradient=False),
    Remedy(("asin",), LIVE, BOUNDED, "result = torch.asin({x}.clamp(-1 + 1e-6, 1 - 1e-6))", is_gradient=False),
    Remedy(("atanh",), LIVE, BOUNDED, "result = torch.atanh({x}.clamp(-1 + 1e-6, 1 - 1e-6))", is_gradient=False),
    Remedy(("erfinv",), LIVE, BOUNDED, "result = torch.erfinv({x}.clamp(-1 + 1e-6, 1 - 1e-6))", is_gradient=False),
    Remedy(("acosh",), LIVE, BOUNDED, "result = torch.acosh({x}.clamp(min=1 + 1e-6))", is_gradient=False),
    Remedy(("logit",), LIVE, BOUNDED, "result = torch.logit({x}, eps=1e-6)", is_gradient=False),
    Remedy(("pow",), LIVE, NEARBY, "result = ({x} + 1e-12) ** {y}", is_gradient=False),
    Remedy(("div",), LIVE, "A quotient of what vanishes together: bound the divisor", "result = {x} / {y}.clamp(min=1e-6)  # y: nowhere negative", is_gradient=False),
    Remedy(("rsqrt",), LIVE, NEARBY, "result = torch.rsqrt({x} + 1e-12)", is_gradient=False),
    Remedy(("reciprocal",), LIVE, "Bound the divisor", "result = {x}.clamp(min=1e-6).reciprocal()  # x: nowhere negative", is_gradient=False),
    Remedy(("xlogy",), LIVE, BOUNDED, "result = torch.xlogy({x}, {y}.clamp(min=1e-12))", is_gradient=False),
    Remedy(("special_entr",), LIVE, BOUNDED, "result = torch.special.entr({x}.clamp(min=1e-12))", is_gradient=False),
    Remedy(("exp", "exp2", "expm1", "sinh", "cosh"), LIVE, BOUNDED, "result = torch.exp({x}.clamp(max=80.0))", is_gradient=False),
    Remedy(("linalg_inv_ex", "linalg_solve_ex"), ANY, "A multiple of the identity keeps a matrix away from those without an inverse", "result = torch.linalg.inv({x} + 1e-3 * torch.eye({x}.shape[-1]))", is_gradient=False),
    Remedy(("linalg_slogdet",), ANY, "A multiple of the identity keeps a matrix away from those without an inverse", "result = torch.linalg.slogdet({x} + 1e-3 * torch.eye({x}.shape[-1])).logabsdet", is_gradient=False),
)
# fmt: on
