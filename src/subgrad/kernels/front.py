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
from typing import Any, NamedTuple

import torch
from torch import Tensor

from subgrad.apply import active, executors
from subgrad.apply.call import Call, Originals
from subgrad.apply.native import Native
from subgrad.apply.operators import Operator
from subgrad.apply.plan import Plan
from subgrad.conventions import Convention
from subgrad.kernels import cuda_bitmask
from subgrad.kernels.cpu_hardtanh import CLAMPS
from subgrad.kernels.cuda_bitmask import keeps_result, packing_of
from subgrad.kernels.masked import Mask
from subgrad.kernels.pieces import CLAMPS as VALUES_OF_CLAMPS
from subgrad.kernels.pieces import STRAIGHT, coding_of, is_number_for, only_given, rows_between

SOURCE = Path(__file__).with_name("front.cpp")
HEADERS = tuple(Path(__file__).with_name(name) for name in ("loops.h", "pooling.h"))
KEYS = ("AutogradCPU", "AutogradCUDA")
SUFFIX = ".pyd" if sys.platform == "win32" else ".so"
MODES = ("auto", "never")

_mode = "auto"
_fronts: list[Any] = []


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
        _switch(module)


def _switch(module: Any) -> None:
    """On or off, as the mode says."""
    module.switch_on(_mode == "auto")
    cuda_bitmask.set_in_python(_mode != "auto")
    executors.forget()  # who gains from a mask depends on who launches it
    forget()


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
    cuda_bitmask.when_asked_again.append(forget)
    active.when_changed.append(module.forget_convention)
    _switch(module)
    return module


def is_used() -> bool:
    return _mode == "auto" and built() is not None


def fast_paths(key: str, operators: tuple[Operator, ...], originals: Originals) -> dict[str, Callable[[], None]]:
    """What lies over the operators' forms at one key, to be put there; made before any kernel is registered."""
    module = built() if key in KEYS else None
    if module is None:
        return {}
    made: dict[str, Any] = {}
    for op in operators:
        for form in filter(None, (op.op, op.in_place)) if not op.is_joint else ():
            name, _, overload = form.partition(".")
            planner = Planner(op, form, key == "AutogradCPU", originals, made)
            made[form] = module.Front(f"aten::{name}", overload, key, form != op.op, planner)
    _fronts.extend(made.values())
    return {form: front.cover for form, front in made.items()}


def forget() -> None:
    """Ask the planner again, for every kind of call."""
    for front in _fronts:
        front.forget()


class Bounds(NamedTuple):
    """The numbers of entries of calls that are alike."""

    smallest: int
    below: int

    @classmethod
    def of(cls, x: Tensor) -> Bounds:
        split = cuda_bitmask.smallest() if x.is_cuda else sys.maxsize
        return cls(split, sys.maxsize) if x.numel() >= split else cls(0, split)


@dataclass(frozen=True)
class Planner:
    """What the fast path asks once for each kind of call of one form: how it is answered in C++."""

    op: Operator
    form: str
    on_cpu: bool
    originals: Originals = field(repr=False)
    beside: dict[str, Any] = field(repr=False)  # the fast paths of the same key, by form

    def __call__(self, convention: Convention, *args: Any) -> Any:
        """An answer of the C++ module's; None where calls like this one are run in Python."""
        front, sizes = self.beside[self.form], Bounds.of(args[0])
        if not convention.interferes:
            return front.torchs_own(0, sys.maxsize)
        if not self.op.slopes_are_numbers:
            return front.in_python(0, sys.maxsize)
        call = Call(self.op, self.form, self.originals, convention, None, args, {})
        _, plan, number, run = executors.find(call)
        mask = self._mask(plan, call) if self.on_cpu and (plan.choices or self._gains) else None
        if mask is not None:
            return front.masked(*mask, keeps_result(self.form) if self.op.op in STRAIGHT else False)
        if isinstance(executors.EXECUTORS[number], Native):
            return self._native(front, call, sizes)
        packing = None if self.on_cpu else packing_of(run, args[0])
        return front.in_python(*sizes) if packing is None else front.packed(args[0], *packing, *sizes)

    @property
    def _gains(self) -> bool:
        """On the CPU a bit an entry is better than torch's own, which keeps the input."""
        return bool(rows_between(self.op.op)) or self.op.op in CLAMPS

    def _native(self, front: Any, call: Call, sizes: Bounds) -> Any:
        base, arguments = self.op.base(call.arguments)
        if base is self.op:
            return front.torchs_own(*sizes)
        form = base.in_place if call.in_place else base.op
        assert form is not None
        return front.other(self.beside[form], base.args(arguments)[1:], *sizes)

    def _mask(self, plan: Plan, call: Call) -> tuple[float, float, tuple[bool, ...], int, bool] | None:
        """The kinks, who passes around them, which argument the kink is, if a tensor, and whether it is a clamp."""
        arguments, is_clamp = call.arguments, False
        if self.op.op in STRAIGHT:
            row, place = STRAIGHT[self.op.op], -1
            is_clamp = row.value(arguments) in VALUES_OF_CLAMPS
            low, high, _ = row.numbers(arguments)
            if isnan(low) or isnan(high) or low >= high or row.by_lanes:
                return None
        else:
            rows = rows_between(self.op.op)
            second = only_given(rows, arguments) if rows else None
            if second is None or plan.names != {"self"} or not is_number_for(arguments["self"], arguments[second]):
                return None
            row, place, low, high = rows[second], self.op.argument_names.index(second), 0.0, inf
        coding = coding_of(row, plan, arguments, ("self",)) if plan.meetings else None
        mask = None if coding is None else Mask.of(coding, plan)
        if coding is None or mask is None:
            return None
        return low, high if coding.corners == 2 else nan, mask.passes, place, is_clamp


set_front(os.environ.get("SUBGRAD_FRONT", "auto"))
