"""Run the matrix of everything PyTorch differentiates through, measure what a convention costs, write the page.

python scripts/everywhere.py            # all cells, on all cores: docs/everywhere.md
"""

from __future__ import annotations

import argparse
import sys
import warnings
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from os import cpu_count
from pathlib import Path

import torch
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # ahead of this folder, in which this file is called as the package is

from everywhere import capabilities  # noqa: E402
from everywhere.capabilities import CAPABILITIES  # noqa: E402
from everywhere.families import FAMILIES  # noqa: E402
from everywhere.matrix import CONVENTIONS, outcome  # noqa: E402
from everywhere.overhead import table  # noqa: E402
from everywhere.page import Outcomes, page  # noqa: E402

INDUCTOR = "torch.compile(fullgraph=True)"


def cells(capability: str, convention: str) -> dict[str, str]:
    """One capability under one convention: Inductor where it is compiled plainly, else the graphs that it is handed."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    capabilities.BACKEND = "inductor" if capability == INDUCTOR else "aot_eager"
    return {family: outcome(capability, convention, family) for family in FAMILIES}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=cpu_count() or 1, help="processes (default: one a core)")
    options = parser.parse_args()
    wanted = [(capability, convention) for capability in CAPABILITIES for convention in CONVENTIONS]
    outcomes: Outcomes = {}
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with (
        Progress(*columns) as progress,
        ProcessPoolExecutor(options.jobs, mp_context=get_context("spawn")) as pool,
    ):
        task = progress.add_task("running", total=len(wanted))
        running = {pool.submit(cells, *each): each for each in wanted}
        for future in as_completed(running):
            outcomes[running[future]] = future.result()
            progress.update(task, advance=1, description=f"{running[future][0][:40]:40}")
    path = ROOT / "docs" / "everywhere.md"
    path.write_text(page(outcomes, table()))
    print(f"{path.relative_to(ROOT)}: {len(wanted) * len(FAMILIES)} cells, torch {torch.__version__}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
