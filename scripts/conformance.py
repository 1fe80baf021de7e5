"""Run the conformance pack on other backends, each in an environment of its own, and write docs/conformance.md.

python scripts/conformance.py                # all of them; ten minutes, most of which is compiling
python scripts/conformance.py JAX tinygrad   # some of them, to look at; the page is left alone
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from typing import Any

from environments import ROOT
from sections import write_section

from subgrad.survey.frameworks import cases, measure

SCRIPTS = ROOT / "scripts" / "backends"
sys.path.insert(0, str(SCRIPTS))

from report import summary  # noqa: E402

# Inductor is in the project's own environment; the others have one each, as `subgrad survey --frameworks` makes them.
BACKENDS = {
    "Inductor": None,
    **{"JAX": "jax", "TensorFlow": "tensorflow", "MLX": "mlx", "PaddlePaddle": "paddle"},
    **{"tinygrad": "tinygrad", "autograd": "autograd"},
}
PAGE = ROOT / "docs" / "conformance.md"
CONVENTION = "torch-2.14"
SERIOUS = ("in value", "away from kinks", "on kinks: no element of the set")


def found(name: str) -> dict[str, Any]:
    print(f"{name} ...", file=sys.stderr)
    framework = BACKENDS[name]
    if framework is not None:
        return asked(name, framework)
    command = [sys.executable, "-W", "ignore", SCRIPTS / f"with_{name.lower()}.py"]
    done = subprocess.run(command, env=os.environ, check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def asked(name: str, framework: str) -> dict[str, Any]:
    """A framework, by the first of its spellings of each operation."""
    answers = measure(framework, tell=lambda message: print(f"{name}: {message}", file=sys.stderr))
    if answers.failed is not None:
        sys.exit(f"{name} was not measured: {answers.failed}")
    by_case = {_key(case): spellings for case, spellings in zip(cases(), answers.cases, strict=True)}

    def run(case: Any) -> tuple[Any, Any]:
        returned = next(iter(by_case[_key(vars(case))].values()), None)
        if returned is None:
            raise NotImplementedError
        if returned.failed is not None:
            raise RuntimeError(returned.failed)
        return returned.value, returned.reverse

    return summary(name, answers.version or "", run, CONVENTION)


def _key(case: Any) -> str:
    return repr((case["overload"], case["arguments"]))


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
