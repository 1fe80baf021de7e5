"""The atlas made from what is recorded of the frameworks, and from the installed torch: docs/atlas.html."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

from recorded_frameworks import all_answers

from subgrad.report.atlas_data import VERSIONS, Atlas
from subgrad.report.atlas_made import atlas

RECORDED = Path(__file__).parent / "recorded"


def real_version(convention: str) -> str:
    """The torch that the record of a convention was made with."""
    given = json.loads((RECORDED / f"{convention}.json").read_text())["torch"]
    return given.partition("+")[0]


@cache
def recorded_atlas() -> Atlas:
    """With all frameworks, and the versions of torch that the conventions are held against."""
    return replace(atlas(all_answers()), recorded=tuple(map(real_version, VERSIONS.values())))
