"""Expressions of tensors, read and checked before anything runs: arithmetic, and calls of what `language` lists.

Nothing is given to Python's ``eval``. The text is parsed, every part of it is looked at, and what is not known by name
is refused with its place. What is left is walked in `evaluation`.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from subgrad.explain import language
from subgrad.explain.parsing import Mistake, is_of_torch, mistake, parsed, path
from subgrad.kinks.kink import unknown

DEEPEST = 100  # parts inside of each other
LARGEST_WHOLE = 2**16  # whole numbers in calls: they are sizes and places, not values
MOST_BITS = 1024  # of a whole number that is computed: a power must not run for years

Number = int | float
ARITHMETIC = (ast.Add, ast.Sub, ast.Mult, ast.Div, ast.FloorDiv, ast.Mod, ast.Pow, ast.MatMult, ast.BitAnd, ast.BitOr)
SIGNS = (ast.UAdd, ast.USub, ast.Invert)
COMPARISONS = (ast.Gt, ast.GtE, ast.Lt, ast.LtE, ast.Eq, ast.NotEq)
SEEN = "an expression sees torch, F and the inputs that --at names"


@dataclass(frozen=True)
class Expression:
    """A text that holds nothing but what `language` allows.

    Attributes:
        tree: its parts, checked.
        names: the inputs that it uses, in their order in the text.
        numbers: the parts that are plain numbers, computed already, by their nodes.
    """

    text: str
    tree: ast.expr
    names: tuple[str, ...]
    numbers: Mapping[ast.expr, Number | bool]

    @classmethod
    def of(cls, text: str, known: Collection[str]) -> Expression:
        """Read and check a text whose inputs have these names.

        Raises:
            Mistake: for anything else. Nothing has run then.
        """
        text = text.strip()
        tree = parsed(text)
        check = _Check(text, frozenset(known))
        check.value(tree, 0)
        return cls(text, tree, tuple(dict.fromkeys(check.names)), check.numbers)

    def source(self, node: ast.expr) -> str:
        """What is written for a part of it."""
        return self.text[node.col_offset : node.end_col_offset]

    def mistake(self, node: ast.AST, why: str) -> Mistake:
        return mistake(self.text, node, why)


class _Check:
    """One walk over a tree, which computes plain numbers and runs nothing else."""

    def __init__(self, text: str, known: frozenset[str]):
        self.text, self.known = text, known
        self.names: list[str] = []
        self.numbers: dict[ast.expr, Number | bool] = {}

    def refuse(self, node: ast.AST, why: str) -> Mistake:
        return mistake(self.text, node, why)

    def refuse_name(self, node: ast.Attribute, why: str) -> Mistake:
        """At the name behind the last dot."""
        end = node.end_col_offset or len(self.text)
        return Mistake(self.text, end - len(node.attr), end, why)

    def value(self, node: ast.expr, depth: int) -> None:
        """A number or a tensor, or a result of several."""
        if depth > DEEPEST:
            raise self.refuse(node, f"More than {DEEPEST} parts inside of each other.")
        for kind, look in _LOOKS:
            if isinstance(node, kind):
                look(self, node, depth + 1)
                return
        raise self.refuse(node, f"{_called(node)} cannot be used here: {SEEN}, arithmetic and comparisons.")

    def constant(self, node: ast.Constant, depth: int) -> None:
        if not isinstance(node.value, bool | int | float):
            raise self.refuse(node, f"{node.value!r} is no number.")
        if isinstance(node.value, int) and node.value.bit_length() > MOST_BITS:
            raise self.refuse(node, "This number is too large.")
        self.numbers[node] = node.value

    def name(self, node: ast.Name, depth: int) -> None:
        if node.id in ("torch", "F"):
            raise self.refuse(node, f"{node.id} alone is no value: call one of its functions, as in torch.relu(x).")
        if node.id not in self.known:
            given = f"--at gives {', '.join(sorted(self.known))}" if self.known else "--at gives none"
            raise self.refuse(node, f"{node.id!r} is not known here: {SEEN}, and {given}.")
        self.names.append(node.id)

    def field(self, node: ast.Attribute, depth: int) -> None:
        """What is taken with a dot and not called."""
        full = path(node)
        if is_of_torch(full):
            if full not in language.CONSTANTS:
                called = full in language.FUNCTIONS
                why = f"{full} is a function: call it" if called else f"{full} is not one of the functions known here"
                raise self.refuse(node, f"{why}.")
            self.numbers[node] = language.CONSTANTS[full]
            return
        if node.attr not in (*language.TENSOR_FIELDS, *language.RESULT_FIELDS):
            called = node.attr in language.METHODS
            why = "is a method: call it" if called else "cannot be used here: see docs/explain.md for what can"
            raise self.refuse_name(node, f".{node.attr} {why}.")
        self.tensor(node.value, depth)

    def tensor(self, node: ast.expr, depth: int) -> None:
        """A tensor, or a result of several."""
        self.value(node, depth)
        if node in self.numbers:
            raise self.refuse(node, "This is a number: it has no methods, fields or entries.")

    def call(self, node: ast.Call, depth: int) -> None:
        function = self.function(node, depth)
        self.arguments(node, function, depth)

    def function(self, node: ast.Call, depth: int) -> Any:
        """What is called: a function of torch, a method of a tensor, or `torch.tensor`."""
        called, full = node.func, path(node.func)
        if is_of_torch(full):
            if full == "torch.tensor":
                return None
            if full not in language.FUNCTIONS:
                home = [name for name in language.FUNCTIONS if name.partition(".")[0] != "torch.nn"]
                raise self.refuse(called, _unknown_function(str(full), home))
            return language.FUNCTIONS[str(full)]
        if isinstance(called, ast.Attribute):
            if called.attr not in language.METHODS:
                raise self.refuse_name(
                    called, _unknown_function(f".{called.attr}", [f".{m}" for m in language.METHODS])
                )
            self.tensor(called.value, depth)
            return language.METHODS[called.attr]
        what = f"{full!r}" if full else _called(called)
        raise self.refuse(called, f"{what} cannot be called: {SEEN}, and no functions of Python.")

    def arguments(self, node: ast.Call, function: Any, depth: int) -> None:
        if function is None:
            return self.literal(node)
        is_method = not is_of_torch(path(node.func))
        positional = (language.parameters(function) or ())[is_method:]
        for place, each in enumerate(node.args):
            if place < len(positional) and positional[place] in language.FORBIDDEN:
                raise self.refuse(each, f"{positional[place]}= cannot be given here.")
            self.argument(each, depth)
        for keyword in node.keywords:
            if keyword.arg is None or keyword.arg not in language.KEYWORDS:
                given = "**" if keyword.arg is None else f"{keyword.arg}="
                raise self.refuse(keyword, f"{given} cannot be given here.")
            self.argument(keyword.value, depth, is_named=True)

    def literal(self, node: ast.Call) -> None:
        """``torch.tensor`` of numbers that are written out."""
        if len(node.args) != 1 or node.keywords:
            raise self.refuse(node, "torch.tensor takes one number, or lists of numbers, written out.")
        self.numbers_in(node.args[0], 0)

    def numbers_in(self, node: ast.expr, depth: int) -> None:
        if isinstance(node, ast.List) and depth < DEEPEST:
            for each in node.elts:
                self.numbers_in(each, depth + 1)
            return
        self.value(node, depth)
        if node not in self.numbers:
            raise self.refuse(node, "torch.tensor takes numbers that are written out, and makes a constant of them.")

    def argument(self, node: ast.expr, depth: int, is_named: bool = False) -> None:
        """A value, a list of values, a word such as "mean", None, or True and False by name."""
        if isinstance(node, ast.List | ast.Tuple) and depth < DEEPEST:
            for each in node.elts:
                self.argument(each, depth + 1, is_named)
            return
        if isinstance(node, ast.Constant):
            if node.value is None:
                return
            if isinstance(node.value, str):
                if node.value not in language.WORDS:
                    raise self.refuse(node, unknown("word", node.value, sorted(language.WORDS)))
                return
            if isinstance(node.value, bool) and not is_named:
                raise self.refuse(node, f"Give {node.value} by its name, as in keepdim={node.value}.")
        self.value(node, depth)
        number = self.numbers.get(node)
        if isinstance(number, int) and abs(number) > LARGEST_WHOLE:
            raise self.refuse(node, f"A whole number beyond {LARGEST_WHOLE:,} as an argument: write {float(number):g}.")

    def subscript(self, node: ast.Subscript, depth: int) -> None:
        self.tensor(node.value, depth)
        index = node.slice
        for each in index.elts if isinstance(index, ast.Tuple) else [index]:
            for part in (each.lower, each.upper, each.step) if isinstance(each, ast.Slice) else (each,):
                self.place(part, depth)

    def place(self, node: ast.expr | None, depth: int) -> None:
        """A whole number between brackets, ``...`` or None."""
        if node is None or (isinstance(node, ast.Constant) and node.value in (None, ...)):
            return
        self.value(node, depth)
        number = self.numbers.get(node)
        if not isinstance(number, int) or isinstance(number, bool) or abs(number) > LARGEST_WHOLE:
            raise self.refuse(node, "Between brackets there are whole numbers and slices of them.")

    def operation(self, node: ast.BinOp, depth: int) -> None:
        if not isinstance(node.op, ARITHMETIC):
            raise self.refuse(node, f"{_called(node.op)} is not arithmetic of tensors.")
        self.value(node.left, depth)
        self.value(node.right, depth)
        if node.left in self.numbers and node.right in self.numbers:
            self.numbers[node] = self.computed(node, node.op, self.numbers[node.left], self.numbers[node.right])

    def computed(self, node: ast.BinOp, op: ast.operator, one: Number, other: Number) -> Number:
        if type(op) not in _OF_NUMBERS:
            raise self.refuse(node, f"{_called(op)} is for tensors, not for numbers.")
        if (
            isinstance(op, ast.Pow)
            and isinstance(one, int)
            and isinstance(other, int)
            and _bits(one, other) > MOST_BITS
        ):
            raise self.refuse(node, "This power is too large.")
        try:
            found = _OF_NUMBERS[type(op)](one, other)
        except (ArithmeticError, ValueError) as error:
            raise self.refuse(node, f"{error}.".capitalize()) from None
        if isinstance(found, complex):
            raise self.refuse(node, "This is no real number.")
        if isinstance(found, int) and found.bit_length() > MOST_BITS:
            raise self.refuse(node, "This number is too large.")
        return found

    def sign(self, node: ast.UnaryOp, depth: int) -> None:
        if not isinstance(node.op, SIGNS):
            raise self.refuse(node, "`not` is for Python's truths: for tensors write ~.")
        self.value(node.operand, depth)
        if node.operand in self.numbers:
            if isinstance(node.op, ast.Invert):
                raise self.refuse(node, "~ is for tensors, not for numbers.")
            number = self.numbers[node.operand]
            self.numbers[node] = -number if isinstance(node.op, ast.USub) else +number

    def comparison(self, node: ast.Compare, depth: int) -> None:
        if len(node.ops) > 1:
            raise self.refuse(node, "One comparison at a time: write (a < b) & (b < c).")
        if not isinstance(node.ops[0], COMPARISONS):
            raise self.refuse(node, f"{_called(node.ops[0])} is no comparison of tensors.")
        self.value(node.left, depth)
        self.value(node.comparators[0], depth)

    def choice(self, node: ast.IfExp, depth: int) -> None:
        for each in (node.test, node.body, node.orelse):
            self.value(each, depth)


_LOOKS: tuple[tuple[type[ast.expr], Any], ...] = (
    (ast.Constant, _Check.constant),
    (ast.Name, _Check.name),
    (ast.Attribute, _Check.field),
    (ast.Call, _Check.call),
    (ast.Subscript, _Check.subscript),
    (ast.BinOp, _Check.operation),
    (ast.UnaryOp, _Check.sign),
    (ast.Compare, _Check.comparison),
    (ast.IfExp, _Check.choice),
)
_OF_NUMBERS: dict[type[ast.operator], Any] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.Div: lambda a, b: a / b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
    ast.Pow: lambda a, b: a**b,
}
_WORDS = {
    "Lambda": "A lambda",
    "NamedExpr": "An assignment",
    "JoinedStr": "An f-string",
    "ListComp": "A comprehension",
    "SetComp": "A comprehension",
    "DictComp": "A comprehension",
    "GeneratorExp": "A comprehension",
    "List": "A list",
    "Tuple": "A tuple",
    "Dict": "A dictionary",
    "Set": "A set",
    "Starred": "*",
    "BoolOp": "`and` and `or`, for which tensors have & and |,",
    "LShift": "<<",
    "RShift": ">>",
    "BitXor": "^",
    "BitAnd": "&",
    "BitOr": "|",
    "MatMult": "@",
}


def _bits(base: Number, exponent: Number) -> int:
    """Of a power of whole numbers, at most; others are of one size."""
    return base.bit_length() * abs(exponent) if isinstance(base, int) and isinstance(exponent, int) else 0


def _called(node: ast.AST) -> str:
    kind = type(node).__name__
    return _WORDS.get(kind, f"`{kind.lower()}`")


def _unknown_function(name: str, known: list[str]) -> str:
    message = unknown("function", name, known).partition(" Known: ")[0]
    return f"{message} It is not among those that an expression may call: see docs/explain.md."
