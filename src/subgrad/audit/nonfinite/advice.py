"""What to write instead of the line that made a gradient infinite or NaN, in the words of that line."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from subgrad.audit.nonfinite.remedies import LIVE, MASKED, REMEDIES, Remedy
from subgrad.audit.nonfinite.result import COTANGENT, OVERFLOW, SUM, UNKNOWN, Advice, Line, Nonfinite

MOST = 2  # remedies that are told of a line, besides `strong_zero`
STRONG = """with subgrad.use("torch", strong_zero=True):
    loss = closure()  # the forward"""


def of(found: Nonfinite, before: Sequence[str]) -> tuple[Advice, ...]:
    """The advice for a finding, given the operators that lie before its line, the nearest first."""
    line = found.guilty
    if line is None or found.kind in (OVERFLOW, COTANGENT, SUM, UNKNOWN):
        return ()
    # A line of an installed package is not the user's to write in another way.
    remedies = () if line.site.is_installed else REMEDIES
    fitting = [each for each in remedies if _fits(each, line.operator, found.mask, before)]
    made = [_filled(each, line) for each in fitting[:MOST]]
    if found.gradient == "nan" and (found.mask is not None or found.zero is not None):
        made.append(_strong(found))
    return tuple(made)


def _fits(remedy: Remedy, operator: str, mask: Line | None, before: Sequence[str]) -> bool:
    if operator not in remedy.operators or remedy.when == (LIVE if mask is not None else MASKED):
        return False
    if remedy.masks and (mask is None or mask.operator not in remedy.masks):
        return False
    return not remedy.before or re.match(remedy.before, " ".join(before)) is not None


def _strong(found: Nonfinite) -> Advice:
    if found.mask is not None:
        return Advice("Without a change to the line: 0 times an infinite slope is 0", STRONG)
    words = (
        "Without a change to the line, 0 times an infinite slope is 0; whether that is the gradient is for you to say"
    )
    return Advice(words, STRONG, is_gradient=False)


# What the operator is called with, as the line spells it.


def _filled(remedy: Remedy, line: Line) -> Advice:
    """The template with the operands of the line, where the line has one such call and can be read alone."""
    x, y = "x", "y"
    if not remedy.before:  # else the template is about what lies before the operator
        calls = list(_calls(line.site.source, line.operator))
        if len(calls) == 1:
            x, y = (*calls[0], y)[:2]
    code = remedy.code.format(x=x, y=y)
    return Advice(remedy.words, code, remedy.is_gradient)


def _calls(source: str, operator: str) -> Iterator[tuple[str, ...]]:
    try:
        tree = ast.parse(source)
    except SyntaxError:  # a line of several, or what begins a block
        return
    name = operator.removeprefix("special_").removeprefix("linalg_")
    for node in ast.walk(tree):
        found = _operands(node, name)
        if found is not None:
            yield tuple(_spelled(source, each) for each in found[:2])


def _operands(node: ast.AST, name: str) -> list[ast.expr] | None:
    if isinstance(node, ast.BinOp):
        is_it = (name == "div" and isinstance(node.op, ast.Div)) or (name == "pow" and isinstance(node.op, ast.Pow))
        return [node.left, node.right] if is_it else None
    if not isinstance(node, ast.Call) or any(isinstance(each, ast.Starred) for each in node.args):
        return None
    called = node.func
    if isinstance(called, ast.Name):
        return node.args if called.id == name and node.args else None
    if not isinstance(called, ast.Attribute) or called.attr != name:
        return None
    is_of_module = _root(called.value) in ("torch", "F", "nn")
    return (node.args or None) if is_of_module else [called.value, *node.args]


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _spelled(source: str, node: ast.expr) -> str:
    text = ast.get_source_segment(source, node) or ast.unparse(node)
    is_whole = isinstance(node, ast.Name | ast.Attribute | ast.Call | ast.Subscript | ast.Constant)
    return text if is_whole else f"({text})"
