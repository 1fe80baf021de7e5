"""Strong zeros on PyTorch's operator database, at zeros, poles and numbers that are not finite. Write a part of a page.

    python scripts/strong_zero.py                    # every differentiable entry: a part of docs/nan.md
    python scripts/strong_zero.py sqrt linalg.svd    # these entries
    python scripts/strong_zero.py --samples 2        # of each entry the first samples only

Gradients, tangents and batched gradients, with and without strong zeros: what is no NaN in torch must be the same to
the bit, and what replaces a NaN must be the slope that values nearby have. Exits with an error if anything differs.
"""

from __future__ import annotations

import argparse
import logging
import multiprocessing
import os
import sys
import time
import warnings
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "database"))

from entries import Case, cases, database
from sections import write_section
from strong_zeros import Found, Kind, findings

PAGE = Path(__file__).resolve().parent.parent / "docs" / "nan.md"
BAD = (Kind.CHANGED, Kind.WRONG, Kind.FAILED)
PLAINLY = (torch.float32, torch.bfloat16, torch.complex128)  # of these only some variants, and only bits


def chosen(name: str, dtype: torch.dtype, count: int) -> list[Case]:
    """Of an entry, and in place, the first samples and the last, without those that are large."""
    found = []
    for in_place in (False, True):
        small = [each for each in cases(name, dtype, in_place=in_place) if each.inputs and each.size < 2000]
        found += small if len(small) <= count else [*small[: count - count // 3], *small[-(count // 3) :]]
    return found


def of_entry(name: str, count: int) -> tuple[int, list[Found]]:
    found, number = [], 0
    for case in chosen(name, torch.float64, count):
        number += 1
        found += findings(case)
    for dtype in PLAINLY:
        for case in chosen(name, dtype, max(2, count // 4)):
            number += 1
            bits = findings(case, ("as it is", "some zeros"), ("reverse",))
            found += [each for each in bits if each.kind in (Kind.CHANGED, Kind.FAILED)]
    return number, found


def begin() -> None:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)


def page(entries: int, number: int, counts: Counter[Kind]) -> str:
    of_nan = [kind for kind in Kind if kind not in BAD]
    return "\n".join(
        (
            f"Written by `scripts/strong_zero.py`, torch {torch.__version__.partition('+')[0]}: {number:,} samples of "
            f"{entries} entries, each as it is, at zeros, at some zeros and at poles and numbers that are not finite, "
            "backwards, under `vmap` and forwards.",
            "",
            "| of numbers that torch gives | |",
            "|---|---:|",
            *(f"| {kind.value} | {counts[kind]:,} |" for kind in (*BAD, *of_nan)),
        )
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("entries", nargs="*", help="names in the database; all differentiable ones if none are given")
    parser.add_argument("--samples", type=int, default=6, help="of each entry, as a function and in place")
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="processes at a time")
    parser.add_argument("--all", action="store_true", help="print every finding, also what was right")
    asked = parser.parse_args()
    begin()
    started, counts, number = time.monotonic(), Counter[Kind](), 0
    names = [name for name in database() if not asked.entries or name in asked.entries]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(asked.jobs, mp_context=spawn, initializer=begin) as pool:
        for done in as_completed([pool.submit(of_entry, name, asked.samples) for name in names]):
            count, found = done.result()
            number += count
            counts.update(each.kind for each in found)
            seen: Counter[tuple[Kind, str]] = Counter((each.kind, each.mode) for each in found)
            for (kind, mode), times in seen.items():
                if kind is not Kind.RIGHT or asked.all:
                    first = next(each for each in found if (each.kind, each.mode) == (kind, mode))
                    print(
                        f"{kind.value}: {times} x {mode}, first {first.case}, {first.variant}: {first.detail}",
                        flush=True,
                    )
    said = page(len(names), number, counts)
    print(said, f"\n{(time.monotonic() - started) / 60:.1f} minutes")
    if not asked.entries:
        write_section(PAGE, "strong_zero", said)
    return int(any(counts[kind] for kind in BAD))


if __name__ == "__main__":
    sys.exit(main())
