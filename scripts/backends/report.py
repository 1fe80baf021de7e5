"""What a backend's run of the pack comes to, as JSON: needs Python alone."""

from __future__ import annotations

import json
import sys
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

PACK = Path(__file__).parents[2] / "src" / "subgrad" / "testing" / "conformance_pack.py"


def pack() -> Any:
    """The runner, loaded as the one file that it is."""
    spec = spec_from_file_location("conformance", PACK)
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    sys.modules["conformance"] = module
    spec.loader.exec_module(module)
    return module


def summary(name: str, version: str, run: Any, convention: str) -> dict[str, Any]:
    """What comes of all cases, as plain data."""
    runner = pack()
    found = runner.conformance(run, convention)
    return {
        "name": name,
        "version": version,
        "convention": convention,
        "passed": found.passed,
        "failed": found.failed,
        "failures": [[each.case.operator, runner.kind(each), str(each)] for each in found.failures],
        "died": [[str(case), said] for case, said in found.died],
        "lacking": found.lacking,
        "agrees": found.agrees,
    }


def report(name: str, version: str, run: Any, convention: str) -> None:
    print(json.dumps(summary(name, version, run, convention)))
