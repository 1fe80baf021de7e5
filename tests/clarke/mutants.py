"""Wrong rules, made from right ones: one small change of a source file each, by its syntax tree."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random

# The files that hold rules. Which mutants are chosen depends on all of them: new ones go to those that came later.
RULES = (
    "functions/arithmetic.py",
    "rules/fused_ops.py",
    "rules/degenerate_bases.py",
    "rules/piecewise_linear.py",
    "functions/branch_cuts.py",
    "rules/no_forward_mode.py",
    "functions/casts.py",
    "rules/grid_sample.py",
    "rules/comparisons.py",
    "functions/cut_derivatives.py",
    "rules/eigenvectors.py",
    "functions/foreach.py",
    "rules/grouped_reductions.py",
    "engine/duals.py",
    "rules/hinge_losses.py",
    "rules/normalisation.py",
    "rules/norms.py",
    "rules/pointwise.py",
    "rules/max_pool.py",
    "rules/order_statistics.py",
    "functions/searchsorted.py",
    "rules/extremes.py",
    "rules/singular_vectors.py",
    "rules/eigen_svd.py",
    "functions/rewritten.py",
)
LATER = ("functions/degenerate.py",)  # whose mutants follow the first 200, which stay as they are
FIRST = 200
COMPARED: dict[type[ast.cmpop], list[str]] = {
    ast.Gt: ["<", ">="],
    ast.GtE: ["<=", ">"],
    ast.Lt: [">", "<="],
    ast.LtE: [">=", "<"],
    ast.Eq: ["!="],
    ast.NotEq: ["=="],
    ast.Is: ["is not"],
    ast.IsNot: ["is"],
    ast.In: ["not in"],
    ast.NotIn: ["in"],
}
SWAPPED = {
    "left_slope": "right_slope",
    "right_slope": "left_slope",
    "any": "all",
    "all": "any",
    "amax": "amin",
    "amin": "amax",
    "maximum": "minimum",
    "minimum": "maximum",
    "argmax": "argmin",
    "argmin": "argmax",
    "logical_or": "logical_and",
    "logical_and": "logical_or",
    "ones_like": "zeros_like",
    "zeros_like": "ones_like",
    "sign": "abs",
    "cummax": "cummin",
    "cummin": "cummax",
    "descending": "stable",
    "sum": "mean",
}
LEAK = "__import__('torch').utils._pytree.tree_map_only(__import__('torch').Tensor, lambda leaf: leaf.detach(), ({}))"
DERIVES = ("along", "around", "run", "look")  # functions that return what is differentiated


@dataclass(frozen=True)
class Mutant:
    """One change: the characters from ``start`` to ``end`` of a file are replaced."""

    file: str
    line: int
    kind: str
    start: int
    end: int
    old: str
    new: str

    @property
    def key(self) -> str:
        return f"{self.file}:{self.line}:{self.start} {self.kind}: {self.new}"

    def applied(self, source: str) -> str:
        return source[: self.start] + self.new + source[self.end :]

    def is_python(self, source: str) -> bool:
        try:
            return ast.dump(ast.parse(self.applied(source))) != _tree(source)
        except SyntaxError:
            return False


@cache
def _tree(source: str) -> str:
    return ast.dump(ast.parse(source))


@cache
def chosen(folder: Path, number: int, seed: int = 0) -> list[Mutant]:
    """So many, evenly over files and kinds, in an order that does not depend on how many."""
    first, later = (_drawn(folder, files, number, Random(seed)) for files in (RULES, LATER))
    return [*first[:FIRST], *later, *first[FIRST:]][:number]


def _drawn(folder: Path, files: tuple[str, ...], number: int, generator: Random) -> list[Mutant]:
    groups: dict[tuple[str, str], list[Mutant]] = {}
    for mutant in every(folder, files):
        groups.setdefault((mutant.file, mutant.kind), []).append(mutant)
    for group in groups.values():
        generator.shuffle(group)
    order = list(groups)
    found: list[Mutant] = []
    while len(found) < number and any(groups.values()):
        generator.shuffle(order)
        drawn = [groups[each].pop() for each in order if groups[each]]
        found += [each for each in drawn if each.is_python((folder / each.file).read_text())]
    return found[:number]


def every(folder: Path, files: tuple[str, ...]) -> Iterator[Mutant]:
    """All changes of some files with rules."""
    for file in files:
        yield from _Changes(file, (folder / file).read_text()).found


class _Changes(ast.NodeVisitor):
    """Collects the changes of one file; annotations, messages and docstrings are left alone."""

    def __init__(self, file: str, source: str) -> None:
        self.file, self.source, self.found = file, source, []
        self.starts = [0]
        for line in source.splitlines(keepends=True):
            self.starts.append(self.starts[-1] + len(line))
        self.functions: list[str] = []
        self.visit(ast.parse(source))

    def _span(self, node: ast.AST) -> tuple[int, int]:
        # Columns count bytes; the sources are ASCII.
        start = self.starts[node.lineno - 1] + node.col_offset  # type: ignore[attr-defined]
        return start, self.starts[node.end_lineno - 1] + node.end_col_offset  # type: ignore[attr-defined]

    def _text(self, node: ast.AST) -> str:
        start, end = self._span(node)
        return self.source[start:end]

    def _change(self, kind: str, node: ast.AST, new: str) -> None:
        start, end = self._span(node)
        line = node.lineno  # type: ignore[attr-defined]
        self.found.append(Mutant(self.file, line, kind, start, end, self.source[start:end], new))

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        self.functions.append(node.name)
        for each in node.body:
            self.visit(each)
        self.functions.pop()

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Import(self, node: ast.Import) -> None:
        pass

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        pass

    def visit_Raise(self, node: ast.Raise) -> None:
        self._change("refusal dropped", node, "pass")

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_Compare(self, node: ast.Compare) -> None:
        if len(node.ops) == 1:
            left, right = self._text(node.left), self._text(node.comparators[0])
            for other in COMPARED[type(node.ops[0])]:
                self._change("comparison", node, f"({left} {other} {right})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        left, right = self._text(node.left), self._text(node.right)
        if isinstance(node.op, ast.Add):
            self._change("sign", node, f"({left} - {right})")
            self._change("term dropped", node, f"({left})")
        elif isinstance(node.op, ast.Sub):
            self._change("sign", node, f"({left} + {right})")
        elif isinstance(node.op, ast.Mult):
            self._change("factor", node, f"(2 * {left} * {right})")
            self._change("factor", node, f"({right})")
        elif isinstance(node.op, ast.Div):
            self._change("factor", node, f"({left} * {right})")
        elif isinstance(node.op, ast.BitAnd):
            self._change("mask", node, f"({left} | {right})")
        elif isinstance(node.op, ast.BitOr) and "None" not in right:
            self._change("mask", node, f"({left} & {right})")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.USub | ast.Invert | ast.Not):
            self._change("sign" if isinstance(node.op, ast.USub) else "mask", node, f"({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._change("constant", node, str(not node.value))
        elif isinstance(node.value, int | float):
            self._change("constant", node, f"({node.value!r} + 1)")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        if node.attr in SWAPPED:
            self._change("side", node, f"{self._text(node.value)}.{SWAPPED[node.attr]}")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        if self._text(node.func) == "torch.where" and len(node.args) == 3:
            condition, one, other = map(self._text, node.args)
            self._change("side", node, f"torch.where({condition}, {other}, {one})")
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        self._change("branch dropped", node.test, "False")
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._change("branch dropped", node, f"({self._text(node.body)})")
        self._change("branch dropped", node, f"({self._text(node.orelse)})")
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if node.value is None or not self.functions:
            return
        name = self.functions[-1]
        if name == "decide":
            self._change("branch dropped", node.value, "None")
        elif name == "hits":
            self._change("branch dropped", node.value, "False")
        elif name in DERIVES or name.startswith("_with"):
            self._change("leak", node.value, LEAK.format(self._text(node.value)))
        self.generic_visit(node)
