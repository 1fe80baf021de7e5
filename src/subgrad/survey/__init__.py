"""What the installed torch returns at every kink, measured."""

from subgrad.survey.measure import Finding, survey

__all__ = ["Finding", "survey"]
