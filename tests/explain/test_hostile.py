"""Texts that are meant to run something: each is refused with its place, and nothing of it runs."""

from __future__ import annotations

import ast
import random
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from subgrad.cli import main
from subgrad.explain import language
from subgrad.explain.expression import Expression
from subgrad.explain.parsing import Mistake
from subgrad.explain.points import point

HOSTILE = {
    # ways out of a tensor
    "data": "x.data",
    "data called": "x.data.fill_(1)",
    "class": "x.__class__",
    "dunder chain": "x.__class__.__mro__[1].__subclasses__()",
    "dunder on a number": "(1).__class__.__base__",
    "dunder on a list": "[].__class__.__base__.__subclasses__()",
    "globals of a function": "torch.tensor.__globals__",
    "globals of a method": "x.relu.__globals__",
    "self of a method": "torch.relu.__self__",
    "grad_fn": "x.grad_fn",
    "storage": "x.untyped_storage()",
    "numpy": "x.numpy()",
    "item": "x.item()",
    "apply_": "x.apply_(abs)",
    "register_hook": "x.register_hook(print)",
    "backward": "x.backward()",
    "in place": "x.relu_()",
    "requires_grad_": "x.requires_grad_()",
    "reduce": "x.__reduce_ex__(2)",
    "torch function": "x.__torch_function__",
    # getattr, in all ways
    "getattr": "getattr(x, 'data')",
    "getattr of builtins": "__builtins__['getattr'](x, 'data')",
    "getattribute": "x.__getattribute__('data')",
    "object getattribute": "object.__getattribute__(x, 'data')",
    "type getattribute": "type(x).__getattribute__(x, 'data')",
    "vars": "vars(torch)['load']",
    "dict of torch": "torch.__dict__['load']",
    "getattr of torch": "torch.__getattr__('load')",
    "methodcaller": "operator.methodcaller('relu_')(x)",
    "full-width letters": "\uff58.\uff44\uff41\uff54\uff41",
    "confusable name": "t\u043erch.load('x')",
    # modules
    "import": "__import__('os').system('touch hostile')",
    "import statement": "import os",
    "torch's own modules": "torch.os.system('touch hostile')",
    "sys of torch": "torch.sys.modules",
    "nested module": "torch.nn.functional.torch.load('x')",
    "F to torch": "F.torch.load('x')",
    "ops": "torch.ops.aten.relu(x)",
    "load_library": "torch.ops.load_library('x.so')",
    "C": "torch._C._jit_clear_class_registry()",
    "classes": "torch.classes.load_library('x.so')",
    # functions of torch
    "load": "torch.load('hostile')",
    "save": "torch.save(x, 'hostile')",
    "from_file": "torch.from_file('hostile', size=1)",
    "hub": "torch.hub.load('a/b', 'c')",
    "compile": "torch.compile(x)",
    "jit": "torch.jit.load('hostile')",
    "set_default_dtype": "torch.set_default_dtype(torch.float64)",
    "manual_seed": "torch.manual_seed(0)",
    "set_num_threads": "torch.set_num_threads(1)",
    "zeros": "torch.zeros(10**9)",
    "empty": "torch.empty(10, 10)",
    "full": "torch.full((10,), 1.0)",
    "arange": "torch.arange(10)",
    "eye": "torch.eye(10)",
    "rand": "torch.rand(3)",
    "dropout": "F.dropout(x)",
    "repeat": "x.repeat(1000000)",
    "expand": "x.expand(1000000)",
    "new_zeros": "x.new_zeros(1000000)",
    "pad": "F.pad(x, (1000000, 0))",
    "one_hot": "F.one_hot(x, 1000000)",
    "interpolate": "F.interpolate(x, 1000000)",
    "vmap": "torch.vmap(x)",
    "autograd": "torch.autograd.grad(x, x)",
    "inplace by name": "F.relu(x, inplace=True)",
    "inplace by place": "F.relu(x, True)",
    "inplace by number": "F.relu(x, 1)",
    "out": "torch.relu(x, out=x)",
    "renormalises its weight": "F.embedding_bag(x, x, None, 1.0)",
    "device": "torch.tensor(1.0, device='cuda')",
    # Python
    "lambda": "lambda: 0",
    "lambda with defaults": "(lambda a=__import__('os'): a)()",
    "lambda as an argument": "torch.relu(lambda: x)",
    "comprehension": "[a for a in x]",
    "generator": "torch.stack(a for a in x)",
    "comprehension of classes": "[c for c in ().__class__.__base__.__subclasses__()]",
    "walrus": "(y := x)",
    "f-string": "f'{x}'",
    "f-string with a call": "f'{__import__(\"os\").system(\"touch hostile\")}'",
    "format": "'{0.__class__}'.format(x)",
    "percent": "'%s' % x",
    "string arithmetic": "'a' * 10**9",
    "list arithmetic": "[0] * 10**9",
    "print": "print(x)",
    "open": "open('hostile', 'w')",
    "exec": "exec('import os')",
    "eval": "eval('1')",
    "breakpoint": "breakpoint()",
    "exit": "exit()",
    "sum": "sum([x, x])",
    "starred": "torch.stack(*[x])",
    "double starred": "torch.relu(**{'input': x})",
    "dictionary": "{'a': x}",
    "set": "{x}",
    "await": "await x",
    "yield": "(yield x)",
    "two statements": "x; x",
    "two lines": "x\nx",
    "a comment that hides a line": "x # \r import os",
    "nul": "x\0",
    "calling a number": "1(x)",
    "calling an entry": "[torch.relu][0](x)",
    "calling an input": "x(1)",
    "a function as a value": "torch.relu",
    "a module as a value": "torch",
    # sizes
    "huge power": "9**9**9",
    "huge power with sign": "(-9)**9**9",
    "huge power of a power": "(2**1000)**1000",
    "huge product": "2**1000 * 2**1000",
    "huge number": "1" + "0" * 1500,
    "huge shift": "1 << 10**9",
    "huge whole argument": "x.reshape(10**9)",
    "huge place": "x[10**9]",
    "very long": "x+" * 5000 + "x",
    "very deep": "(" * 300 + "x" + ")" * 300,
    "very deep signs": "-" * 1500 + "x",
    "very deep sums": "x" + "+x" * 500,
    "very deep lists": "torch.tensor(" + "[" * 150 + "1" + "]" * 150 + ")",
}  # fmt: skip

