"""Print what comes out of every ordinary program: ``python -m clarke.ordinary [names]``."""

from __future__ import annotations

import sys
import warnings
from collections import Counter

import torch

from clarke.ordinary import ENTRIES
from clarke.ordinary.judge import Outcome, is_smooth_by_values, judge


def main() -> int:
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    counts: Counter[Outcome] = Counter()
    for entry in ENTRIES:
        if sys.argv[1:] and entry.name not in sys.argv[1:]:
            continue
        outcome, said = judge(entry)
        counts[outcome] += 1
        truth = "" if is_smooth_by_values(entry) == entry.smooth else f"  [smooth={not entry.smooth} by its values!]"
        print(f"{entry.kind:13} {entry.name:44} {outcome.value:8} {said.splitlines()[0][:150] if said else ''}{truth}")
    print(", ".join(f"{each.value}: {counts[each]}" for each in Outcome), f"of {sum(counts.values())}")
    return int(bool(counts[Outcome.WRONG] or counts[Outcome.DIED] or counts[Outcome.REFUSED] > 2))


if __name__ == "__main__":
    sys.exit(main())
