"""Every small program of the battery, against its values: what mutants of rules are held against holds without them."""

from __future__ import annotations

from functools import cache

import pytest

from clarke import battery

PARTS = 40


@cache
def probes() -> list[battery.Probe]:
    """Made once: that takes longer than to hold them against their values."""
    return list(battery.probes())


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("part", range(PARTS))
def test_small_programs_are_right_or_refused(part: int) -> None:
    for probe in probes()[part::PARTS]:
        for which, said in enumerate(probe.said()):
            assert said[0] != "died", (probe.name, which, said)
            # Of cases the sets are known, not their slopes; with a tolerance the point is another.
            if said[0] == "ok" and not (probe.tol or (probe.program is None and which == 1)):
                assert not battery.is_wrong(probe, which, said), (probe.name, which, said)