# Python tells a hook of all that it runs, opens, imports or starts. To parse is "compile"; to ask for a signature reads
# attributes, and is done before.
IGNORED = ("compile", "builtins.id")
for _function in (*language.FUNCTIONS.values(), *language.METHODS.values()):
    language.parameters(_function)
_recording: list[str] | None = None


def _hook(event: str, arguments: tuple[Any, ...]) -> None:
    if _recording is not None and event not in IGNORED:
        _recording.append(f"{event} {arguments!r}"[:200])


sys.addaudithook(_hook)


class Calls(TorchDispatchMode):
    """Every operator of torch that runs."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.seen.append(str(func))
        return func(*args, **(kwargs or {}))


@contextmanager
def nothing_runs() -> Iterator[None]:
    global _recording
    with Calls() as calls:
        _recording = seen = []
        try:
            yield
        finally:
            _recording = None
    assert (seen, calls.seen) == ([], [])


KNOWN = ("x", "y")
HARMLESS = "torch.clamp(x, min=0) + F.relu(y)"


def test_the_recorder_sees_what_runs() -> None:
    with pytest.raises(AssertionError), nothing_runs():
        torch.zeros(1)
    with pytest.raises(AssertionError), nothing_runs():
        Path(__file__).open().close()


def test_reading_an_expression_runs_nothing() -> None:
    with nothing_runs():
        assert Expression.of(HARMLESS, KNOWN).names == ("x", "y")


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_expression_is_refused_and_nothing_runs(name: str) -> None:
    with nothing_runs(), pytest.raises(Mistake) as refused:
        Expression.of(HOSTILE[name], KNOWN)
    why, *shown = str(refused.value).splitlines()
    assert why
    assert len(shown) == 2
    text, carets = shown
    assert set(carets.strip()) == {"^"}
    assert max(len(text), len(carets)) <= 80


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_point_is_refused_and_nothing_runs(name: str) -> None:
    with nothing_runs(), pytest.raises(Mistake):
        point([f"x={HOSTILE[name]}"])


@pytest.mark.parametrize(
    "name", ["import", "lambda with defaults", "f-string with a call", "open", "save", "huge power"]
)
def test_the_command_refuses_with_exit_code_2(
    name: str, capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["explain", HOSTILE[name], "--at", "x=0"]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.startswith("subgrad explain: ")
    assert len(printed.err.splitlines()) == 3
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "at", ["torch=1", "F=1", "_=1", "__class__=1", "x", "x=", "=1", "x=y", "x=True", "1=1", "x y=1"]
)
def test_what_is_no_point_is_refused(at: str) -> None:
    with pytest.raises(Mistake):
        point([at])


PIECES = """
    x y torch F . . ( ) ( ) [ ] , = * ** + - @ : 0 1e9 relu clamp load data __class__ __globals__ tensor linalg norm min
    dim lambda if else for in := 'a' f'{x}' { } not and < == ~ & None True ... T
""".split()  # noqa: SIM905
ALLOWED = {getattr(ast, name) for name in """
    Constant Name Attribute Call keyword Subscript Slice List Tuple BinOp UnaryOp Compare IfExp Load Add Sub Mult Div
    FloorDiv Mod Pow MatMult BitAnd BitOr UAdd USub Invert Gt GtE Lt LtE Eq NotEq
""".split()}  # fmt: skip  # noqa: SIM905


@pytest.mark.filterwarnings("ignore::SyntaxWarning")
def test_random_texts_are_refused_or_hold_nothing_but_what_is_listed() -> None:
    draw, accepted = random.Random(0), 0
    for _ in range(20_000):
        text = "".join(draw.choice(PIECES) for _ in range(draw.randint(1, 9)))
        try:
            expression = Expression.of(text, KNOWN)
        except Mistake:
            continue
        accepted += 1
        for node in ast.walk(expression.tree):
            assert type(node) in ALLOWED, text
            if isinstance(node, ast.Name):
                assert node.id in (*KNOWN, "torch", "F"), text
            if isinstance(node, ast.Attribute):
                listed = {each for path in language.FUNCTIONS for each in path.split(".")}
                fields = {*language.TENSOR_FIELDS, *language.RESULT_FIELDS, *language.METHODS}
                assert node.attr in {*listed, *fields, "tensor", "nn", "functional", "pi", "e", "inf", "nan"}, text
    assert accepted > 200
