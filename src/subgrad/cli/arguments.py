"""What commands are given: programs, conventions, whole numbers, files to write.

Nothing here imports torch before a command runs, so that ``--help`` answers at once.
"""

from __future__ import annotations

import argparse
import os
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from subgrad.conventions import Convention

# The names of conventions.RULES, which cannot be asked without torch.
CONVENTIONS = (
    "min-norm",
    "documented",
    "torch",
    "torch-2.13",
    "torch-2.14",
    "jax",
    "tensorflow",
    "mlx",
    "paddle",
    "left",
    "right",
    "mean",
    "pass-through",
    "straight-through",
)
SWITCHES = ("surrogate", "strong_zero")


class Parser(argparse.ArgumentParser):
    """Errors are one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: error: {message}\n")


class CannotWrite(Exception):  # noqa: N818
    """A file that cannot be written, and why, in one line."""


def new_command(commands: Any, name: str, summary: str, description: str, *examples: str) -> Parser:
    """A command with its description, and examples, under ``--help``."""
    shown = "\n".join(f"  {each}" for each in examples)
    return commands.add_parser(
        name,
        help=summary,
        description=textwrap.fill(description, 100),
        epilog=f"examples:\n{shown}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )


def takes_program(command: Parser) -> None:
    """A script or, after ``-m``, a module, and its own arguments: all that follows."""
    command.add_argument("-m", metavar="MODULE", help="a module, as python -m runs it; its own arguments follow")
    program = command.add_argument(
        "program", nargs=argparse.PARSER, metavar="SCRIPT", help="the Python script; its own arguments follow"
    )
    program.required = False  # after -m there is none
    command.set_defaults(is_module=False, refuse=command.error)


def with_program(parser: argparse.ArgumentParser, given: list[str], options: argparse.Namespace) -> argparse.Namespace:
    """Parse a line that may hold ``-m``: the first is ours where no script comes before, and the rest the module's."""
    place = next((number for number, each in enumerate(given) if each.startswith("-m")), None)
    if place is not None and given[0] in ("run", "audit"):
        options = parser.parse_args(given[:place], options)
        if options.program is None:
            program = [*filter(None, [given[place][2:]]), *given[place + 1 :]]
            if not program:
                options.refuse("argument -m: expected one argument")
            options.program, options.is_module = program, True
            return options
    options = parser.parse_args(given, options)
    if getattr(options, "program", ()) is None:
        options.refuse("give a script, or a module after -m")
    return options


def takes_convention(command: argparse.ArgumentParser, default: str = "min-norm") -> None:
    command.add_argument(
        "--convention",
        type=convention,
        default=default,
        metavar="NAME[,OPERATOR=CHOICE...][,surrogate][,strong_zero]",
        help=f"one of {', '.join(CONVENTIONS)}, and what single operators do instead (default: %(default)s)",
    )


def convention(text: str) -> Convention:
    """``min-norm,relu=1.0,clamp=pass-through`` as a convention."""
    from subgrad.conventions import Convention

    name, *options = text.split(",")
    overrides = [option for option in options if option not in SWITCHES]
    switches = {switch: switch in options for switch in SWITCHES}
    try:
        return Convention(name, [_override(each) for each in overrides], **switches)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def split_conventions(text: str) -> list[str]:
    """``torch-2.13,min-norm,relu=1.0`` as ``torch-2.13`` and ``min-norm,relu=1.0``."""
    found: list[str] = []
    for part in text.split(","):
        if found and ("=" in part or part == "surrogate"):
            found[-1] += f",{part}"
        else:
            found.append(part)
    return found


def _override(text: str) -> tuple[str, str | float]:
    operator, equals, choice = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r}: write OPERATOR=CHOICE, as in clamp=pass-through or relu=1.0")
    try:
        return operator, float(choice)
    except ValueError:
        return operator, choice


def whole(text: str, least: int, most: int) -> int:
    if not text.isdecimal() or not least <= int(text) <= most:
        raise argparse.ArgumentTypeError(f"{text!r} is no whole number from {least} to {most}")
    return int(text)


def file(text: str) -> Path:
    """Where something can be written: known before anything is measured."""
    path = Path(text)
    if path.is_dir():
        raise argparse.ArgumentTypeError(f"{text!r} is a folder: name a file")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise argparse.ArgumentTypeError(f"{text!r} cannot be written: {str(path.parent)!r} is no folder to write to")
    return path


def write(path: Path, content: bytes) -> None:
    """The whole file or nothing.

    Raises:
        CannotWrite: where the folder or the disk takes nothing.
    """
    part = path.with_name(f"{path.name}.part")
    try:
        part.write_bytes(content)
        part.replace(path)
    except OSError as error:
        raise CannotWrite(f"{str(path)!r} cannot be written: {error.strerror}") from error


def of_rank(path: Path) -> Path:
    """A file for each rank, where torchrun or the like started this process as one of several."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return path
    return path.with_name(f"{path.stem}.rank{os.environ.get('RANK', '0')}{path.suffix}")
