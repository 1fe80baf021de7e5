"""Data flows one way: a stage imports only earlier ones, and `import subgrad` loads no more than it needs."""

from __future__ import annotations

import ast
import json
import sys
from importlib.util import resolve_name
from pathlib import Path
from typing import Any

import pytest
from fresh import run_fresh

import subgrad

PACKAGE = Path(subgrad.__file__).parent
MODULES = sorted(path.relative_to(PACKAGE).as_posix() for path in PACKAGE.rglob("*.py"))

ALL = {path.stem for path in PACKAGE.iterdir() if path.suffix == ".py" or path.is_dir()}
ROOT = "subgrad"  # the package itself, which has imported what it offers: only the outermost stage may
APPLY = {"torch_internals", "kinks", "conventions", "version", "apply"}
AUDIT = {*APPLY, "kernels", "audit"}
SURVEY = {*APPLY, "functional", "nn", "survey"}
BENCH = {*APPLY, "kernels", "bench"}
# What each stage may import of subgrad.
ALLOWED: dict[str, set[str]] = {
    "version": set(),
    "extras": set(),
    "torch_internals": {"torch_internals"},
    "kinks": {"torch_internals", "kinks"},
    "conventions": {"kinks"},
    "apply": APPLY,
    "kernels": {*APPLY, "kernels", "extras"},
    "functional": APPLY,
    "nn": {*APPLY, "functional", "nn"},
    "converting": {*APPLY, "functional", "nn", "converting"},
    "clarke": {*APPLY, "kernels", "clarke"},
    "audit": AUDIT,
    "loggers": {*AUDIT, "extras", "loggers"},
    "gate": {*AUDIT, "gate"},
    "survey": SURVEY,
    "explain": {*AUDIT, "clarke", "survey", "explain"},
    "testing": {*AUDIT, "clarke", "extras", "testing"},
    "bench": BENCH,
    "report": {*SURVEY, *BENCH, *AUDIT, "gate", "explain", "report"},
    "script": set(),
    "cli": {*ALL, ROOT},
    "__init__": {*APPLY, "kernels", "functional", "nn", "converting", "clarke", "audit", "loggers", "testing"},
    "__main__": {"cli"},
}
# An audit can be printed: its methods ask the stage that shows it, when they are called. Whatever loads `apply` loads
# the executors too, which enter themselves there. What torch.fx records is spelled out, which only its users need.
ASKED_LATER = {
    "audit/result.py": {"report"},
    "apply/__init__.py": {"kernels"},
    "apply/recorded_blocks.py": {"functional", "nn"},
}


def stage(module: str) -> str:
    """``"apply"`` for ``"apply/use.py"``."""
    return Path(module).parts[0].removesuffix(".py")


def imported_stages(source: str, package: str = "subgrad") -> set[str]:
    """The stages of subgrad that a module of a package imports, at its top or inside a function."""
    targets = [target for node in ast.walk(ast.parse(source)) for target in _targets(node, package)]
    parts = [target.split(".") for target in targets]
    return {each[1] if each[1:] and each[1] in ALL else ROOT for each in parts if each[0] == "subgrad"}


def _targets(node: ast.AST, package: str) -> list[str]:
    """What one node imports: ``["subgrad.functional", "subgrad.nn"]`` for ``from subgrad import functional, nn``."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        module = resolve_name("." * node.level + (node.module or ""), package) if node.level else node.module
        return [f"{module}.{alias.name}" for alias in node.names]
    return []


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_only_earlier_stages(module: str) -> None:
    package = ".".join(("subgrad", *Path(module).parts[:-1]))
    allowed = ALLOWED[stage(module)] | ASKED_LATER.get(module, set())
    assert imported_stages((PACKAGE / module).read_text(), package) <= allowed


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import subgrad", {ROOT}),
        ("from subgrad import use", {ROOT}),
        ("from subgrad import functional, nn", {"functional", "nn"}),
        ("import subgrad.cli as c, torch", {"cli"}),
        ("from subgrad.apply.use import use", {"apply"}),
        ("from ..conventions import Convention", {"conventions"}),
        ("from . import sets", {"kinks"}),
        ("def f():\n    from subgrad.survey import survey", {"survey"}),
        ("from torch import subgrad", set()),
    ],
)
def test_an_import_is_seen_however_it_is_written(source: str, found: set[str]) -> None:
    assert imported_stages(source, "subgrad.kinks") == found


def test_only_the_package_itself_imports_by_a_computed_name() -> None:
    computed = [module for module in MODULES if "import_module" in (PACKAGE / module).read_text()]
    assert computed == ["__init__.py"]


ASKING = ("getattr", "hasattr", "setattr", "delattr")


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__") and name != "_repr_html_"  # which notebooks look for


def private_names(source: str) -> set[str]:
    """The private names that a module uses and neither defines nor takes from Python's own library: those of torch."""
    tree = ast.parse(source)
    known, standard = _defined(tree), _standard(tree)
    return {name for node in ast.walk(tree) for name in _asked_for(node, known, standard)}


