"""``subgrad run``: an unchanged program under a convention."""

from __future__ import annotations

import argparse
from typing import Any

from subgrad.cli.arguments import new_command, takes_convention, takes_program


def add(commands: Any) -> None:
    run = new_command(
        commands,
        "run",
        "an unchanged script or module under a convention",
        "Run a script or module as python does, with the elements of a convention at every kink. Forward values never "
        "change, nor do gradients anywhere else.",
        "subgrad run --convention torch-2.13 train.py --epochs 3",
        "subgrad run --convention min-norm,clamp=pass-through -m package.train",
    )
    takes_convention(run)
    takes_program(run)
    run.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from subgrad.apply.use import set_default
    from subgrad.script import run_program

    set_default(options.convention)
    return run_program(options.program, options.is_module)
