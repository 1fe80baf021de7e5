"""What other frameworks return at the kinks of the table, in their own spellings, measured on the real packages."""

from subgrad.survey.frameworks.measure import (
    Answers,
    Case,
    Place,
    Returned,
    cases,
    chosen,
    measure,
    places,
    read,
    signature,
)
from subgrad.survey.frameworks.packages import PACKAGES, parsed

__all__ = [
    "PACKAGES",
    "Answers",
    "Case",
    "Place",
    "Returned",
    "cases",
    "chosen",
    "measure",
    "parsed",
    "places",
    "read",
    "signature",
]
