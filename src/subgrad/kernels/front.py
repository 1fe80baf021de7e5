"""The front: a call like one that was planned before is answered in C++, before any Python runs.

A kernel in Python costs microseconds however little it does, which counts for small tensors. `front.cpp` is built once
for an installed torch, by ``subgrad build``, and used from then on; without it everything works the same, in Python.
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
from dataclasses import dataclass, field
from functools import cache
from math import inf, isnan, nan
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch

from subgrad.apply import active
from subgrad.apply.operators import Operator
from subgrad.apply.plan import Plan
from subgrad.apply.rule import Arguments
from subgrad.apply.shortcuts import Shortcut
from subgrad.kernels.launch import Compiled
from subgrad.kernels.masked import Mask
from subgrad.kernels.pieces import CLAMPS, STRAIGHT, coding_of, is_number_for, only_given, rows_between

SOURCE = Path(__file__).with_name("front.cpp")
HEADERS = tuple(Path(__file__).with_name(name) for name in ("loops.h", "pooling.h"))
KEYS = ("AutogradCPU", "AutogradCUDA")
SUFFIX = ".pyd" if sys.platform == "win32" else ".so"
MODES = ("auto", "never")

_mode = "auto"
_fronts: list[Front] = []


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


def library() -> Path:
    """Where the front lies, once it is built, for this source, torch and Python."""
    sources = tuple(each.read_text() for each in (SOURCE, *HEADERS))
    made_of = sources, torch.__version__, sys.implementation.cache_tag, platform.machine()
    name = f"subgrad_front_{hashlib.sha256(repr(made_of).encode()).hexdigest()[:12]}"
    folder = os.environ.get("TORCH_EXTENSIONS_DIR") or Path.home() / ".cache" / "torch_extensions"
    return Path(folder) / "subgrad" / f"{name}{SUFFIX}"


class BuildError(RuntimeError):
    """There is nothing to compile with, or it failed."""


def build() -> Path:
    """Build the front, unless it is there already; it serves processes that start afterwards.

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
        from torch.utils import cpp_extension
    except ModuleNotFoundError as error:
        raise BuildError(f"{error.name} is missing: pip install 'subgrad[build]'.") from error
    if not cpp_extension.is_ninja_available():
        raise BuildError("ninja is missing: pip install 'subgrad[build]'.")
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
    module.ask(active._scopes, vars(active))
    active.when_changed.append(module.forget_convention)
    module.switch_on(_mode == "auto")
    return module


def is_used() -> bool:
    return _mode == "auto" and built() is not None


def fronts(key: str, operators: tuple[Operator, ...]) -> dict[str, Front]:
    """Fronts for the operators' forms at one key, made before any kernel is registered; none where it is not built."""
    module = built() if key in KEYS else None
    if module is None:
        return {}
    made: dict[str, Front] = {}
    for op in operators:
        for form in filter(None, (op.op, op.in_place)):
            name, _, overload = form.partition(".")
            native = module.Front(f"aten::{name}", overload, key, form != op.op)
            made[form] = Front(op, form != op.op, key == "AutogradCPU", made, native)
    _fronts.extend(made.values())
    return made


def forget_notes() -> None:
    """Ask Python again, for every kind of call."""
    for front in _fronts:
        front.native.forget()


class Packing(NamedTuple):
    """A packed mask of one bit an entry.

    Attributes:
        write: the kernel for the input, twice, the result, and codes.
        weigh: the kernel for the cotangent, codes, and the gradient, twice.
        in_python: the gradient, from the coding's number and all that was kept.
        coding: its number.
    """

    write: Compiled
    weigh: Compiled
    in_python: Callable[..., torch.Tensor]
    coding: int


@runtime_checkable
class Packs(Protocol):
    """A shortcut of which the front can do most."""

    def packing(self, plan: Plan, arguments: Arguments) -> Packing | None: ...


@dataclass(frozen=True)
class Front:
    """What lies over one kernel in Python."""

    op: Operator
    in_place: bool
    on_cpu: bool
    beside: dict[str, Front] = field(repr=False)  # of the same key, by form
    native: Any

    def cover(self) -> None:
        self.native.cover()

    def note_torchs_own(self) -> None:
        self.native.note_torchs_own(sys.maxsize)

    def note(self, plan: Plan, arguments: Arguments, shortcut: Shortcut | None) -> bool:
        """Answer calls like this one as planned; where that takes more than a mask, they go on to Python."""
        if not self.op.slopes_are_numbers:
            return False
        has_shortcut = shortcut is not None and bool(plan.meetings)
        # On the CPU a mask is faster than any shortcut; on CUDA a packed mask is, from some size on.
        below = shortcut.pays_from(plan) if shortcut is not None and has_shortcut and not self.on_cpu else sys.maxsize
        if arguments["self"].numel() >= below:
            packing = shortcut.packing(plan, arguments) if isinstance(shortcut, Packs) else None
            return packing is not None and self.native.note_packed(arguments["self"], *packing, below)
        is_wanted = bool(plan.choices) or (has_shortcut and self.on_cpu)
        found = _mask(self.op, plan, arguments, self.on_cpu) if is_wanted else None
        if found is not None:
            return self.native.note_masked(*found, below)
        return not plan.choices and self._note_native(arguments, below)

    def _note_native(self, arguments: Arguments, below: int) -> bool:
        base, arguments = self.op.base(arguments)
        if base is self.op:
            return self.native.note_torchs_own(below)
        form = base.in_place if self.in_place else base.op
        assert form is not None
        return self.native.note_other(self.beside[form].native, base.args(arguments)[1:], below)


def _mask(
    op: Operator, plan: Plan, arguments: Arguments, on_cpu: bool
) -> tuple[float, float, tuple[bool, ...], int, bool] | None:
    """The kinks, who passes around them, which argument the kink is, if it is a tensor, and whether it is a clamp."""
    is_clamp = False
    if op.op in STRAIGHT:
        row, place = STRAIGHT[op.op], -1
        is_clamp = on_cpu and row.value(arguments) in CLAMPS
        low, high, _ = row.numbers(arguments)
        if isnan(low) or isnan(high) or low >= high or (on_cpu and row.by_lanes):
            return None
    else:
        rows = rows_between(op.op)
        second = only_given(rows, arguments) if rows else None
        if second is None or plan.names != {"self"} or not is_number_for(arguments["self"], arguments[second]):
            return None
        row, place, low, high = rows[second], op.argument_names.index(second), 0.0, inf
    coding = coding_of(row, plan, arguments, ("self",))
    mask = None if coding is None else Mask.of(coding, plan)
    if coding is None or mask is None:
        return None
    return low, high if coding.corners == 2 else nan, mask.passes, place, is_clamp


set_front(os.environ.get("SUBGRAD_FRONT", "auto"))
