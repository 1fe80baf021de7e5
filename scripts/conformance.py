"""Run the conformance pack on other backends, each in an environment of its own, and write docs/conformance.md.

python scripts/conformance.py                # Inductor, JAX and tinygrad; ten minutes, most of which is compiling
python scripts/conformance.py JAX tinygrad   # some of them, to look at; the page is left alone
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

from environments import ROOT, UV
from sections import write_section

BACKENDS = {"Inductor": None, "JAX": "jax", "tinygrad": "tinygrad"}
SCRIPTS = ROOT / "scripts" / "backends"
PAGE = ROOT / "docs" / "conformance.md"
# tinygrad's own interpreter of kernels: it needs no compiler.
ENVIRONMENT = {"tinygrad": {"DEV": "PYTHON"}}
SERIOUS = ("in value", "away from kinks", "on kinks: no element of the set")


def interpreter(name: str) -> Path:
    """The interpreter of an environment that holds the backend; Inductor is in the project's own."""
    package = BACKENDS[name]
    if package is None:
        return Path(sys.executable)
    folder = ROOT / f".venv-{package}"
    if not (folder / "ready").exists():
        print(f"building an environment with {package} ...", file=sys.stderr)
        subprocess.run([UV, "venv", "--quiet", "--allow-existing", "--python", sys.executable, folder], check=True)
        install = [UV, "pip", "install", "--quiet", "--python", folder / "bin" / "python", package, "numpy"]
        subprocess.run(install, check=True)
        (folder / "ready").touch()
    return folder / "bin" / "python"


def found(name: str) -> dict[str, Any]:
    script = SCRIPTS / f"with_{name.lower()}.py"
    print(f"{name} ...", file=sys.stderr)
    command = [interpreter(name), "-W", "ignore", script]
    done = subprocess.run(
        command, env={**os.environ, **ENVIRONMENT.get(name, {})}, check=True, stdout=subprocess.PIPE, text=True
    )
    return json.loads(done.stdout.splitlines()[-1])


def table(backends: list[dict[str, Any]]) -> str:
    lines = [
        "| backend | cases that agree | that do not | numbers that differ on kinks: another element | no element "
        "| away from kinks | in value | at nan or infinity |",
        "|---|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for each in backends:
        kinds = Counter(kind for _, kind, _ in each["failures"])
        counts = ("on kinks: another element", *reversed(SERIOUS), "at nan or infinity")
        numbers = " | ".join(str(kinds[kind]) for kind in counts)
        lines.append(f"| {each['name']} {each['version']} | {each['passed']} | {each['failed']} | {numbers} |")
    return "\n".join(lines)


def details(backend: dict[str, Any]) -> str:
    """Which convention each operator follows, if not torch's; and every number that none could return."""
    parts = [f"### {backend['name']} {backend['version']}"]
    others = {name: some for name, some in backend["agrees"].items() if backend["convention"] not in some}
    if others:
        rows = "\n".join(f"| `{name}` | {', '.join(some) or 'none'} |" for name, some in others.items())
        head = f"Operators that do not follow `{backend['convention']}`:\n\n| operator | agrees with |\n|---|---|"
        parts.append(f"{head}\n{rows}")
    serious = [text for _, kind, text in backend["failures"] if kind in SERIOUS]
    serious += [f"{case}: {said}" for case, said in backend["died"]]
    if serious:
        parts.append("No choice of an element explains:\n\n" + "\n".join(f"- {text}" for text in serious))
    lacking = [f"`{name}`" for name in backend["lacking"] if name not in backend["agrees"]]
    if lacking:
        parts.append(f"Not tried: {', '.join(lacking)}.")
    return "\n\n".join(parts)


def main() -> None:
    names = sys.argv[1:] or list(BACKENDS)
    unknown = [name for name in names if name not in BACKENDS]
    if unknown:
        sys.exit(f"unknown backend {unknown[0]!r}: there are {', '.join(BACKENDS)}.")
    backends = [found(name) for name in names]
    text = "\n\n".join([table(backends), *map(details, backends)])
    print(text)
    if not sys.argv[1:]:
        write_section(PAGE, "backends", text)


if __name__ == "__main__":
    main()
