"""``subgrad build``: the part in C++, for the installed torch."""

from __future__ import annotations

import argparse
import logging
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch


def add(commands: Any) -> None:
    build = commands.add_parser(
        "build", help="compile what answers small calls without Python, once for the installed torch"
    )
    build.set_defaults(command=_build)


def _build(options: argparse.Namespace) -> int:
    from subgrad.kernels.native import build

    if build.library().exists():
        print(f"Built already: {build.library()}")
        return 0
    logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # it tells of what is not needed here
    try:
        with _waiting(f"compiling for torch {torch.__version__}, about half a minute"):
            found = build.build()
    except build.BuildError as error:
        print(f"subgrad build: {error}", file=sys.stderr)
        return 1
    print(f"Built: {found}. Processes that start from now on use it; SUBGRAD_FRONT=never keeps one from it.")
    return 0


def _waiting(message: str) -> AbstractContextManager[Any]:
    """Something that moves, on a terminal."""
    try:
        from rich.console import Console
    except ModuleNotFoundError:
        print(message, file=sys.stderr)
        return nullcontext()
    return Console(stderr=True).status(message)
