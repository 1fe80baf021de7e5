"""A program in a fresh process, whose time does not go to importing torch.

Dozens of tests need a process where nothing of subgrad has happened yet. Each would import torch, which takes a second,
and what `torch.compile` needs, which takes two more. So one process imports that once and does nothing else; for every
program it forks a copy of itself, which runs the program as `python -c` would, and ends as a process does, but for
taking down its modules.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import json
import os
import subprocess
import sys
import tempfile
import threading
import types
import warnings
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

COMPILER = ("torch._dynamo", "torch._inductor.compile_fx")
MODULE = """
import os, runpy, sys

_, module, folder, *sys.argv[1:] = sys.argv
os.chdir(folder)
sys.path[0] = folder
runpy.run_module(module, None, "__main__", True)
"""


def run_module(
    module: str, *arguments: str, cwd: Path, warn: str = "default", **others: Any
) -> subprocess.CompletedProcess[str]:
    """What ``python -m`` does in a folder, in a process that need not import torch again."""
    return run_fresh(MODULE, module, str(cwd), *arguments, warn=warn, **others)


def run_fresh(
    program: str,
    *arguments: str,
    imported: tuple[str, ...] = ("torch",),
    warn: str = "ignore",
    **environment: str | None,
) -> subprocess.CompletedProcess[str]:
    """Run a program where these modules are imported and nothing else is.

    ``warn`` is what follows ``python -W``; variables of the environment that are None are unset.
    """
    server = _server(imported)
    assert server.stdin is not None
    assert server.stdout is not None
    with tempfile.TemporaryDirectory() as folder:
        request = {
            "program": program,
            "arguments": ["-c", *arguments],
            "environment": {name: value for name, value in {**os.environ, **environment}.items() if value is not None},
            "warn": warn,
            "folder": folder,
        }
        server.stdin.write(json.dumps(request) + "\n")
        server.stdin.flush()
        ended = int(server.stdout.readline())
        output, errors = ((Path(folder) / name).read_text() for name in ("1", "2"))
    return subprocess.CompletedProcess(["python", *request["arguments"]], ended, output, errors)


@cache
def _server(imported: tuple[str, ...]) -> subprocess.Popen[str]:
    """It ends with the process that started it, which closes the pipe."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path), "PYTHONDONTWRITEBYTECODE": ""}
    command = [sys.executable, "-W", "ignore", "-m", "fresh", *imported]
    return subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def _serve(imported: list[str]) -> None:
    """Answer every line with the exit code of the program in it."""
    for name in imported:
        importlib.import_module(name)
    gc.freeze()  # what copies share is not looked through when they end, which would take as long as to import it
    for line in sys.stdin:
        copy = os.fork()
        if not copy:
            _end(_become(json.loads(line)))
        _, status = os.waitpid(copy, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


def _become(request: dict[str, Any]) -> int:
    """Run the program, and say with which exit code it ends."""
    for number in (1, 2):
        file = os.open(os.path.join(request["folder"], str(number)), os.O_WRONLY | os.O_CREAT)
        os.dup2(file, number)
    os.environ.clear()
    os.environ.update(request["environment"])
    sys.argv = request["arguments"]
    warnings.simplefilter(request["warn"])
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    try:
        exec(compile(request["program"], "<string>", "exec"), main.__dict__)
    except SystemExit as stopped:
        if stopped.code is None or isinstance(stopped.code, int):
            return stopped.code or 0
        print(stopped.code, file=sys.stderr)
        return 1
    except BaseException:
        sys.excepthook(*sys.exc_info())  # pyright: ignore[reportArgumentType]
        return 1
    return 0


def _end(code: int) -> NoReturn:
    """As a process does, but for its modules: to take them down one by one takes ten times as long as all the rest."""
    threading._shutdown()  # pyright: ignore[reportAttributeAccessIssue]
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code & 0xFF)


if __name__ == "__main__":
    _serve(sys.argv[1:])
