"""``subgrad build``: the part in C++, for the installed torch."""

from __future__ import annotations

import argparse
import logging
import sys
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from subgrad.cli.arguments import new_command


def add(commands: Any) -> None:
    build = new_command(
        commands,
        "build",
        "compile what answers small calls without Python, once for the installed torch",
        "Compile the part in C++ for the installed torch, which takes half a minute and a C++ compiler. Gradients are "
        "the same without it; small calls are slower. SUBGRAD_FRONT=never keeps a process from using it.",
        "subgrad build",
        "CXX=clang++ subgrad build",
    )
    build.set_defaults(command=_build)


def _build(options: argparse.Namespace) -> int:
    import torch

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
    if sys.stderr.isatty():
        try:
            from rich.console import Console
        except ModuleNotFoundError:
            pass
        else:
            return Console(stderr=True).status(message)
    print(message, file=sys.stderr)
    return nullcontext()
