"""Walks a checked expression: each of its calls is made from a frame of its own, whose file is what is written there.

So whatever names a line of the program, an error of torch or a refusal of `subgrad.grad`, names the part of the
expression.
"""

from __future__ import annotations

import ast
import builtins
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from math import prod
from types import CodeType, FunctionType
from typing import Any

import torch
from torch import Tensor

from subgrad.explain import language
from subgrad.explain.expression import Expression
from subgrad.explain.parsing import Mistake, is_of_torch, path

MOST_ENTRIES = 2**20  # of a result
MOST_PRODUCTS = 2**24  # of the sizes of what is multiplied

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: operator.pow,
    ast.MatMult: operator.matmul,
    ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_,
    ast.UAdd: operator.pos,
    ast.USub: operator.neg,
    ast.Invert: operator.invert,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


class Evaluation:
    """An expression as a function of its inputs, each a tensor.

    Attributes:
        at: the part that torch is computing.
        entries: of the result. Of more than one the sum is differentiated.
    """

    def __init__(self, expression: Expression, names: Sequence[str], dtype: torch.dtype = torch.float64):
        self.expression, self.names, self.dtype = expression, tuple(names), dtype
        self.at: ast.expr = expression.tree
        self.entries = 1
        self._inputs: Mapping[str, Tensor] = {}
        self._constants: dict[ast.expr, Tensor] = {}
        self._frames: dict[str, Callable[..., Any]] = {}

    def first(self, *inputs: Tensor) -> Tensor:
        """The value; an error of torch becomes a mistake at its place."""
        try:
            return self.function(*inputs)
        except Mistake:
            raise
        except Exception as error:
            why = str(error).strip().splitlines()
            raise self.expression.mistake(
                self.at, f"{type(error).__name__}: {why[0] if why else 'no reason given'}"
            ) from None

    @property
    def function(self) -> Callable[..., Tensor]:
        """It, as a function that has the expression for its file."""
        walk = self._walk

        def call(*inputs: Tensor) -> Tensor:
            return walk(inputs)

        made = _in_file(call.__code__, self.expression.text)
        return FunctionType(made, _GLOBALS, "expression", None, call.__closure__)

    def _walk(self, inputs: tuple[Tensor, ...]) -> Tensor:
        self._inputs = dict(zip(self.names, inputs, strict=True))
        found = self._value(self.expression.tree)
        self.at = self.expression.tree
        if not isinstance(found, Tensor):
            what = "several results: take one of them, as in .values" if isinstance(found, tuple) else "a plain number"
            raise self.expression.mistake(self.expression.tree, f"This is {what}.")
        if not found.is_floating_point():
            raise self.expression.mistake(self.expression.tree, f"This is {found.dtype}: it has no derivative.")
        self.entries = found.numel()
        return found if found.ndim == 0 else found.sum()

    # The parts.

    def _value(self, node: ast.expr) -> Any:
        if node in self.expression.numbers:
            return self.expression.numbers[node]
        return _PARTS[type(node)](self, node)

    def _name(self, node: ast.Name) -> Tensor:
        return self._inputs[node.id]

    def _field(self, node: ast.Attribute) -> Any:
        value, name = self._value(node.value), node.attr
        if isinstance(value, Tensor) and name in language.TENSOR_FIELDS:
            return self._made(node, operator.attrgetter(name), (value,))
        if isinstance(value, tuple) and name in language.RESULT_FIELDS and hasattr(value, name):
            return getattr(value, name)
        raise self.expression.mistake(node, f"There is no .{name} here.")

    def _call(self, node: ast.Call) -> Any:
        full = path(node.func)
        if full == "torch.tensor":
            return self._constant(node)
        kwargs = {str(each.arg): self._argument(each.value) for each in node.keywords}
        if is_of_torch(full):
            args = [self._argument(each) for each in node.args]
            return self._made(node, language.FUNCTIONS[str(full)], args, kwargs, str(full).rpartition(".")[2])
        assert isinstance(node.func, ast.Attribute), "checked"
        receiver = self._value(node.func.value)
        if not isinstance(receiver, Tensor):
            raise self.expression.mistake(node.func, "Only tensors have methods.")
        args = [receiver, *(self._argument(each) for each in node.args)]
        return self._made(node, language.METHODS[node.func.attr], args, kwargs, node.func.attr)

    def _constant(self, node: ast.Call) -> Tensor:
        """Made once: the same tensor in every run."""
        if node not in self._constants:
            numbers = self._literal(node.args[0])
            try:
                made = torch.tensor(numbers)
            except (ValueError, RuntimeError, OverflowError) as error:
                raise self.expression.mistake(node, f"{error}.".capitalize()) from None
            # As `torch.tensor` makes it where the default dtype is that of the inputs.
            self._constants[node] = torch.tensor(numbers, dtype=self.dtype) if made.is_floating_point() else made
        return self._constants[node]

    def _literal(self, node: ast.expr) -> Any:
        return [self._literal(each) for each in node.elts] if isinstance(node, ast.List) else self._value(node)

    def _argument(self, node: ast.expr) -> Any:
        if isinstance(node, ast.List | ast.Tuple):
            found = [self._argument(each) for each in node.elts]
            return tuple(found) if isinstance(node, ast.Tuple) else found
        if isinstance(node, ast.Constant):
            return node.value
        return self._value(node)

    def _subscript(self, node: ast.Subscript) -> Any:
        value, index = self._value(node.value), node.slice
        parts = [self._place(each) for each in index.elts] if isinstance(index, ast.Tuple) else self._place(index)
        place = tuple(parts) if isinstance(parts, list) else parts
        if isinstance(value, Tensor):
            return self._made(node, operator.getitem, (value, place))
        if not isinstance(place, int) or not -len(value) <= place < len(value):
            raise self.expression.mistake(node, f"Of {len(value)} results one is taken, by its number.")
        return value[place]

    def _place(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Slice):
            return slice(*(each and self._place(each) for each in (node.lower, node.upper, node.step)))
        return node.value if isinstance(node, ast.Constant) else self.expression.numbers[node]

    def _operation(self, node: ast.BinOp) -> Any:
        args = self._value(node.left), self._value(node.right)
        name = "matmul" if isinstance(node.op, ast.MatMult) else ""
        return self._made(node, _OPERATORS[type(node.op)], args, {}, name)

    def _sign(self, node: ast.UnaryOp) -> Any:
        return self._made(node, _OPERATORS[type(node.op)], (self._value(node.operand),))

    def _comparison(self, node: ast.Compare) -> Any:
        args = self._value(node.left), self._value(node.comparators[0])
        return self._made(node, _OPERATORS[type(node.ops[0])], args)

    def _choice(self, node: ast.IfExp) -> Any:
        test = self._value(node.test)
        if isinstance(test, Tensor) and test.numel() != 1:
            raise self.expression.mistake(node.test, f"`if` asks one number, not {test.numel()}: write torch.where.")
        return self._value(node.body if self._made(node.test, bool, (test,)) else node.orelse)

    # What torch computes.

    def _made(
        self,
        node: ast.expr,
        function: Callable[..., Any],
        args: Sequence[Any],
        kwargs: Mapping[str, Any] | None = None,
        name: str = "",
    ) -> Any:
        """A call, from a frame of its own."""
        given = [*args, *(kwargs or {}).values()]
        if any(isinstance(each, tuple) and any(isinstance(part, Tensor) for part in each) for each in given):
            raise self.expression.mistake(node, "One of these is several results: take one of them, as in .values.")
        self._refuse_too_large(node, name, given)
        self.at = node
        source = self.expression.source(node)
        if source not in self._frames:
            self._frames[source] = FunctionType(_in_file(_apply.__code__, source), _GLOBALS)
        return self._frames[source](function, args, kwargs or {})

    def _refuse_too_large(self, node: ast.expr, name: str, given: Sequence[Any]) -> None:
        tensors = list(_tensors(given))
        if name in language.GROWING:
            sizes = [each.numel() for each in tensors] * (2 if name in language.SQUARED else 1)
            numbers = [each for each in _numbers(given) if each > 1] if "pool" in name or "conv" in name else []
            size, most = prod([*sizes, *numbers]), MOST_PRODUCTS
        else:
            size, most = max(_broadcast(tensors), sum(each.numel() for each in tensors)), MOST_ENTRIES
        if size > most:
            raise self.expression.mistake(node, f"This may be too large: {most:,} entries are the most.")


