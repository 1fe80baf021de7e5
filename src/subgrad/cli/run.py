"""``subgrad run``: an unchanged script under a convention."""

from __future__ import annotations

import argparse
from typing import Any

from subgrad.cli.arguments import takes_convention


def add(commands: Any) -> None:
    run = commands.add_parser("run", help="an unchanged script under a convention")
    run.add_argument("script", help="the Python script")
    run.add_argument("arguments", nargs=argparse.REMAINDER, help="its own arguments")
    takes_convention(run)
    run.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from subgrad.apply.use import set_default
    from subgrad.script import run_script

    set_default(options.convention)
    return run_script(options.script, options.arguments)
