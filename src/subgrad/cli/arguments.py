"""What commands are given: conventions, whole numbers, files to write."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from subgrad.conventions import RULES, Convention

SWITCHES = ("surrogate", "strong_zero")


def takes_convention(command: argparse.ArgumentParser, default: str = "min-norm") -> None:
    command.add_argument(
        "--convention",
        type=convention,
        default=default,
        metavar="NAME[,OPERATOR=CHOICE...][,surrogate][,strong_zero]",
        help=f"one of {', '.join(RULES)}, and what single operators do instead (default: %(default)s)",
    )


def convention(text: str) -> Convention:
    """``min-norm,relu=1.0,clamp=pass-through`` as a convention."""
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
    """The whole file or nothing."""
    part = path.with_name(f"{path.name}.part")
    part.write_bytes(content)
    part.replace(path)


def of_rank(path: Path) -> Path:
    """A file for each rank, where torchrun or the like started this process as one of several."""
    if int(os.environ.get("WORLD_SIZE", "1")) < 2:
        return path
    return path.with_name(f"{path.stem}.rank{os.environ.get('RANK', '0')}{path.suffix}")