_PARTS: Mapping[type[ast.expr], Callable[..., Any]] = {
    ast.Name: Evaluation._name,
    ast.Attribute: Evaluation._field,
    ast.Call: Evaluation._call,
    ast.Subscript: Evaluation._subscript,
    ast.BinOp: Evaluation._operation,
    ast.UnaryOp: Evaluation._sign,
    ast.Compare: Evaluation._comparison,
    ast.IfExp: Evaluation._choice,
}
# With Python's builtins, which torch asks the calling frame for when it imports something; no expression reaches them.
_GLOBALS: dict[str, Any] = {"__name__": "expression", "__builtins__": builtins}


def _apply(function: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    return function(*args, **kwargs)


def _in_file(code: CodeType, text: str) -> CodeType:
    """The same code, as if it were the first line of a file of this name: where errors say that they were raised."""
    return code.replace(co_filename=text, co_firstlineno=1)


def without_lines(message: str, expressions: Sequence[Expression]) -> str:
    """A message in which parts of expressions are named as lines of files, ``F.relu(x):2``, in words of its own."""
    sources = {each.source(node) for each in expressions for node in ast.walk(each.tree) if isinstance(node, ast.expr)}
    for text in sorted({*sources, *(each.text for each in expressions)}, key=len, reverse=True):
        message = re.sub(rf"{re.escape(text)}:[12]\b", lambda found: f"`{found[0][:-2]}`", message)
    return message


def first_line(error: BaseException) -> str:
    return next(iter(str(error).strip().splitlines()), "no reason given")


def _tensors(given: Sequence[Any]) -> list[Tensor]:
    found = []
    for each in given:
        if isinstance(each, Tensor):
            found.append(each)
        elif isinstance(each, list | tuple):
            found += _tensors(each)
    return found


def _numbers(given: Sequence[Any]) -> list[int]:
    found = []
    for each in given:
        if isinstance(each, int):
            found.append(int(each))
        elif isinstance(each, list | tuple):
            found += _numbers(each)
    return found


def _broadcast(tensors: Sequence[Tensor]) -> int:
    """The size of the result of an operator that works entry by entry; where shapes do not fit it raises itself."""
    dims = max((each.ndim for each in tensors), default=0)
    return prod(
        max((each.shape[-dim] for each in tensors if each.ndim >= dim), default=1) for dim in range(1, dims + 1)
    )
