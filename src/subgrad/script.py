"""Run a program as python does, script or module: its own ``sys.argv``, ``__main__``, exit code and tracebacks."""

from __future__ import annotations

import builtins
import os
import runpy
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any, cast

INTERRUPTED = 130  # as of what a shell has interrupted


@dataclass(frozen=True)
class Program:
    """What is run as ``__main__``."""

    path: str
    code: types.CodeType
    spec: ModuleSpec | None = None


class CannotRun(ImportError):  # noqa: N818
    """There is no such script or module to run, in one line."""


def run_program(
    given: Sequence[str],
    is_module: bool = False,
    command: str = "run",
    before_error: Callable[[], None] = lambda: None,
) -> int:
    """Run a script or module to its end in this process; the exit code is returned, ``SystemExit`` passes.

    Args:
        given: its path or name, and its own arguments.
        command: of ours, for messages.
        before_error: called before anything is printed of an error.

    Raises:
        CannotRun: where there is none, before anything is run.
    """
    name, *arguments = given
    try:
        program = _module(name, arguments) if is_module else _script(name, arguments)
    except (CannotRun, SystemExit):
        raise
    except BaseException as error:
        before_error()
        return _ended_by(error, command)
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=program.path, __builtins__=builtins, __spec__=program.spec, __cached__=None)
    if program.spec is not None:
        main.__dict__.update(
            __loader__=program.spec.loader, __package__=program.spec.parent, __cached__=program.spec.cached
        )
    sys.modules["__main__"] = main  # where pickles and spawned processes look for the script's own classes
    try:
        exec(program.code, main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        before_error()
        return _ended_by(error, command)
    return 0


def _script(path: str, arguments: list[str]) -> Program:
    try:
        source = Path(path).read_bytes()
    except OSError as error:
        raise CannotRun(f"can't open {path!r}: {error.strerror}") from None
    sys.argv = [path, *arguments]
    _look_first_in(os.path.dirname(os.path.realpath(path)))
    path = os.path.abspath(path)
    return Program(path, compile(source, path, "exec"))


def _module(name: str, arguments: list[str]) -> Program:
    sys.argv = ["-m", *arguments]  # as packages see it that are imported on the way
    _look_first_in(os.getcwd())
    # Which pdb and trace of Python's own library ask as well. A package is its module __main__.
    found: Any = runpy._get_module_details(name, CannotRun)  # type: ignore[attr-defined]
    _, spec, code = cast("tuple[str, ModuleSpec, types.CodeType]", found)
    sys.argv[0] = spec.origin or name
    return Program(sys.argv[0], code, spec)


def _look_first_in(folder: str) -> None:
    if not getattr(sys.flags, "safe_path", False):  # new in Python 3.11
        sys.path[0] = folder


def _ended_by(error: BaseException, command: str) -> int:
    """The program's frames only, shown by whatever hook it has set; of an interrupt, where it was."""
    shown = _of_program(error.__traceback__)
    if isinstance(error, KeyboardInterrupt) and sys.excepthook is sys.__excepthook__:
        print(f"subgrad {command}: interrupted{_where(shown)}", file=sys.stderr)
    else:
        sys.excepthook(type(error), error.with_traceback(shown), shown)
    return INTERRUPTED if isinstance(error, KeyboardInterrupt) else 1


def _of_program(traceback: types.TracebackType | None) -> types.TracebackType | None:
    while traceback is not None and _file(traceback).startswith((__file__, runpy.__file__, "<frozen ")):
        traceback = traceback.tb_next
    return traceback


def _where(traceback: types.TracebackType | None) -> str:
    """The innermost line of the program's own file, as `` in train.py:12``."""
    if traceback is None:
        return ""
    own, line = _file(traceback), traceback.tb_lineno
    while (traceback := traceback.tb_next) is not None:
        line = traceback.tb_lineno if _file(traceback) == own else line
    return f" in {os.path.basename(own)}:{line}"


def _file(traceback: types.TracebackType) -> str:
    return traceback.tb_frame.f_code.co_filename
