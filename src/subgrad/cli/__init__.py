"""The command line: one file for each command."""

from __future__ import annotations

import argparse
import os
import shlex
import sys
from collections.abc import Sequence

from subgrad.cli import audit, bench, build, explain, run, survey


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is returned."""
    given = sys.argv[1:] if arguments is None else arguments
    options = _parser().parse_args(given, argparse.Namespace(line=shlex.join(("subgrad", *given))))
    try:
        found = options.command(options)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read has enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return found


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="subgrad", description="Every kink in your PyTorch program.")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in (survey, explain, run, audit, bench, build):
        command.add(commands)
    return parser
