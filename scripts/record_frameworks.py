"""Record what other frameworks return at kinks, in their own spellings, and write docs/frameworks.md from that.

python scripts/record_frameworks.py             # ask the newest of each, in environments of their own; some minutes
python scripts/record_frameworks.py jax mlx     # some of them
python scripts/record_frameworks.py --page      # the page alone, from what is recorded
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import asdict
from typing import Any

from environments import ROOT
from frameworks_page import write_page

from subgrad.survey.frameworks import PACKAGES, Answers, Case, Returned, cases, measure, parsed, signature
from subgrad.survey.frameworks.measure import interpreter

RECORDED = ROOT / "tests" / "recorded" / "frameworks"


def row(case: Case, found: dict[str, Returned]) -> dict[str, Any]:
    return {"of": signature(case), "operator": case["operator"], "spellings": {k: _plain(v) for k, v in found.items()}}


def _plain(returned: Returned) -> dict[str, Any]:
    """Without what there is none of; forward mode only where it returns something else."""
    given = {name: each for name, each in asdict(returned).items() if each is not None}
    if repr(given.get("forward")) == repr(given.get("reverse")) and "reverse" in given:
        given["forward"] = "same"
    return given


def write(answers: Answers) -> None:
    lines = [json.dumps(row(case, dict(found))) for case, found in zip(cases(), answers.cases, strict=True)]
    head = json.dumps({"framework": answers.framework, "version": answers.version})
    target = RECORDED / f"{answers.framework}.json"
    target.parent.mkdir(exist_ok=True)
    target.write_text(head[:-1] + ', "cases": [\n' + ",\n".join(lines) + "\n]}\n")
    print(f"{target.relative_to(ROOT)}: as {answers.framework} {answers.version} returns it")


def write_training(name: str, version: str | None) -> None:
    """Ten steps of training, which `tests/test_port.py` takes in torch."""
    command = [interpreter(name, version), ROOT / "scripts" / "train_jax.py"]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=True)
    (RECORDED / "jax_training.json").write_bytes(done.stdout)


def main() -> None:
    if sys.argv[1:] != ["--page"]:
        for text in sys.argv[1:] or PACKAGES:
            print(f"{text} ...", file=sys.stderr)
            answers = measure(*parsed(text))
            if answers.failed is not None:
                sys.exit(f"{text} was not measured: {answers.failed}")
            write(answers)
            if answers.framework == "jax":
                write_training(*parsed(text))
    write_page()


if __name__ == "__main__":
    main()