def _defined(tree: ast.Module) -> set[str]:
    """Functions, classes, variables, fields, and what methods assign to ``self``."""
    found = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    found |= {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    stored = [node for node in ast.walk(tree) if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)]
    return found | {node.attr for node in stored if isinstance(node.value, ast.Name) and node.value.id == "self"}


def _standard(tree: ast.Module) -> set[str]:
    imports = [alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names]
    return {name for name in imports if name in sys.stdlib_module_names}


def _asked_for(node: ast.AST, known: set[str], standard: set[str]) -> list[str]:
    if isinstance(node, ast.Import | ast.ImportFrom):
        targets = [target for target in _targets(node, "subgrad") if target.split(".")[0] == "torch"]
        return [target for target in targets if any(map(is_private, target.split(".")))]
    if isinstance(node, ast.Attribute) and is_private(node.attr) and node.attr not in known:
        return [] if isinstance(node.value, ast.Name) and node.value.id in standard else [node.attr]
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in ASKING and node.args[1:]:
        name = node.args[1]
        is_text = isinstance(name, ast.Constant) and isinstance(name.value, str)
        return [name.value] if is_text and is_private(name.value) and name.value not in known else []
    return []


@pytest.mark.parametrize("module", [each for each in MODULES if stage(each) != "torch_internals"])
def test_only_torch_internals_touches_a_private_name_of_torch(module: str) -> None:
    assert private_names((PACKAGE / module).read_text()) == set()


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("import torch._dynamo", {"torch._dynamo"}),
        ("from torch._C import DispatchKey", {"torch._C.DispatchKey"}),
        ("from torch.utils import _pytree as pytree", {"torch.utils._pytree"}),
        ("def f():\n    from torch._guards import Guard", {"torch._guards.Guard"}),
        ("torch._foreach_abs_(xs)", {"_foreach_abs_"}),
        ("import torch\ntorch._C._len_torch_dispatch_stack()", {"_C", "_len_torch_dispatch_stack"}),
        ("x._version", {"_version"}),
        ("f._torchdynamo_disable = True", {"_torchdynamo_disable"}),
        ("getattr(node, '_forward_cls', None)", {"_forward_cls"}),
        ("class A:\n    def f(self): self._kept = 1\ndef g(a): return a._kept", set()),
        ("import sys\nsys._getframe(1)", set()),
        ("x.__dict__, x._repr_html_()", set()),
        ("from torch import nn\nnn.Module", set()),
    ],
)  # fmt: skip
def test_a_private_name_is_seen_however_it_is_reached(source: str, found: set[str]) -> None:
    assert private_names(source) == found


MEASURE = """
import json, sys, time
import torch
before = set(sys.modules)
start = time.process_time()
import subgrad
seconds = time.process_time() - start
added = sorted(set(sys.modules) - before)
import subgrad.apply.dispatch
print(json.dumps(dict(seconds=seconds, added=added, modules=sorted(sys.modules),
                      registered=bool(subgrad.apply.dispatch.registered.forms))))
"""


def fresh_import() -> dict[str, Any]:
    """What ``import subgrad`` does in a new process, on top of ``import torch``."""
    done = run_fresh(MEASURE)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def imported() -> dict[str, Any]:
    return fresh_import()


@pytest.mark.parametrize(
    "module",
    [
        "rich",
        "matplotlib",
        "hypothesis",
        "subgrad.cli",
        "subgrad.survey",
        "subgrad.bench",
        "subgrad.report",
        "subgrad.functional",
        "subgrad.nn",
        "subgrad.converting",
        "subgrad.clarke",
        "subgrad.audit",
        "subgrad.loggers",
        "subgrad.explain",
    ],
)
def test_import_leaves_alone(imported: dict[str, Any], module: str) -> None:
    assert module not in imported["modules"]


def test_import_needs_torch_alone(imported: dict[str, Any]) -> None:
    packages = {module.partition(".")[0] for module in imported["added"]}
    assert packages - sys.stdlib_module_names - {"torch"} == {"subgrad"}


def test_import_registers_no_kernel(imported: dict[str, Any]) -> None:
    assert not imported["registered"]


def test_import_takes_less_than_a_tenth_of_a_second(imported: dict[str, Any]) -> None:
    # Again where it was slow, since other processes may have had the machine.
    assert imported["seconds"] < 0.1 or any(fresh_import()["seconds"] < 0.1 for _ in range(2))
