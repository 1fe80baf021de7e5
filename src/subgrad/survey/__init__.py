"""What the installed torch returns at every kink, measured, and what conventions make of it; other versions, too."""

from subgrad.survey.differences import Change, changes
from subgrad.survey.finding import Finding
from subgrad.survey.measure import Place, places, survey

__all__ = ["Change", "Finding", "Place", "changes", "places", "survey"]
