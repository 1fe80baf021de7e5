"""What the installed torch returns at every kink, measured."""

from subgrad.survey.measure import Finding, Place, places, survey

__all__ = ["Finding", "Place", "places", "survey"]
