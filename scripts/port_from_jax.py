"""A network trained ten steps in JAX and in torch, from the same weights, in float64, on integers: kinks are hit.

python scripts/port_from_jax.py            # train in JAX, in an environment of its own, record it, and compare
python scripts/port_from_jax.py --recorded # compare with what is recorded in tests/recorded/training_jax.json

Says how far gradients are apart at each step, under torch's elements and under `jax`, and what `subgrad.compare` says.
Exits with an error if they are more than 1e-12 apart under `jax`, or no further without it.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from programs.port import RECORDED, Network, distances, recorded  # noqa: E402

import subgrad  # noqa: E402
from subgrad.survey.environments import environment  # noqa: E402
from subgrad.survey.frameworks import PACKAGES  # noqa: E402


def train_in_jax() -> dict[str, Any]:
    python = environment("jax", PACKAGES["jax"].wanted(None), print)
    done = subprocess.run(
        [python, ROOT / "scripts" / "training_in_jax.py"],
        **{"input": json.dumps(Network().given()), "stdout": subprocess.PIPE, "text": True, "check": True},
    )
    return json.loads(done.stdout)


def main() -> int:
    if sys.argv[1:] != ["--recorded"]:
        RECORDED.write_text(json.dumps(train_in_jax()) + "\n")
    found = recorded()
    print(f"JAX {found['version']}; the largest difference of an entry of the gradients, step by step")
    apart = {}
    for convention in ("torch", "jax"):
        with subgrad.use(convention):
            apart[convention] = [*distances(found["steps"])]
        print(f"{convention:6}", *(f"{each:8.1e}" for each in apart[convention]))
    network, first = Network(), found["steps"][0]["gradients"]
    print(subgrad.compare(network.loss, network, ["jax"], reference=first))
    bug = {**first, "second.bias": [each * 2 for each in first["second.bias"]]}
    print("With a factor of 2 in the bias:", subgrad.compare(network.loss, network, ["jax"], reference=bug))
    return int(max(apart["jax"]) > 1e-12 or max(apart["torch"]) < 1e-3)


if __name__ == "__main__":
    sys.exit(main())
