"""Random programs whose slopes are infinite or not defined in places, against their values in 320 digits.

Fewer of the same programs than `scripts/never_nan.py` runs; see docs/clarke-evidence.md for all.
"""

from __future__ import annotations

import pytest

from clarke.undefined.judge import Outcome, Truth, examine
from clarke.undefined.programs import numbered

SEED, BATCHES, BATCH = 1, 4, 10


@pytest.mark.parametrize("batch", range(BATCHES))
def test_no_program_is_nan_or_wrong_and_few_are_refused(batch: int) -> None:
    refused = []
    for number in range(batch * BATCH, (batch + 1) * BATCH):
        program = numbered(SEED, number)
        asked = examine(program, number)
        for way, verdict in asked.items():
            assert not verdict.outcome.is_miss, f"{way}: {verdict.outcome.value}. {verdict.said}\n{program}"
        if asked["grad"].truth is not Truth.NONE and asked["grad"].outcome is not Outcome.RIGHT:
            refused.append(f"{asked['grad'].said}\n{program}")
    assert len(refused) <= 1, "\n".join(refused)
