"""Quantisation-aware training with torchao, torch.ao.quantization and brevitas on torch 2.13 and 2.15, as one table.

python scripts/quantisation.py [--environments FOLDER]      # docs/quantisation.md shows what it prints

Each version has an environment of its own, built if it is not there. What is trained is in `quantisation_worker.py`.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import torch
from environments import ROOT, UV

VERSIONS = ("2.13.0", "2.15.0")
PACKAGES = ("numpy", "torchao==0.18.0", "brevitas==0.13.4")
Runs = dict[tuple[str, str], dict[str, Any]]


def python(version: str, folder: Path) -> Path:
    """The interpreter of an environment with this torch and the packages."""
    place = folder / f"quant-{version}"
    interpreter = place / "bin" / "python"
    if not (place / "ready").exists():
        print(f"building an environment with torch {version} ...", file=sys.stderr)
        subprocess.run([UV, "venv", "--quiet", "--allow-existing", "--python", sys.executable, place], check=True)
        install = [UV, "pip", "install", "--quiet", "--python", interpreter, f"torch=={version}", *PACKAGES]
        subprocess.run(install, check=True)
        (place / "ready").touch()
    return interpreter


def runs(version: str, mode: str, folder: Path) -> Runs:
    with tempfile.TemporaryDirectory() as kept:
        file = Path(kept) / "runs.pt"
        command = [python(version, folder), "-W", "ignore", ROOT / "scripts" / "quantisation_worker.py", mode, file]
        environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
        subprocess.run(command, env=environment, check=True, stderr=subprocess.DEVNULL)
        return torch.load(file, weights_only=True)


def apart(one: dict[str, Any], other: dict[str, Any]) -> str:
    """How far the gradients of the first step are from each other, and the losses of five."""
    pairs = [(each, other["gradients"][name]) for name, each in one["gradients"].items()]
    if one["losses"] == other["losses"] and all(torch.equal(*pair) for pair in pairs):
        return "to the bit"
    distance = sum(float((a.double() - b.double()).square().sum()) for a, b in pairs) ** 0.5
    norm = sum(float(a.double().square().sum()) for a, _ in pairs) ** 0.5
    return f"{distance / norm:.1%}" if distance > 1e-3 * norm else f"{distance / norm:.0e}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--environments", type=Path, default=Path(tempfile.gettempdir()))
    folder = parser.parse_args().environments
    print("| trained with | | plain | `torch-2.13` | `torch-2.14` | `pass-through` | `straight-through` |")
    print("|---|---|---|---|---|---|---|")
    for mode in ("eager", "compiled"):
        old, new = (runs(version, mode, folder) for version in VERSIONS)
        for recipe in dict.fromkeys(recipe for recipe, _ in old):
            cells = [apart(old[recipe, "torch"], new[recipe, "torch"])]
            cells.append(apart(old[recipe, "torch"], new[recipe, "torch-2.13"]))
            for convention in ("torch-2.14", "pass-through", "straight-through"):
                both = [each.get((recipe, convention)) for each in (old, new)]
                cells.append(apart(both[0], both[1]) if both[0] and both[1] else "")
            print(f"| {recipe} | {mode} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
