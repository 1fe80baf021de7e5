"""Pages of the documentation whose samples of commands are printed by these commands."""

from __future__ import annotations

import contextlib
import io
import re
import shlex

from subgrad.cli import main

COMMAND = re.compile(r"```sh\n(subgrad (?:explain|survey) .*?)\n```\n\n```text\n.*?```", re.DOTALL)
TORCH = re.compile(r"\btorch (\d+\.\d+\.\d+) here\b")


def filled(page: str) -> str:
    """The page with what each command prints now below it."""
    return COMMAND.sub(lambda found: f"```sh\n{found[1]}\n```\n\n```text\n{_printed(found[1])}```", page)


def _printed(command: str) -> str:
    _, *arguments = shlex.split(command.replace("\\\n", " "))
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        assert main(arguments) == 0, command
    return printed.getvalue()
