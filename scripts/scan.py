"""The full completeness scan of the installed torch; its summary goes to docs/scan.md."""

from __future__ import annotations

import argparse
import sys
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from multiprocessing import get_context
from os import cpu_count
from pathlib import Path

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))  # ahead of this folder, in which this file is called as the package is

from scan.programs import entries  # noqa: E402
from scan.scanning import FULL, QUICK, Effort, Scan, scan  # noqa: E402
from scan.summary import summary  # noqa: E402


def prepare() -> None:
    """In every process: few warnings, one thread."""
    import torch

    torch.set_num_threads(1)
    warnings.simplefilter("ignore")


def scans(names: list[str], effort: Effort, jobs: int) -> Iterator[Scan]:
    """The scans of all entries as they are done."""
    if jobs == 1:
        prepare()
        yield from (scan(name, effort) for name in names)
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=prepare) as pool:
        for future in as_completed([pool.submit(scan, name, effort) for name in names]):
            yield future.result()


def main() -> int:
    """Scan, write the summary, and fail where something found is not listed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="as much as the tests do")
    parser.add_argument("--jobs", type=int, default=cpu_count() or 1, help="processes (default: one a core)")
    parser.add_argument("--only", default="", help="entries whose name contains this; writes no file")
    options = parser.parse_args()
    names = [name for name in entries() if options.only in name]
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    found: dict[str, Scan] = {}
    with Progress(*columns) as progress:
        task = progress.add_task("scanning", total=len(names))
        for scanned in scans(names, QUICK if options.quick else FULL, options.jobs):
            found[scanned.entry] = scanned
            progress.update(task, advance=1, description=f"{scanned.entry[:40]:40}")
    ordered = [found[name] for name in names]
    complaints = [line for scanned in ordered for line in scanned.complaints()]
    text = summary(ordered, "quick" if options.quick else "full")
    print(text.partition("\n## ")[0])
    print("\n".join(complaints))
    if not options.only:
        (ROOT / "docs" / "scan.md").write_text(text)
    return int(bool(complaints))


if __name__ == "__main__":
    sys.exit(main())
