"""Building and loading the C++ part: a call like one that was planned before is answered before any Python runs.

A kernel in Python costs microseconds however little it does, which counts for small tensors. `fast_path.cpp` is built
once for an installed torch, by ``subgrad build``, and used from then on; without it everything works the same, in
Python.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import torch

from subgrad.apply import dispatch, scopes
from subgrad.extras import missing, needed

SOURCE = Path(__file__).with_name("fast_path.cpp")
HEADERS = tuple(Path(__file__).with_name(name) for name in ("cpu_clamp.h", "cpu_max_pool.h"))
SUFFIX = ".pyd" if sys.platform == "win32" else ".so"
MODES = ("auto", "never")

_mode = "auto"


def set_front(mode: str) -> None:
    """Whether calls like earlier ones are answered in C++, for this process.

    Args:
        mode: ``"auto"`` where ``subgrad build`` has been run for this torch; ``"never"``. At first what the variable
            ``SUBGRAD_FRONT`` says, else ``"auto"``. The gradients are the same.
    """
    global _mode
    if mode not in MODES:
        raise ValueError(f"unknown mode {mode!r} of the front. Known: {', '.join(MODES)}.")
    _mode = mode
    if built.cache_info().currsize and (module := built()) is not None:
        module.switch_on(mode == "auto")
        dispatch.ask_again()  # where a mask gains something depends on who launches it


def library() -> Path:
    """Where the C++ part lies, once it is built, for this source, torch and Python."""
    sources = tuple(each.read_text() for each in (SOURCE, *HEADERS))
    made_of = sources, torch.__version__, sys.implementation.cache_tag, platform.machine()
    name = f"subgrad_front_{hashlib.sha256(repr(made_of).encode()).hexdigest()[:12]}"
    folder = os.environ.get("TORCH_EXTENSIONS_DIR") or Path.home() / ".cache" / "torch_extensions"
    return Path(folder) / "subgrad" / f"{name}{SUFFIX}"


class BuildError(RuntimeError):
    """There is nothing to compile with, or it failed."""


def build() -> Path:
    """Build it, unless it is there already; it serves processes that start afterwards.

    Raises:
        BuildError: with what is missing, or what the compiler said.
    """
    found = library()
    if found.exists():
        return found
    load = _compiler()
    found.parent.mkdir(parents=True, exist_ok=True)
    # Elsewhere, and then moved: who is interrupted, or builds at the same time, leaves nothing half done.
    with tempfile.TemporaryDirectory(dir=found.parent) as folder:
        try:
            load(found.stem, [str(SOURCE)], extra_cflags=["-O3"], build_directory=folder, is_python_module=False)
        except (RuntimeError, subprocess.CalledProcessError) as error:
            raise BuildError(f"{SOURCE.name} does not compile here: {error}") from error
        os.replace(Path(folder) / found.name, found)
    return found


def _compiler() -> Callable[..., Any]:
    """Torch's own way to compile extensions, with all that it needs."""
    scripts = sysconfig.get_path("scripts")  # where pip puts ninja, for environments that are not activated
    if scripts not in os.environ.get("PATH", "").split(os.pathsep):
        os.environ["PATH"] = os.pathsep.join((scripts, os.environ.get("PATH", "")))
    try:
        with needed("extensions of torch are compiled with", "setuptools"):
            from torch.utils import cpp_extension
    except ModuleNotFoundError as error:
        raise BuildError(str(error)) from error
    if not cpp_extension.is_ninja_available():
        raise BuildError(missing("extensions of torch are compiled with", "ninja"))
    compiler = cpp_extension.get_cxx_compiler()
    if shutil.which(compiler) is None:
        raise BuildError(f"there is no C++ compiler: {compiler!r} is not found. Install one, or name it in CXX.")
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.exists():
        raise BuildError(f"{header} is missing: install the headers of Python, as the package python3-dev.")
    return cpp_extension.load


def loops() -> Any | None:
    """The module, for loops that Python calls; None where it is not built, or switched off."""
    return built() if _mode == "auto" else None


@cache
def built() -> Any | None:
    """The module in C++, loaded; None where it is not built."""
    found = library()
    if not found.exists():
        return None
    try:
        spec = importlib.util.spec_from_file_location(found.stem, found)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:
        warnings.warn(f"{found} cannot be loaded ({error}). Delete it and run `subgrad build`.", stacklevel=2)
        return None
    module.ask(scopes.entered_here, vars(scopes))
    scopes.when_changed.append(module.forget_convention)
    module.switch_on(_mode == "auto")
    return module


def is_used() -> bool:
    return _mode == "auto" and built() is not None


set_front(os.environ.get("SUBGRAD_FRONT", "auto"))
