"""The gate: what an audit found, judged: the lines on which gradients depend, held against those that are known."""

from subgrad.gate.baseline import Baseline
from subgrad.gate.findings import DEPENDS, RULES, Finding, dependences
from subgrad.gate.verdict import Gate, Verdict, nothing_compared

__all__ = ["DEPENDS", "RULES", "Baseline", "Finding", "Gate", "Verdict", "dependences", "nothing_compared"]
