"""The command line: one file for each command."""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import signal
import sys
import warnings
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version

from subgrad.cli import audit, bench, build, explain, run, survey
from subgrad.cli.arguments import CannotWrite, Parser, with_program
from subgrad.script import CannotRun
from subgrad.version import __version__

INTERRUPTED = 130  # as of what a shell has interrupted


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; the exit code is returned."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    name = " ".join(("subgrad", *given[:1]))
    try:
        with _ending_at_once(name):
            options = _parsed(given)
        found = options.command(options)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever read has enough, as `head` has
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except (CannotRun, CannotWrite) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        _say_interrupted(name)
        return INTERRUPTED
    return found


def _say_interrupted(name: str) -> None:
    print(f"{name}: interrupted", file=sys.stderr, flush=True)


@contextmanager
def _ending_at_once(name: str) -> Generator[None]:
    """While torch is imported, Ctrl-C ends the process: an exception aborts what is initialised in C++, or is lost."""

    def end(*_: object) -> None:
        _say_interrupted(name)
        os._exit(INTERRUPTED)

    if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:  # somebody else handles it, or nobody may
        yield
        return
    signal.signal(signal.SIGINT, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _parsed(given: list[str]) -> argparse.Namespace:
    """The options, with torch loaded, which says where there is no NumPy what none of these commands needs."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Failed to initialize NumPy")
        options = with_program(_parser(), given or ["--help"], argparse.Namespace(line=shlex.join(("subgrad", *given))))
        import torch  # noqa: F401  # pyright: ignore[reportUnusedImport]
    return options


def _parser() -> Parser:
    parser = Parser(
        prog="subgrad",
        description="Every kink in your PyTorch program: chosen, seen, proven, and fast.",
        epilog="subgrad COMMAND --help says more of each, with examples.",
    )
    parser.add_argument("--version", action="version", version=_versions())
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for command in (survey, explain, run, audit, bench, build):
        command.add(commands)
    return parser


def _versions() -> str:
    try:
        torchs = version("torch")
    except PackageNotFoundError:
        torchs = "is missing"
    return f"subgrad {__version__}, torch {torchs}, Python {platform.python_version()}"
