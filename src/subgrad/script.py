"""Run a script as ``python script.py`` would: its own ``sys.argv``, ``__main__``, exit code and tracebacks."""

from __future__ import annotations

import builtins
import os
import sys
import types
from collections.abc import Sequence


def run_script(path: str, arguments: Sequence[str], command: str = "run") -> int:
    """Run a script to its end in this process; the exit code is returned, ``SystemExit`` passes."""
    try:
        with open(path, "rb") as file:
            source = file.read()
    except OSError as error:
        print(f"subgrad {command}: can't open {path!r}: {error.strerror}", file=sys.stderr)
        return 2
    sys.argv = [path, *arguments]
    if not getattr(sys.flags, "safe_path", False):  # new in Python 3.11
        sys.path[0] = os.path.dirname(os.path.realpath(path))
    path = os.path.abspath(path)
    main = types.ModuleType("__main__")
    main.__dict__.update(__file__=path, __builtins__=builtins, __spec__=None, __cached__=None)
    sys.modules["__main__"] = main  # where pickles and spawned processes look for the script's own classes
    try:
        exec(compile(source, path, "exec"), main.__dict__)
    except SystemExit:
        raise
    except BaseException as error:
        # The script's frames only, shown by whatever hook the script has set.
        error = error.with_traceback(_from_frame_of(path, error.__traceback__))
        sys.excepthook(type(error), error, error.__traceback__)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _from_frame_of(path: str, traceback: types.TracebackType | None) -> types.TracebackType | None:
    while traceback is not None and traceback.tb_frame.f_code.co_filename != path:
        traceback = traceback.tb_next
    return traceback
