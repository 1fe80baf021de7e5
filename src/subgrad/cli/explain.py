"""``subgrad explain``: an operator, an expression at a point, or the difference of two."""

from __future__ import annotations

import argparse
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from subgrad.cli.arguments import file, new_command, write
from subgrad.extras import missing

if TYPE_CHECKING:
    import torch

    from subgrad.explain.profile import Profile

DTYPES = ("float64", "float32", "bfloat16", "float16")
PICTURES = ("png", "svg")
FINE = 200  # places on each side of the point in a picture that is a file


def add(commands: Any) -> None:
    explain = new_command(
        commands,
        "explain",
        "an operator, an expression at a point, or why two differ",
        "Say what a kink is, and what torch, each convention and other frameworks return there: of an operator, of an "
        "expression at a point, or of two expressions that are equal and whose gradients are not.",
        "subgrad explain clamp",
        "subgrad explain 'F.relu(x) - F.relu(-x)' --at x=0",
        "subgrad explain 'F.relu(x)' 'torch.clamp(x, min=0)' --at 'x=[0, 1]'",
    )
    explain.add_argument(
        "subjects",
        nargs="+",
        metavar="OPERATOR|EXPRESSION",
        help="one, or two expressions; one that begins with a minus in parentheses",
    )
    explain.add_argument(
        "--at", nargs="+", default=[], metavar="NAME=VALUE", help="the inputs: x=0, or w=[[3,2,1],[1,0,2]]"
    )
    explain.add_argument(
        "--wrt", nargs="+", default=[], metavar="NAME", help="those to differentiate in (default: all)"
    )
    explain.add_argument("--dtype", choices=DTYPES, default="float64", help="of the inputs (default: %(default)s)")
    explain.add_argument(
        "--radius", type=_positive, default=1.0, metavar="R", help="how far around the point the picture goes"
    )
    explain.add_argument("--picture", type=_picture, metavar="FILE.png|svg", help="draw values and slopes into a file")
    explain.set_defaults(command=_explain, parser=explain)


def _positive(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        number = 0.0
    if not 0 < number < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is no positive number")
    return number


def _picture(text: str) -> Path:
    if Path(text).suffix[1:] not in PICTURES:
        raise argparse.ArgumentTypeError(f"{text!r} is no picture: name it .{' or .'.join(PICTURES)}")
    return file(text)


def _explain(options: argparse.Namespace) -> int:
    from subgrad.explain.operators import is_operator
    from subgrad.explain.parsing import Mistake

    subjects = options.subjects
    if len(subjects) > 2:
        options.parser.error("give one operator, or one or two expressions")
    if options.picture and find_spec("matplotlib") is None:
        print(missing("subgrad explain draws its picture with", "matplotlib"), file=sys.stderr)
        return 2
    is_name = len(subjects) == 1 and not options.at and is_operator(subjects[0])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says of some operators that they are new, or were called so before
            return _operator(options) if is_name else _expressions(options)
    except Mistake as error:
        print(f"subgrad explain: {error}", file=sys.stderr)
        return 2


def _operator(options: argparse.Namespace) -> int:
    from subgrad.explain.operators import operator
    from subgrad.report import explain_operator

    if options.picture:
        options.parser.error("argument --picture: of an expression, with --at")
    try:
        print(explain_operator.text(operator(options.subjects[0])))
    except KeyError as error:
        message = error.args[0].partition(" Known: ")[0]
        print(f"subgrad explain: {message} subgrad survey lists all of them.", file=sys.stderr)
        return 2
    return 0


def _expressions(options: argparse.Namespace) -> int:
    import torch

    from subgrad.explain.points import point
    from subgrad.explain.profile import profile
    from subgrad.explain.program import explain
    from subgrad.report import explain_text

    dtype = getattr(torch, options.dtype)
    inputs = point(options.at, dtype)
    unknown = [name for name in options.wrt if name not in inputs]
    if unknown:
        options.parser.error(f"argument --wrt: {unknown[0]!r} is not among what --at names: {', '.join(inputs)}")
    if len(options.subjects) == 2:
        return _two(options, inputs, dtype)
    found = explain(options.subjects[0], inputs, options.wrt, dtype)
    print(explain_text.text(found, profile(found, inputs, options.radius, dtype)))
    if options.picture:
        fine = profile(found, inputs, options.radius, dtype, FINE)
        _draw(options.picture, [] if fine is None else [fine])
    return 0


def _two(options: argparse.Namespace, inputs: dict[str, torch.Tensor], dtype: torch.dtype) -> int:
    from subgrad.explain.difference import difference
    from subgrad.explain.profile import profiles
    from subgrad.report import explain_difference

    first, second = options.subjects
    found = difference(first, second, inputs, options.wrt, dtype)
    print(explain_difference.text(found))
    if options.picture:
        _draw(options.picture, list(profiles(found, inputs, options.radius, dtype, FINE)))
    return 0


def _draw(path: Path, drawn: list[Profile]) -> None:
    from subgrad.report.explain_picture import picture

    write(path, picture(drawn, path.suffix[1:]))
    print(f"written: {path}", file=sys.stderr)
